"""A run: targets one after the other, and on each the phases ``contract``, ``examples``, ``search`` and ``soak``.

Each check is tried behind those that may explain its failure, and not at all once one of them failed. What was found
stands whatever happens next: a target that is lost, the end of the time, an interruption, a fault of this kit.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial

import attrs
import trio

from rlmesh_trio.conformance.blame import blockers_of, in_order, with_blockers
from rlmesh_trio.conformance.check_run import CheckRun, JudgeFault, place_of
from rlmesh_trio.conformance.first_look import first_look
from rlmesh_trio.conformance.isolation import HISTORY_INDEPENDENT, isolation_for
from rlmesh_trio.conformance.known_faults import lookup
from rlmesh_trio.conformance.lab import SeenLab, TargetLab, TargetLost, open_lab
from rlmesh_trio.conformance.next_session import SHUT_DOWN
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.placeless import placeless
from rlmesh_trio.conformance.registry import CHECKS, NO_RESET, WAS_RESET, Check, Facts
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.soak import Wanderer, soak_steps
from rlmesh_trio.conformance.targets import Target
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.conformance.watching import Watcher

__all__ = ("TargetRun", "run_checks")

_SEARCH_SHARE = 0.6
_SOAK_SHARE = 0.1
_EXAMPLES_SHARE = 0.7
# What one check may take of the budget even where an equal part would be less.
_EXAMPLE_LEAST = 0.2
_SEARCH_LEAST = 0.05
_STEPS_A_SHARE = 50
_LAST_LOOK = 0.7
_RESETS_TRIED = 3
_JUDGE_RESETS = ("contract", "space", "twin", "py")
_HUNG_AFTER = 2.0
_HUNG_TIMES = 10.0


async def run_checks(
    targets: Sequence[Target],
    settings: Settings,
    *,
    checks: Mapping[str, Check] | None = None,
    watcher: Watcher | None = None,
    scope: trio.CancelScope | None = None,
) -> Outcome:
    """Test *targets* by *checks*, by default all that are registered, and return what came of it.

    Cancelling *scope* interrupts the run: the outcome says so, and holds what was found until then. Raises
    :exc:`~rlmesh_trio.errors.ConnectError` or :exc:`~rlmesh_trio.errors.HandshakeError` when a target cannot be
    opened, before anything was played on it.
    """
    settings = settings.seeded()
    watcher = watcher or Watcher()
    known = CHECKS if checks is None else checks
    began, started = time.time(), trio.current_time()
    watcher.run_started(settings, tuple(target.name for target in targets))
    runs = [TargetRun(target, settings, known, watcher) for target in targets]
    done: list[TargetOutcome] = []
    with scope or trio.CancelScope() as scope:
        async with AsyncExitStack() as all_running:
            for target, run in zip(targets, runs, strict=True):
                await all_running.enter_async_context(target.running())
                await run.look()
            for run in runs:
                try:
                    await run.run(None if run is runs[0] else runs[0], since=started if run is runs[0] else None)
                finally:
                    done.append(run.outcome("the run was interrupted" if scope.cancel_called else ""))
    outcome = Outcome(tuple(done), settings, began, trio.current_time() - started, scope.cancelled_caught)
    watcher.run_ended(outcome)
    return outcome


class TargetRun:
    """One target's part of a run."""

    def __init__(self, target: Target, settings: Settings, checks: Mapping[str, Check], watcher: Watcher) -> None:
        self._target = target
        self._settings = settings
        self._watcher = watcher
        self._known = checks
        self._runs: dict[str, CheckRun] = {}
        self._told: dict[str, Finding] = {}
        self._facts: Facts | None = None
        self._lab: TargetLab | None = None
        self._unreadable = ""
        self._about = TargetOutcome(target.name, target.kind)
        self._lost = ""
        self._asked: CheckRun | None = None
        self._before: TargetRun | None = None
        self._soaked = False
        self._started = self._seconds = 0.0

    @property
    def name(self) -> str:
        """What the user called the target."""
        return self._target.name

    def follow(self, before: "TargetRun") -> None:
        """Go by what *before*, a run on the same target, found out of it, and keep plays apart as it did in the end."""
        self._before = before

    async def look(self) -> None:
        """Connect and learn what the target declares, without playing. Raises what connecting raises."""
        look = await first_look(self._target, self._settings)
        self._facts, self._unreadable, self._about = look.facts, look.unreadable, look.about
        if self._before is not None and self._before._facts is not None:
            self._facts.told.update(self._before._facts.told)

    async def run(self, first: "TargetRun | None" = None, *, since: float | None = None) -> None:
        """Go through all phases, within the budget, which counts from *since* (trio time), by default from now.

        *first* is the run of the first target, for comparisons with it.
        """
        facts, settings = self._facts, self._settings
        assert facts is not None
        if first is not None and not first._unreadable:
            facts = self._facts = attrs.evolve(facts, other=first._facts)
        self._started = trio.current_time() if since is None else since
        self._end = self._started + settings.time
        self._watcher.target_opened(self._about)
        try:
            await self._tested(facts, first)
        except Exception as failure:
            if self._asked is None:
                raise
            self._asked.error = place_of(failure)

    async def _tested(self, facts: Facts, first: "TargetRun | None") -> None:
        async with AsyncExitStack() as labs:
            lab = self._lab = await labs.enter_async_context(self._open_lab(facts))
            if self._before is not None and self._before._lab is not None:
                lab.isolation = self._before._lab.isolation
            if first is not None and facts.other is not None:
                lab.other = await labs.enter_async_context(first._open_lab(facts.other))
                lab.other.isolation = "shared" if first._lab is None else first._lab.isolation
            self._make_runs(facts, lab)
            try:
                with trio.move_on_at(self._end):
                    await self._phases(lab)
                self._note_cuts()
                await self._look_after(lab)
            except TargetLost as lost:
                self._lost = str(lost)
            finally:
                self._seconds = trio.current_time() - self._started

    def _open_lab(self, facts: Facts) -> AbstractAsyncContextManager[TargetLab]:
        return open_lab(self._target, facts, step_timeout=self._settings.step_timeout)

    def _make_runs(self, facts: Facts, lab: TargetLab) -> None:
        known, settings = self._known, self._settings
        selected = {id for id in known if settings.selects(id)}
        wanted = with_blockers(selected, known)
        wanted -= {id for id in wanted - selected if settings.skips(id)}
        for check in in_order(check for id, check in known.items() if id in wanted):
            run = CheckRun(
                check,
                self.name,
                lab,
                settings,
                self._watcher,
                known_fault=self._known_fault,
                selected=check.id in selected,
            )
            run.forgives_mild = lambda check=check: self._mild_before(check)
            run.skip = self._reason_to_skip(check, facts)
            self._runs[check.id] = run

    def _reason_to_skip(self, check: Check, facts: Facts) -> str:
        if self._unreadable and check.family != "contract":
            return f"needs a contract that can be read: {self._unreadable}"
        if check.family == "wire" and not facts.served:
            return "needs a server: this env runs in the kit's own process"
        if check.compares and facts.nondeterministic:
            return "needs an env whose traces repeat: this one was declared nondeterministic"
        return ""

    def _known_fault(self, check: str, signature: str) -> str | None:
        assert self._facts is not None
        return lookup(self._about.package, self._about.version, check, signature, self._facts)

    # Blame

    def _root(self, check: Check) -> str | None:
        """The failed check that explains whatever *check* would find."""
        for blocker in blockers_of(check):
            run = self._runs.get(blocker)
            if run is None:
                continue
            root = self._root(run.check)
            if root is not None:
                return root
            if run.finding(None).verdict in ("fail", "warn", "known") and not run.is_mild:
                return blocker
        return None

    def _mild_before(self, check: Check) -> bool:
        runs = [self._runs[blocker] for blocker in blockers_of(check) if blocker in self._runs]
        return any(run.is_mild or self._mild_before(run.check) for run in runs)

    # Phases

    async def _phases(self, lab: TargetLab) -> None:
        now = trio.current_time
        budget = self._settings.time
        runs = list(self._runs.values())
        examples_end = self._started + _EXAMPLES_SHARE * budget
        await self._examples("contract", [run for run in runs if run.check.family == "contract"], examples_end)
        await self._examples("examples", [run for run in runs if run.check.family != "contract"], examples_end)
        await self._search(runs, min(now() + _SEARCH_SHARE * budget, self._end - _SOAK_SHARE * budget))
        await self._soak(lab, [run for run in runs if run.check.soak])

    async def _examples(self, phase: str, runs: Sequence[CheckRun], until: float) -> None:
        self._watcher.phase_started(self.name, phase, tuple(run.check.id for run in runs))
        for run in runs:
            if self._up(run, phase):
                await self._try_example(run, min(until, trio.current_time() + _EXAMPLE_LEAST * self._settings.time))
                if not run.open:
                    self._tell(run)

    async def _try_example(self, run: CheckRun, until: float) -> None:
        with trio.move_on_at(until) as scope:
            await self._guarded(run, run.try_example)
        run.cut = run.cut or scope.cancelled_caught

    async def _search(self, runs: Sequence[CheckRun], until: float) -> None:
        self._watcher.phase_started(self.name, "search", tuple(run.check.id for run in runs if run.open))
        # Those first that had no turn yet.
        waiting = sorted(runs, key=lambda run: run.cases > 0)
        for place, run in enumerate(waiting):
            if trio.current_time() < until and self._up(run, "search"):
                now = trio.current_time()
                part = (until - now) * _share(run) / sum(_share(other) for other in waiting[place:] if other.open)
                deadline = min(until, now + max(part, _SEARCH_LEAST * self._settings.time))
                if run.stale or not run.cases:
                    await self._try_example(run, deadline)
                # Whatever breaks now must leave half of the time to what may break after it.
                limit = min(self._settings.shrink_time, (self._end - now) / 2)
                end = min(self._end, deadline + limit)
                await self._guarded(run, partial(run.search, deadline=deadline, end=end, shrink_limit=limit))
            self._tell(run)
            await self._mind_history(run)

    async def _soak(self, lab: TargetLab, runs: Sequence[CheckRun]) -> None:
        self._watcher.phase_started(self.name, "soak", tuple(run.check.id for run in runs if run.open))
        # Who says how many cases there are wants the same ones each time.
        steps = soak_steps(None if self._settings.examples is not None else lab.pace)
        for number in range(max(2, self._settings.examples_each // 2)):
            asked = [run for run in runs if run.broken is None and self._up(run, "soak")]
            if not asked or self._unreadable or lab.facts.told.get(SHUT_DOWN):
                break
            wanderer = Wanderer(lab.facts, seed=self._settings.seed_of(f"soak:{number}"), steps=steps)
            seen = SeenLab(lab, await lab.improvise(wanderer.choose))
            for run in asked:
                end = min(self._end, trio.current_time() + self._settings.shrink_time)
                await self._guarded(run, partial(run.judge_seen, seen, end=end))
                if run.broken is not None:
                    self._tell(run)
        self._soaked = True

    def _note_cuts(self) -> None:
        """Note which checks the time ended in the middle, or before their turn."""
        for run in () if self._is_enough() else self._runs.values():
            soaks = run.check.soak and run.broken is None
            run.cut = run.cut or not run.searched or (soaks and not self._soaked)

    def _up(self, run: CheckRun, phase: str) -> bool:
        """Whether *run* has something to do in *phase*."""
        if not run.open or self._root(run.check) is not None or self._is_enough():
            return False
        try:
            run.skip = "" if run.cases else run.check.applies(run.lab.facts) or self._never_reset(run)
        except Exception as failure:
            run.error = f"{type(failure).__name__}: {failure}"
        if run.open:
            self._asked = run
            self._watcher.check_started(self.name, phase, run.check.id)
            run.lab.on_trace = lambda trace: self._watcher.played(self.name, run.check.id, trace)
        return run.open

    @staticmethod
    def _never_reset(run: CheckRun) -> str:
        """Why *run* would judge nothing where no reset has ever succeeded; that none does is told by others."""
        facts, resets = run.lab.facts, run.lab.refused_resets
        if facts.told.get(WAS_RESET) or resets < _RESETS_TRIED or run.check.family in _JUDGE_RESETS:
            return ""
        return f"{NO_RESET}: all {resets} failed"

    def _is_enough(self) -> bool:
        most = self._settings.max_fail
        if most is None:
            return False
        verdicts = [run.finding(self._root(run.check)).verdict for run in self._runs.values()]
        return verdicts.count("fail") >= most

    async def _guarded(self, run: CheckRun, ask: Callable[[], Awaitable[None]]) -> None:
        """*ask*; a fault of the check's own is its verdict, and ends its session."""
        try:
            await ask()
        except JudgeFault as fault:
            run.error = str(fault)
        if run.error:
            await run.lab.leave()

    async def _mind_history(self, run: CheckRun) -> None:
        """Keep plays apart from now on where one has an effect on the next."""
        if run.check.id != HISTORY_INDEPENDENT or run.broken is None or run.lab.isolation != "shared":
            return
        scripts = run.finding(None).scripts
        if len(scripts) >= 2:
            before, after = scripts[0], scripts[1]
            run.lab.isolation = await isolation_for(run.lab, before, after, restartable=self._target.restartable)
        else:
            run.lab.isolation = "session"
        for other in self._runs.values():
            if other.check.id not in self._told:
                other.forget()

    async def _look_after(self, lab: TargetLab) -> None:
        """See whether the target is still there when the time is over."""
        if lab.facts.told.get(SHUT_DOWN):
            return
        slowest = lab.coverage.slowest
        if lab.unanswered >= max(_HUNG_AFTER, _HUNG_TIMES * slowest):
            self._lost = f"{self.name} hangs: it owed an answer when the time was over"
        elif lab.lost_connection:
            with trio.move_on_after(_LAST_LOOK) as scope:
                await lab.bring_back()
            if scope.cancelled_caught:
                self._lost = f"{self.name} did not come back after its connection was lost"

    # What came of it

    def _tell(self, run: CheckRun) -> None:
        finding = run.finding(self._root(run.check))
        if self._counts(run, finding) and self._told.get(finding.check) != finding:
            self._told[finding.check] = finding
            self._watcher.found(finding)

    @staticmethod
    def _counts(run: CheckRun, finding: Finding) -> bool:
        """Whether a check that nobody selected has something to say after all."""
        return run.selected or finding.verdict in ("fail", "warn", "known", "error")

    def outcome(self, ended: str = "") -> TargetOutcome:
        """The target's outcome. *ended* is why what has no result has none, if the run did not end by itself."""
        reason = ended or ("the target was lost" if self._lost else "")
        if not reason and self._is_enough():
            reason = f"the run ended after {self._settings.max_fail} failures"
        findings: list[Finding] = []
        for run in self._runs.values():
            if reason and run.open and not run.cases:
                run.skip = reason
            self._tell(run)
            finding = run.finding(self._root(run.check))
            if self._counts(run, finding):
                findings.append(finding)
        lab = self._lab
        outcome = attrs.evolve(
            self._about,
            address=self._target.address or self._about.address,
            findings=tuple(findings),
            coverage=self._about.coverage if lab is None else lab.coverage,
            seconds=self._seconds,
            lost=self._placeless(self._lost),
            last_script=lab.last_script if lab is not None and self._lost else None,
            stderr=tuple(map(self._placeless, self._target.stderr)),
        )
        self._watcher.target_closed(outcome)
        return outcome

    def _placeless(self, text: str) -> str:
        return placeless(text) if self._target.kind == "factory" else text


def _share(run: CheckRun) -> float:
    """How much of the search *run* should have: more if its cases have more steps, as its first had."""
    return 1 + run.steps / _STEPS_A_SHARE
