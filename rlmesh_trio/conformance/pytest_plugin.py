"""Conformance checks as tests: an item a check, a fixture that runs checks, and cases that were found as regressions.

Loaded by ``pytest_rlmesh_trio`` when one of these is used. Targets run in a thread of trio's own, one server for the
whole test process: no plugin for trio is needed, and none is in the way.
"""

import os
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, TypeVar, cast

import attrs
import click
import pytest

from rlmesh_trio.conformance.baseline import Baseline, read_baseline
from rlmesh_trio.conformance.blame import blockers_of, in_order
from rlmesh_trio.conformance.blob import Blob, decode_blob
from rlmesh_trio.conformance.catalogue import load_checks, refuse_unknown
from rlmesh_trio.conformance.durations import parse_duration
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.pytest_runner import TrioThread
from rlmesh_trio.conformance.registry import Check
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.terminal import failure_block
from rlmesh_trio.conformance.reproductions import reproductions_of
from rlmesh_trio.conformance.retrial import replayed, retried
from rlmesh_trio.conformance.runner import TargetRun
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import ServedTarget, Target, target_for
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.errors import InvalidSpec, SessionError
from rlmesh_trio.transport.address import is_address

__all__ = (
    "Conform",
    "ConformCollector",
    "ConformFailure",
    "ConformItem",
    "close",
    "conform_script",
    "judge_marked",
    "prepare",
    "scheduler_of",
    "served",
    "trace_of_marked",
)

F = TypeVar("F", bound=Callable[..., Any])

served = ServedTarget
"""An env served by a process of its own: ``served("my_pkg.envs:make", lanes=4)``."""

_MARK = "conform_script"
_GROUP = "rlmesh"
_NO_TARGET = "no target: give --rlmesh-target, or a fixture rlmesh_target that returns one"
_BASELINE = "conform-baseline.toml"
_TRIES = 5
_LEAST_TIME = 1.0


class ConformFailure(Exception):
    """What a check found, to be shown as it is."""


def conform_script(blob: str) -> Callable[[F], F]:
    """Mark a test with a case that was found: before the test, the case is judged again and must pass.

    The fixture ``conform_trace`` has what the target answers to it.
    """
    return pytest.mark.conform_script(blob)


def prepare(config: pytest.Config) -> None:
    """Check the options. Raises :exc:`pytest.UsageError`."""
    _Bench.of(config)


def scheduler_of(config: pytest.Config, log: Any) -> object:
    """A scheduler of xdist that keeps the items of one running server together; ``None`` where any scheduler does."""
    if not _has_address(config) or config.getoption("dist") not in ("load", "worksteal", "loadgroup"):
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _GROUP if nodeid.startswith(f"{_GROUP}::") else super()._split_scope(nodeid)

    return Scheduling(config, log)


def _has_address(config: pytest.Config) -> bool:
    named: Any = config.getoption("--rlmesh-target")
    return isinstance(named, str) and is_address(named)


def close(config: pytest.Config) -> None:
    """End the servers that were started."""
    bench = config.stash.get(_BENCH, None)
    if bench is not None:
        bench.thread.close()


@attrs.define(eq=False)
class _Bench:
    """What all tests of one process share."""

    settings: Settings
    checks: dict[str, Check]
    baseline: Baseline
    modules: tuple[str, ...]
    thread: TrioThread = attrs.field(factory=TrioThread)
    targets: dict[object, Target] = attrs.field(factory=dict[object, Target])
    verdicts: dict[tuple[int, str], Finding] = attrs.field(factory=dict[tuple[int, str], Finding])
    runs: dict[int, TargetRun] = attrs.field(factory=dict[int, TargetRun])

    @classmethod
    def of(cls, config: pytest.Config) -> "_Bench":
        """The bench of this process. Raises :exc:`pytest.UsageError` for options that mean nothing."""
        if _BENCH not in config.stash:
            try:
                config.stash[_BENCH] = cls._made(config)
            except SessionError as refusal:
                raise pytest.UsageError(str(refusal)) from refusal
        return config.stash[_BENCH]

    @classmethod
    def _made(cls, config: pytest.Config) -> "_Bench":
        given: Any = config.getoption("--rlmesh-checks")
        modules = tuple[str, ...](given)
        file: Any = config.getoption("--rlmesh-baseline")
        seed: Any = config.getoption("--rlmesh-seed")
        lanes: Any = config.getoption("--rlmesh-lanes")
        examples: Any = config.getoption("--rlmesh-examples")
        default = config.rootpath / _BASELINE
        baseline = Baseline()
        if file or default.exists():
            baseline = read_baseline(str(file or default))
        settings = Settings(
            time=parse_duration(str(config.getoption("--rlmesh-time"))),
            examples=examples,
            seed=seed,
            lanes=lanes,
            strict=bool(config.getoption("--rlmesh-strict")),
            token=os.environ.get("RLMESH_TRIO_TOKEN"),
        )
        return cls(settings.seeded(), dict(load_checks(modules)), baseline, modules)

    def target(self, named: object) -> Target:
        """The target that *named* is, the same one each time."""
        key: object = named if isinstance(named, str) else id(named)
        if key not in self.targets:
            lanes = None if isinstance(named, str) and is_address(named) else self.settings.lanes
            self.targets[key] = target_for(named, token=self.settings.token, lanes=lanes)
        return self.targets[key]

    def run(self, named: object, settings: Settings) -> TargetOutcome:
        """Test the target by what *settings* select. Checks that others rest on and that passed are not tried again."""
        refuse_unknown(settings, self.checks)
        target = self.target(named)
        selected = [check for check in self.checks.values() if settings.selects(check.id)]
        before = {blocker for check in selected for blocker in self._blockers(check)}
        told = {name: self.verdicts.get((id(target), name)) for name in before - {check.id for check in selected}}
        passed = tuple(name for name, finding in told.items() if finding is not None and finding.verdict == "pass")

        async def tested() -> TargetOutcome:
            wanted = attrs.evolve(settings, skip=(*settings.skip, *passed))
            run = TargetRun(target, wanted, self.checks, Watcher())
            if id(target) in self.runs:
                run.follow(self.runs[id(target)])
            self.runs[id(target)] = run
            await run.look()
            await run.run()
            return run.outcome()

        outcome = self.thread.call(target, tested)
        for finding in outcome.findings:
            self.verdicts[id(target), finding.check] = finding
        return outcome

    def _blockers(self, check: Check) -> Iterator[str]:
        for blocker in blockers_of(check):
            if blocker in self.checks:
                yield blocker
                yield from self._blockers(self.checks[blocker])

    def told(self, outcome: TargetOutcome, findings: tuple[Finding, ...], target: Target) -> str:
        """The report on *findings*, with the ways to see them again."""
        about = Outcome((attrs.evolve(outcome, findings=findings),), self.settings)
        sources = {} if isinstance(target.source, str) or target.source is None else {outcome.name: target.source}
        made = reproductions_of(about, modules=self.modules, sources=sources)
        material = Material(about, made.found, times=False, checks=self.checks)
        blocks = [failure_block(material, about.targets[0], finding) for finding in findings]
        return click.unstyle("\n\n".join(["\n".join(lines) for lines in blocks]))


_BENCH = pytest.StashKey[_Bench]()


class Conform:
    """What the fixture ``conform`` is. Made of what the fixture ``rlmesh_target`` gives; skips when that is nothing."""

    def __init__(self, config: pytest.Config, named: object) -> None:
        if named is None:
            pytest.skip(_NO_TARGET)
        self._bench = _Bench.of(config)
        self._named = named

    def check(self, *only: str, time: str | float | None = None, **changes: Any) -> tuple[Finding, ...]:
        """Run the checks that *only* names: ids, families or patterns; all of them by default.

        *time* is a number of seconds, or text such as ``20s``; *changes* are other fields of
        :class:`~rlmesh_trio.conformance.settings.Settings`. The test fails when a must fails (with ``strict`` a should
        too), and is skipped when nothing could be tested. Failures that the baseline accepts do not count.
        """
        bench = self._bench
        if time is not None:
            changes["time"] = parse_duration(time) if isinstance(time, str) else time
        settings = attrs.evolve(bench.settings, only=only, **changes)
        outcome = bench.run(self._named, settings)
        judged = bench.baseline.applied(Outcome((outcome,), settings), date.today())
        wrong = tuple(one for one in judged.findings if one in judged.failed or one.verdict == "error")
        if outcome.lost:
            pytest.fail(f"{outcome.name} was lost: {outcome.lost}", pytrace=False)
        if wrong:
            pytest.fail(bench.told(outcome, wrong, bench.target(self._named)), pytrace=False)
        if all(one.verdict in ("skip", "blocked") for one in judged.findings):
            reasons = dict.fromkeys(f"{one.check} {one.reason}" for one in judged.findings)
            pytest.skip("nothing was tested: " + "; ".join(reasons))
        return judged.findings


class ConformItem(pytest.Item):
    """One check on the target of ``--rlmesh-target``. ``obj`` is what pytest-trio asks every item for."""

    obj = None

    def __init__(self, *, check: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]
        self.check = check

    def runtest(self) -> None:
        """Run the check, and make a test's outcome of its verdict."""
        bench = _Bench.of(self.config)
        named: object = self.config.getoption("--rlmesh-target")
        items = sum(isinstance(item, ConformItem) for item in self.session.items)
        time = max(_LEAST_TIME, bench.settings.time / items)
        settings = attrs.evolve(bench.settings, only=(self.check,), time=time)
        outcome = bench.run(named, settings)
        today = date.today()
        about = Outcome((outcome,), settings)
        judged = bench.baseline.applied(about, today)
        (finding,) = [one for one in judged.findings if one.check == self.check]
        stale = [one for one in bench.baseline.stale(about, today) if one.check == self.check]
        if finding.evidence is not None:
            text = bench.told(outcome, (finding,), bench.target(named))
            if finding.verdict in ("warn", "note"):
                self.add_report_section("call", "conform", text)
        else:
            text = finding.reason
        match finding.verdict:
            case "skip" | "blocked":
                pytest.skip(f"blocked by {finding.reason}" if finding.verdict == "blocked" else finding.reason)
            case "known":
                pytest.xfail(finding.reason)
            case "error":
                raise ConformFailure(f"{self.check}: a fault of the check itself: {finding.reason}")
            case "fail":
                raise ConformFailure(text)
            case "warn" if bench.settings.strict:
                raise ConformFailure(text)
            case _:
                pass
        if outcome.lost:
            raise ConformFailure(f"{outcome.name} was lost: {outcome.lost}")
        if stale:
            raise ConformFailure(f"stale entry in the baseline: {self.check}: {stale[0].why}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A finding as it is, an error in one line, anything else as pytest shows it."""
        if isinstance(excinfo.value, (ConformFailure, SessionError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where it comes from: no file of the project."""
        return self.path, None, self.name


class ConformCollector(pytest.Collector):
    """Collects an item a check, in the order in which one may explain another."""

    @classmethod
    def of(cls, session: pytest.Session) -> "ConformCollector":
        """The one of *session*."""
        make = cast("Callable[..., ConformCollector]", cls.from_parent)  # pyright: ignore[reportUnknownMemberType]
        return make(session, name=_GROUP, nodeid=_GROUP)

    def collect(self) -> Iterator[ConformItem]:
        """Make the items."""
        make = cast("Callable[..., ConformItem]", ConformItem.from_parent)  # pyright: ignore[reportUnknownMemberType]
        for check in in_order(_Bench.of(self.config).checks.values()):
            name = f"conform[{check.id}]"
            # The id as text: pytest's cache reads it back from text, and has to find the same.
            yield make(self, name=name, nodeid=f"{_GROUP}::{name}", check=check.id)


def _marked(item: pytest.Item) -> Blob | None:
    mark = item.get_closest_marker(_MARK)
    return None if mark is None else decode_blob(str(mark.args[0]))


def judge_marked(item: pytest.Function) -> None:
    """Judge the case that *item* is marked with; fails the test if it still breaks its check."""
    named: object = item.funcargs.get("rlmesh_target", item.config.getoption("--rlmesh-target"))
    if named is None:
        pytest.skip(_NO_TARGET)
    bench = _Bench.of(item.config)
    target = bench.target(named)

    async def judged() -> TargetOutcome:
        blob = _marked(item)
        assert blob is not None
        return await retried(blob, target, bench.settings, bench.checks, runs=_TRIES)

    try:
        outcome = bench.thread.call(target, judged)
    except SessionError as refusal:
        pytest.fail(str(refusal), pytrace=False)
    (finding,) = outcome.findings
    if finding.verdict == "skip":
        pytest.skip(f"{finding.check}: {finding.reason}")
    if finding.verdict in ("fail", "warn"):
        pytest.fail(bench.told(outcome, outcome.findings, target), pytrace=False)


def trace_of_marked(request: pytest.FixtureRequest, named: object) -> Trace:
    """What *named* answers to the last script of the case that the test is marked with."""
    if named is None:
        pytest.skip(_NO_TARGET)
    bench = _Bench.of(request.config)
    target = bench.target(named)
    blob = _marked(request.node)
    if blob is None:
        raise InvalidSpec("conform_trace is for tests that are marked with @conform_script(blob)")
    try:
        traces = bench.thread.call(target, replayed, blob, target, bench.settings)
    except SessionError as refusal:
        pytest.fail(str(refusal), pytrace=False)
    if not traces:
        pytest.fail(f"the case of {blob.check} has no script to play", pytrace=False)
    return traces[-1]
