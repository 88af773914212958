"""The library form: one target, open for a block, tested by whatever is asked for in it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rlmesh_trio.conformance.catalogue import load_checks, refuse_unknown
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.registry import Check
from rlmesh_trio.conformance.runner import TargetRun
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import Target, target_for
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.conformance.watching import Watcher

__all__ = ("ConformRun", "trio_conform")


class ConformRun:
    """A target that runs, and the checks for it; made by :func:`trio_conform`. ``outcome`` is that of the last run."""

    def __init__(self, target: Target, settings: Settings, checks: Mapping[str, Check], watcher: Watcher) -> None:
        self.target = target
        self.settings = settings
        self.outcome: TargetOutcome | None = None
        self._before: TargetRun | None = None
        self._checks = checks
        self._watcher = watcher

    async def __call__(self, *only: str, **changes: Any) -> tuple[Finding, ...]:
        """Run the checks that *only* names: ids, families or patterns; without any, those of the settings.

        *changes* are laid over the settings, as ``time=20.0``. Raises :exc:`~rlmesh_trio.errors.InvalidSpec` for a name
        that stands for no check, and what connecting raises.
        """
        settings = attrs.evolve(self.settings, **({"only": only} if only else {}), **changes)
        refuse_unknown(settings, self._checks)
        run = TargetRun(self.target, settings.seeded(), self._checks, self._watcher)
        if self._before is not None:
            run.follow(self._before)
        self._before = run
        await run.look()
        await run.run()
        self.outcome = run.outcome()
        return self.outcome.findings


@asynccontextmanager
async def trio_conform(
    target: object,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    *,
    watcher: Watcher | None = None,
    checks: tuple[str, ...] = (),
) -> AsyncGenerator[ConformRun]:
    """Open *target* for the block, to be tested in it.

    As in::

        async with trio_conform("my_pkg.envs:make", Settings(lanes=4, time=20)) as run:
            findings = await run("seed.*")

    *target* is an address, a gymnasium id or ``module:factory`` (served by a process of its own), a factory or an env
    (tested in this process), or a :class:`~rlmesh_trio.conformance.targets.Target`. *checks* are modules of your own.
    Raises :exc:`~rlmesh_trio.errors.ConnectError` when it cannot be had.
    """
    settings = settings.seeded()
    opened = target_for(target, token=settings.token, lanes=settings.lanes)
    known = load_checks(checks)
    async with opened.running():
        yield ConformRun(opened, settings, known, watcher or Watcher())
