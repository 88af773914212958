"""One check on one target: what its judge said of every case, and the finding that this comes to.

What breaks a must counts in full. Beside it are kept, apart and without shrinking them: faults known of the server's
package, evidence that weighs less than its check, and notes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import attrs
import trio

from rlmesh_trio.conformance.blob import contract_digest
from rlmesh_trio.conformance.cases import ops_in, scripts_in
from rlmesh_trio.conformance.lab import SeenLab, TargetLab, TargetLost
from rlmesh_trio.conformance.moot import moot_ops
from rlmesh_trio.conformance.placeless import placeless_evidence
from rlmesh_trio.conformance.registry import Check, Lab
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.search import Broken, Search, tries_for
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.trimming import reseeded, trimmed
from rlmesh_trio.conformance.verdicts import Evidence, Finding, Severity, VerdictName
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.errors import SessionError

__all__ = ("CheckRun", "JudgeFault", "place_of")

_KnownFault = Callable[[str, str], str | None]
"""Why a failure of this check with this signature is the server package's own, and known; ``None`` when it is not."""

_RANKS: dict[Severity, int] = {"note": 0, "should": 1, "must": 2}
# What of the time for shrinking is spent on what does not count: a fault that is known, a difference that is told.
_QUIET_SHARE = 0.1
_CONFIRMING_TRIES = 3
_FLICKERING_TRIES = 7
_MOST_CONFIRMING_TRIES = 20


class JudgeFault(Exception):
    """A check's own code failed: its judge, its cases or its predicate."""


@attrs.define
class CheckRun:
    """The state of *check*: ``skip`` and ``error`` are reasons, ``broken`` the failure, ``cases`` those that were over.

    ``selected`` is false where the check is run only because others rest on it. ``forgives_mild`` says, when asked,
    whether what weighs less than the check is explained by a check before. ``stale`` says that something was found
    which has to be looked for again. ``searched`` is set once a search came to its end, ``cut`` where the time ended
    something.
    """

    check: Check
    target: str
    lab: TargetLab
    settings: Settings
    watcher: Watcher
    known_fault: _KnownFault
    selected: bool = True
    forgives_mild: Callable[[], bool] = lambda: False
    stale: bool = False
    searched: bool = False
    cut: bool = False
    skip: str = ""
    error: str = ""
    cases: int = 0
    steps: int = 0
    seconds: float = 0.0
    broken: Broken | None = None
    mild: Broken | None = None
    known: Broken | None = None
    known_reason: str = ""
    note: Broken | None = None
    runs: int = 0
    tries: int = 0
    shrink_seconds: float = 0.0
    moot: tuple[tuple[int, int], ...] = ()
    _counts_mild: bool = False

    @property
    def is_mild(self) -> bool:
        """Whether all that was found weighs less than the check."""
        shown = self.broken or self.mild or self.known
        return shown is not None and shown.evidence.severity is not None

    @property
    def open(self) -> bool:
        """Whether there is something to be asked still."""
        return not (self.skip or self.error)

    async def attempt(self, case: Any, lab: Lab | None = None) -> Evidence | None:
        """Ask the judge about *case*, once; what it says counts in full where something is returned.

        Raises :exc:`JudgeFault` when the judge fails.
        """
        steps, started = self.lab.coverage.steps, trio.current_time()
        try:
            evidence = await self._judge(lab or self.lab, case)
        except TargetLost:
            raise
        except Exception as failure:
            raise JudgeFault(place_of(failure)) from failure
        else:
            if self.check.needs_own_session:
                await self.lab.leave()
        finally:
            self.steps += self.lab.coverage.steps - steps
            self.seconds += trio.current_time() - started
        return None if evidence is None else self._weighed(case, evidence)

    async def _judge(self, lab: Lab, case: Any) -> Evidence | None:
        """Ask the judge, and once more if it found no server and there is one after all."""
        try:
            return await self.check.judge(lab, case)
        except SessionError:
            await self.lab.bring_back()
            return await self.check.judge(lab, case)

    def _weighed(self, case: Any, evidence: Evidence) -> Evidence | None:
        """Keep *evidence*, unless it counts in full."""
        severity = evidence.severity or self.check.severity
        if self.lab.facts.factory:
            evidence = placeless_evidence(evidence)
        if severity == "note":
            self._note(case, evidence)
            return None
        reason = None if self.settings.strict_server else self.known_fault(self.check.id, evidence.signature)
        if reason is not None:
            # What it usually means was said of an env.
            blamed = evidence if evidence.blame == "server" else attrs.evolve(evidence, blame="server", meaning="")
            self.known, self.known_reason = _smaller(self.known, case, blamed), reason
            return None
        if _RANKS[severity] < _RANKS[self.check.severity] and not self._counts_mild:
            self.mild = _smaller(self.mild, case, evidence)
            return None
        return evidence

    def _note(self, case: Any, evidence: Evidence) -> None:
        """Of two runs that differ keep the smallest case, infos behind all else; of other notes the last."""
        kept = self.note if self.check.compares else None
        if kept is None or (kept.evidence.severity is None) == (evidence.severity is None):
            self.note = _smaller(kept, case, evidence)
        elif evidence.severity is None:
            self.note = _smaller(None, case, evidence)

    def forget(self) -> None:
        """Take back what was found: plays were not kept apart as they should have been."""
        self.stale = self.stale or self.broken is not None or self.mild is not None
        self.broken = self.mild = None
        self.searched = False

    async def try_example(self) -> None:
        """Ask about the check's fixed case, if it has one."""
        if self.check.example is None:
            return
        case = self._made(self.check.example)
        evidence = await self.attempt(case)
        self.cases += 1
        self.stale = False
        if evidence is not None:
            self.broken = Broken(case, evidence, ops_in(case))
            self.watcher.broke(self.target, self.check.id, evidence, self.broken.ops, shrinking=False)

    async def search(self, *, deadline: float, end: float, shrink_limit: float) -> None:
        """Look for a broken case until *deadline*, and make it small until *end*."""
        await self._search_and_finish(deadline=deadline, end=end, shrink_limit=shrink_limit)
        self.searched = True

    async def _search_and_finish(self, *, deadline: float, end: float, shrink_limit: float) -> None:
        await self._search("", deadline=deadline, end=end, shrink_limit=shrink_limit)
        if self.broken is None and self.mild is not None and not self.forgives_mild():
            self._counts_mild = True
            mild = self.mild
            await self._search(":mild", deadline=deadline, end=end, shrink_limit=shrink_limit)
            if self.broken is None or self.broken.ops > mild.ops:
                self.broken = mild
            self.mild = None
        if self.broken is not None:
            await self._finish(end)
            return
        quiet = self.known or (self.note if self.check.compares else None)
        if quiet is not None and isinstance(quiet.case, Script) and self.settings.shrink:
            with self._until(min(end, trio.current_time() + shrink_limit * _QUIET_SHARE)):
                await trimmed(quiet.case, quiet.evidence, self._breaks_quietly)

    async def _search(self, kind: str, *, deadline: float, end: float, shrink_limit: float) -> None:
        search = Search(
            name=self._name + kind,
            settings=self.settings,
            attempt=self.attempt,
            climbed=self.lab.take_climbed,
            on_broken=self._tell_broken,
        )
        examples = self.settings.examples_each
        cases = self._made(self.check.cases)
        try:
            await search.run(cases, examples=examples, deadline=deadline, end=end, shrink_limit=shrink_limit)
        except (TargetLost, JudgeFault):
            raise
        except Exception as failure:
            raise JudgeFault(place_of(failure)) from failure
        finally:
            self.cases += search.examples
            found = search.best
            if found is not None and (self.broken is None or found.ops <= self.broken.ops):
                self.broken = found
            self.cut = self.cut or search.cut
            if search.shrinking_since is not None:
                self.shrink_seconds += trio.current_time() - search.shrinking_since

    @property
    def _name(self) -> str:
        """What this check's cases go by: those of other spaces, or another width, are no use."""
        return f"{self.check.id}:{contract_digest(self.lab.facts.contract)}"

    def _tell_broken(self, case: Any, evidence: Evidence, shrinking: bool) -> None:
        self.watcher.broke(self.target, self.check.id, evidence, ops_in(case), shrinking=shrinking)

    async def judge_seen(self, lab: SeenLab, *, end: float) -> None:
        """Ask about a script that was played already, and make it small where it breaks the check."""
        script = lab.seen.script
        evidence = await self.attempt(script, cast("Lab", lab))
        self.cases += 1
        if evidence is None:
            return
        self.broken = Broken(script, evidence, ops_in(script))
        self._tell_broken(script, evidence, shrinking=False)
        await self._finish(end)

    async def _finish(self, end: float) -> None:
        """Trim what broke if nothing else did, and count how reliably it breaks, in a session of its own."""
        broken = self.broken
        assert broken is not None
        started = trio.current_time()
        trims = self.settings.shrink and broken.shrunk_from == broken.ops and isinstance(broken.case, Script)
        if trims:
            with self._until(end):
                broken.case, broken.evidence = await trimmed(broken.case, broken.evidence, self._breaks)
            self.shrink_seconds += trio.current_time() - started
        if self.settings.shrink and isinstance(broken.case, Script) and broken.case.ops:
            with self._until(end):
                broken.case, broken.evidence = await reseeded(broken.case, broken.evidence, self._breaks)
        self.runs = self.tries = 0
        with self._until(end):
            await self.lab.leave()
            await self._confirm(broken)
        if not self.runs:
            self.runs, self.tries = 1, self.tries + 1
        if self.settings.shrink and isinstance(broken.case, Script):
            seed = self.settings.seed_of(f"moot:{self.check.id}")
            with self._until(end):
                self.moot = await moot_ops(broken.case, self._breaks, self.lab.facts, seed=seed)

    @contextmanager
    def _until(self, end: float) -> Generator[None]:
        """A block that the time ends, and then says so."""
        with trio.move_on_at(end) as scope:
            yield
        self.cut = self.cut or scope.cancelled_caught

    async def _breaks(self, case: Any) -> Evidence | None:
        for _ in range(tries_for(1.0)):
            evidence = await self.attempt(case)
            if evidence is not None:
                return evidence
        return None

    async def _breaks_quietly(self, case: Any) -> Evidence | None:
        """As :meth:`_breaks`, for what does not count: the smallest is kept as :attr:`known` or :attr:`note`."""
        await self.attempt(case)
        kept = [quiet for quiet in (self.known, self.note) if quiet is not None and quiet.case is case]
        return kept[0].evidence if kept else None

    async def _confirm(self, broken: Broken) -> None:
        while self.tries < _MOST_CONFIRMING_TRIES:
            evidence = await self.attempt(broken.case)
            self.tries += 1
            if evidence is not None:
                self.runs += 1
                broken.evidence = evidence
            enough = _CONFIRMING_TRIES if self.runs == self.tries else _FLICKERING_TRIES
            if self.runs and self.tries >= enough:
                return

    def _made(self, make: Callable[..., Any]) -> Any:
        try:
            return make(self.lab.facts)
        except Exception as failure:
            raise JudgeFault(place_of(failure)) from failure

    def finding(self, blocked_by: str | None) -> Finding:
        """What all this comes to; *blocked_by* is the id of the check that explains it."""
        verdict, reason, shown = self._verdict(blocked_by)
        judged = verdict not in ("skip", "blocked", "error")
        found = Finding(
            self.check.id,
            self.check.severity,
            verdict,
            self.target,
            reason,
            examples=self.cases,
            steps=self.steps,
            seconds=self.seconds,
            cut=judged and self.cut,
        )
        if shown is None:
            return found
        failed = verdict in ("fail", "warn")
        return attrs.evolve(
            found,
            evidence=shown.evidence,
            scripts=scripts_in(shown.case),
            case=shown.case,
            runs=self.runs if failed else 1,
            tries=self.tries if failed else 1,
            shrunk_from=shown.shrunk_from,
            shrink_seconds=self.shrink_seconds if failed else 0.0,
            moot=self.moot if failed else (),
        )

    def _verdict(self, blocked_by: str | None) -> tuple[VerdictName, str, Broken | None]:
        if self.error:
            return "error", self.error, None
        if self.skip:
            return "skip", self.skip, None
        if blocked_by is not None:
            return "blocked", blocked_by, None
        shown = self.broken or (None if self.forgives_mild() else self.mild)
        if shown is not None:
            severity = shown.evidence.severity or self.check.severity
            return ("fail" if severity == "must" else "warn"), "", shown
        if self.known is not None:
            return "known", self.known_reason, self.known
        if self.note is not None:
            return "note", "", self.note
        if not self.cases:
            return "skip", "the time was over before the first case was: --time gives more", None
        return "pass", "", None


def _smaller(best: Broken | None, case: Any, evidence: Evidence) -> Broken:
    """The smaller of *best* and *case*, the older one where they are alike."""
    ops = ops_in(case)
    return best if best is not None and best.ops <= ops else Broken(case, evidence, best.shrunk_from if best else ops)


def place_of(failure: BaseException) -> str:
    """What *failure* is and where it comes from, in one line."""
    text = f"{type(failure).__name__}: {failure}".strip().partition("\n")[0]
    frame = failure.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return text if frame is None else f"{text} ({frame.tb_frame.f_globals.get('__name__', '?')}:{frame.tb_lineno})"
