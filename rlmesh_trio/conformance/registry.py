"""Checks, and the table they stand in.

A check is a requirement, when it applies, what cases it is tried on, and a judge that plays a case and tells how it
broke, if it did. Anybody can add one::

    @check("mine.positive", severity="should", requirement="Rewards are positive.", cases=one_script)
    async def positive(lab: Lab, script: Script) -> Evidence | None:
        trace = await lab.play(script)
        ...
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeVar

import attrs
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.raw_stream import RawStream
from rlmesh_trio.conformance.scripts import Op, Script
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Evidence, Severity
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.endpoints.loading import AnyEnv

__all__ = ("CHECKS", "NO_RESET", "WAS_RESET", "Check", "Facts", "Judge", "Lab", "check")

T = TypeVar("T")

WAS_RESET = "was reset"
"""What ``Facts.told`` calls it when a reset has succeeded. Where none does, little else can be judged."""

NO_RESET = "needs a reset that succeeds"
"""How the reason of a skip begins where none did."""


@attrs.frozen(eq=False)
class Facts:
    """What is known of a target before anything is played, and what the user told about it.

    ``wire`` targets are running servers; a ``factory`` can be restarted and opened in this process besides
    (``local``). ``limit`` is the declared time limit in steps. ``bounds`` says what an observation is that leaves a Box
    or a Text: a failure, or something to be warned of. ``told`` collects what earlier checks found out and later ones
    go by, such as ``deterministic``.
    """

    name: str
    contract: EnvContract
    subset_step: bool
    capabilities: frozenset[str]
    factory: bool
    local: bool
    nondeterministic: bool = False
    limit: int | None = None
    ignored_leaves: frozenset[str] = frozenset()
    ignored_infos: frozenset[str] = frozenset()
    ulps: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    allow_shutdown: bool = False
    bounds: Literal["fail", "warn"] = "fail"
    told: dict[str, Any] = attrs.field(factory=dict[str, Any])
    other: "Facts | None" = None

    @property
    def served(self) -> bool:
        """Whether there is a server to talk to; an env opened in this process only has none."""
        return self.factory or not self.local


class Lab(Protocol):
    """What a judge works with. Each play starts where the isolation in force says; every wait in it has a deadline."""

    @property
    def facts(self) -> Facts:
        """The target."""
        ...

    @property
    def address(self) -> str:
        """Where the target's server is now; empty for an env of this process."""
        ...

    @property
    def token(self) -> str | None:
        """What the server asks for."""
        ...

    async def leave(self) -> None:
        """Close the session in use, so that a client of the judge's own finds the server free."""
        ...

    def raw_stream(self, *, patience: float = 5.0) -> AbstractAsyncContextManager[RawStream]:
        """A Join stream of the judge's own, message by message, its waits as long as a step may take.

        The session in use is left before. A server that refuses the stream is asked again for *patience* seconds, and
        is then seen in the stream's ``ending``. Raises ConnectError when nobody is there.
        """
        ...

    async def play(self, script: Script) -> Trace:
        """Play *script* in the session in use, or in a fresh one if sessions were found not to be independent."""
        ...

    async def play_fresh(self, script: Script) -> Trace:
        """Play *script* in a session of its own."""
        ...

    async def play_apart(self, script: Script) -> Trace:
        """Play *script* on an env that nothing was played on before, as far as the target can be started again.

        That may take a second or two. A target that was not started here gives a session of its own, no more.
        """
        ...

    async def improvise(self, choose: Callable[[Answer | None], Op | None]) -> Trace:
        """As :meth:`play`, but each op is chosen when it is due: *choose* gets the last answer, ``None`` ends."""
        ...

    async def play_local(self, script: Script, *, width: int | None = None) -> Trace:
        """Play *script* on the env itself in this process, of *width* lanes (factories only)."""
        ...

    async def ask_local(self, ask: Callable[[AnyEnv], T]) -> T:
        """Make the env of one lane in a thread of this process, call *ask* with it there, and close it.

        A target that is an env already gives that one, and keeps it. Raises
        :exc:`~rlmesh_trio.errors.ConnectError` when it cannot be made, :exc:`trio.TooSlowError` when all this takes as
        long as ten operations may.
        """
        ...

    async def play_other(self, script: Script) -> Trace:
        """Play *script* on the run's first target, in a session in use; where the facts know an ``other`` only."""
        ...

    def target(self, value: float, label: str) -> None:
        """Tell the search what to climb: hypothesis' ``target``."""
        ...


Judge = Callable[[Any, Any], Awaitable[Evidence | None]]


def _always(_: Facts) -> str | None:
    return None


@attrs.frozen(eq=False)
class Check:
    """One requirement.

    ``rule`` is where it is demanded: edition and heading, or gymnasium's API. ``applies`` gives ``None``, or the
    reason of a skip that says what would be needed. ``cases`` makes the search strategy for a target, ``example`` the
    fixed case played first (``None``: there is none). A failed check of ``after`` blocks this one. ``compares`` marks a
    relation between two runs, which needs an env whose traces repeat. ``soak`` marks one that also judges long random
    play. ``needs_own_session`` marks one that may leave its session unusable.
    """

    id: str
    severity: Severity
    requirement: str
    rule: str
    judge: Judge
    cases: Callable[[Facts], SearchStrategy[Any]]
    example: Callable[[Facts], Any] | None
    applies: Callable[[Facts], str | None]
    after: tuple[str, ...]
    compares: bool
    soak: bool
    needs_own_session: bool

    @property
    def family(self) -> str:
        """The part of the id before the first dot."""
        return self.id.partition(".")[0]


CHECKS: dict[str, Check] = {}
"""Every check that was registered, by id, in the order of registration."""


def check(
    id: str,
    *,
    severity: Severity,
    requirement: str,
    cases: Callable[[Facts], SearchStrategy[Any]],
    rule: str = "",
    example: Callable[[Facts], Any] | None = None,
    applies: Callable[[Facts], str | None] = _always,
    after: Sequence[str] = (),
    compares: bool = False,
    soak: bool = False,
    needs_own_session: bool = False,
) -> Callable[[Judge], Judge]:
    """Register the decorated judge as a check. Raises :exc:`ValueError` for an id that is taken or has no family."""

    def register(judge: Judge) -> Judge:
        if id in CHECKS or not all(id.split(".")) or "." not in id:
            raise ValueError(f"a check's id is family.name and is there once, not {id!r}")
        CHECKS[id] = Check(
            id,
            severity,
            requirement,
            rule,
            judge,
            cases,
            example,
            applies,
            tuple(after),
            compares,
            soak,
            needs_own_session,
        )
        return judge

    return register
