"""The search for a case that breaks a check, and for a smaller one: hypothesis in a thread, the judge in trio.

Hypothesis wants a test that does the same each time, and an env that flickers does not. So a case is tried as often as
it takes to believe that it holds, what was found of a case stands from then on, and the smallest broken case is kept
here, whatever hypothesis makes of it. A search ends at its deadline, also in the middle of a try.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs
import hypothesis
import trio
from hypothesis import HealthCheck, Phase, Verbosity, given
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.errors import Flaky, HypothesisException
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.cases import ops_in
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("Broken", "Search", "tries_for")

_Attempt = Callable[[Any], Awaitable[Evidence | None]]
"""Asks the judge about one case, once."""

# An env may be slow, and a space large: neither is a mistake of the check's.
_UNHEALTHY = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
    HealthCheck.nested_given,
    HealthCheck.differing_executors,
    HealthCheck.function_scoped_fixture,
)
_FEWEST_TRIES = 2
_MOST_TRIES = 20
_DOUBT = 0.01
_FIRST_TRIES = 4


def tries_for(rate: float) -> int:
    """How often a case must hold, where broken ones break at *rate*, before it is believed to hold: 2 to 20 times."""
    if rate >= 1:
        return _FEWEST_TRIES
    if rate <= 0:
        return _MOST_TRIES
    return min(_MOST_TRIES, max(_FEWEST_TRIES, math.ceil(math.log(_DOUBT) / math.log(1 - rate))))


@attrs.define
class Broken:
    """A case that broke its check: the smallest so far. ``shrunk_from`` is how many ops the first one had."""

    case: Any
    evidence: Evidence
    shrunk_from: int

    @property
    def ops(self) -> int:
        """The ops of all its scripts."""
        return ops_in(self.case)


class _Enough(KeyboardInterrupt):
    """Ends a run of hypothesis at once, and leaves what it has stored as it is."""


@attrs.define
class Search:
    """One check's search.

    *name* tells its cases apart in the database and seeds it. *attempt* is asked in the task that awaits :meth:`run`;
    evidence from it is a failure to be made small. *climbed* takes what the judge told it to maximise, *on_broken* is
    told of each broken case, and whether it is a smaller one.

    ``best`` is the smallest broken case, ``examples`` how many were tried, ``shrinking_since`` when the first broke.
    ``cut`` says that the time ended it.
    """

    name: str
    settings: Settings
    attempt: _Attempt
    climbed: Callable[[], dict[str, float]]
    on_broken: Callable[[Any, Evidence, bool], None]
    best: Broken | None = None
    examples: int = 0
    shrinking_since: float | None = None
    cut: bool = False
    _deadline: float = math.inf
    _shrink_limit: float = 0.0
    _end: float = math.inf
    _broke: int = 0
    _tried: int = 0
    _known: dict[Any, Evidence | None] = attrs.field(factory=dict[Any, "Evidence | None"])
    _failure: BaseException | None = None

    async def run(
        self, cases: SearchStrategy[Any], *, examples: int, deadline: float, shrink_limit: float, end: float
    ) -> None:
        """Try up to *examples* of *cases* until *deadline* (trio time), and make a broken one small.

        Shrinking takes at most *shrink_limit* seconds from when it began, and ends at *end*. Raises what *attempt*
        raises, and :exc:`HypothesisException` for a strategy that gives no cases.
        """
        self._deadline = deadline
        self._shrink_limit = shrink_limit
        self._end = end
        try:
            await trio.to_thread.run_sync(_run_quietly, self._test(cases, examples))
        except HypothesisException:
            if self.best is None:
                raise
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _test(self, cases: SearchStrategy[Any], examples: int) -> Callable[[], None]:
        def holds(case: Any) -> None:
            self._hold(case)

        test = given(case=cases)(holds)
        # What pytest sets for the cases of a parametrized test, to keep their examples apart.
        cast("Any", test).hypothesis.inner_test._hypothesis_internal_add_digest = self.name.encode()
        test = hypothesis.seed(self.settings.seed_of(self.name))(test)
        return hypothesis.settings(parent=_profile(self.settings), max_examples=max(1, examples))(test)

    def _hold(self, case: Any) -> None:
        """Raise unless *case* holds: hypothesis' test, in its thread."""
        key = _key(case)
        evidence = self._known[key] = self._judged(case, key)
        for label, value in self.climbed().items():
            if math.isfinite(value):
                hypothesis.target(value, label=label)
        if evidence is not None:
            raise _BrokenCase(evidence.signature)

    def _judged(self, case: Any, key: Any) -> Evidence | None:
        try:
            return trio.from_thread.run(self._tries, case, key)
        except BaseException as failure:
            # A cancellation is trio's own business: it is raised again as soon as the thread is back.
            if not isinstance(failure, (trio.Cancelled, _Enough)):
                self._failure = failure
            raise _Enough from None

    async def _tries(self, case: Any, key: Any) -> Evidence | None:
        """What is known of *case*, or else: ask the judge until it breaks, or has held often enough."""
        if trio.current_time() >= self._ends_at:
            self.cut = True
            raise _Enough
        if key in self._known:
            return self._known[key]
        evidence = None
        with trio.CancelScope(deadline=self._ends_at) as scope:
            evidence = await self._until_broken(case, scope)
        if scope.cancelled_caught:
            self.cut = True
            raise _Enough
        self.examples += 1
        return evidence

    async def _until_broken(self, case: Any, scope: trio.CancelScope) -> Evidence | None:
        tries = 1 if self.best is None else tries_for(self._broke / self._tried)
        for number in range(1, tries + 1):
            evidence = await self.attempt(case)
            if evidence is None:
                continue
            first = self.best is None
            self._broke += 1
            self._tried += number
            self._keep(case, evidence)
            if first:
                scope.deadline = self._ends_at
                await self._estimate(case)
            return evidence
        return None

    async def _estimate(self, case: Any) -> None:
        """Try the first broken *case* again, to know how reliably it breaks."""
        for _ in range(_FIRST_TRIES - 1):
            self._broke += await self.attempt(case) is not None
            self._tried += 1

    def _keep(self, case: Any, evidence: Evidence) -> None:
        best = self.best
        if best is None:
            self.best = Broken(case, evidence, ops_in(case))
            self.shrinking_since = trio.current_time()
        elif ops_in(case) <= best.ops:
            best.case, best.evidence = case, evidence
        self.on_broken(case, evidence, best is not None)

    @property
    def _ends_at(self) -> float:
        if self.shrinking_since is None:
            return min(self._deadline, self._end)
        return min(self._end, self.shrinking_since + self._shrink_limit)


class _BrokenCase(Exception):
    """What hypothesis sees of a broken case."""


def _run_quietly(test: Callable[[], None]) -> None:
    try:
        test()
    except (_Enough, _BrokenCase, Flaky):
        pass
    except BaseExceptionGroup as group:
        if group.split(_BrokenCase)[1] is not None:
            raise


def _profile(settings: Settings) -> hypothesis.settings:
    """Hypothesis' profile in force, without what is decided here."""
    profile = hypothesis.settings()
    wanted = {Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink}
    return hypothesis.settings(
        parent=profile,
        database=_database(settings, profile),
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        phases=[phase for phase in profile.phases if phase in wanted and (settings.shrink or phase != Phase.shrink)],
        verbosity=Verbosity.quiet if profile.verbosity == Verbosity.normal else profile.verbosity,
        suppress_health_check=_UNHEALTHY,
    )


def _database(settings: Settings, profile: hypothesis.settings) -> ExampleDatabase | None:
    if settings.database is not None:
        return DirectoryBasedExampleDatabase(settings.database)
    return profile.database if settings.seed_drawn else None


def _key(case: Any) -> Any:
    """What *case* is known by: itself, or how it is written where it has no hash."""
    try:
        hash(case)
    except TypeError:
        return repr(case)
    return case
