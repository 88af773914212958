"""Runs of one check each on the planted env that fails it: made once a process, for whoever looks at what was found."""

import functools
from typing import Any, cast

import attrs
import trio

from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, Target
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.endpoints.loading import load_object
from tests.conformance.planted import acct as accounts
from tests.conformance.planted.acct import BadAccounts
from tests.conformance.planted.autoreset import SameStep, SameStepTarget
from tests.conformance.planted.twin import ServedTarget as SpoiltTarget
from tests.conformance.planted.twin import rounded

__all__ = ("FAULTS", "LEFT_LARGE", "OF_SERVERS", "PLANTED", "failure", "found", "run_of", "settings", "target_of")

PLANTED = "tests.conformance.planted"
FAULTS = [
    ("seed.reset-repeatable", "seed:UnseededStart", 1),
    ("seed.trace-repeatable", "seed:UnseededPush", 1),
    ("seed.trace-repeatable", "seed:UnseededPush", 2),
    ("seed.followup-repeatable", "seed:UnseededFollowup", 1),
    ("seed.history-independent", "seed:Smoothing", 1),
    ("seed.timing-independent", "seed:Impatient", 1),
    ("lanes.solo-equal", "plain:Windy", 2),
    ("lanes.solo-equal", "plain:windy_vector", 1),
    ("lanes.seed-distinct", "plain:copied", 2),
    ("lanes.seed-distinct", "plain:copied_vector", 1),
    ("lanes.permute", "plain:numbered", 2),
    ("lanes.permute", "plain:numbered_vector", 1),
    ("lanes.width-equal", "plain:crowded", 2),
    ("lanes.partial-reset-local", "plain:contagious", 3),
    ("space.obs-contained", "plain:Outside", 1),
    ("space.obs-no-nan", "plain:Nowhere", 1),
    ("space.member-accepted", "plain:Refusing", 1),
    ("value.reward-finite", "plain:Priceless", 1),
    ("value.mask-honest", "value:AllowsNothing", 1),
    ("autoreset.next.action-ignored", "autoreset:Obedient", 1),
    ("autoreset.next.quiet", "autoreset:Paying", 1),
    ("autoreset.next.quiet", "autoreset:StillOver", 1),
    ("autoreset.next.terminal-kept", "autoreset:Ahead", 1),
    ("autoreset.next.not-stuck", "autoreset:Stuck", 1),
    ("autoreset.same.final-obs", "autoreset:NoMask", 1),
    ("autoreset.same.final-obs", "autoreset:ShortFinal", 1),
    ("autoreset.same.final-lane", "autoreset:Mixed", 1),
    ("autoreset.same.info", "autoreset:InfoOfAll", 1),
    ("life.time-limit-exact", "life:TooLong", 1),
    ("life.time-limit-exact", "life:TooShort", 2),
    ("life.limit-is-truncation", "life:EndOfTimeIsDone", 2),
    ("life.options-effective", "life:LevelIgnored", 1),
    ("life.options-effective", "life:LevelByChance", 1),
    ("life.options-unknown", "life:Strict", 1),
    ("py.reset-pair", "py:InfosAsList", 1),
    ("py.step-five", "py:OneFlag", 1),
    ("py.flag-types", "plain:Flagged", 1),
    ("py.reward-type", "py:RewardAsArray", 1),
    ("py.obs-dtype", "py:ObservationInDoubles", 1),
    ("py.info-plain", "py:ObjectInInfos", 1),
    ("py.info-plain", "py:OddKey", 1),
    ("py.no-alias", "plain:Aliased", 1),
    ("py.close-twice", "py:ClosesOnce", 1),
]
"""A check, the env that fails it, and on how many lanes."""
LEFT_LARGE = (
    "lanes.solo-equal",
    "autoreset.next.action-ignored",
    "autoreset.next.not-stuck",
    "autoreset.same.final-lane",
    "life.limit-is-truncation",
)
"""Checks whose cases take long to become small: here they need not, tests of their families see to some of that."""
TELLERS = {"value.mask-honest": ("space.member-accepted",)}
OF_SERVERS = [("acct.once", BadAccounts(accounts.twice)), ("twin.served-equals-local", SpoiltTarget(rounded))]


def settings(lanes: int = 1, *, shrink: bool = True) -> Settings:
    """Settings by which the number of examples ends everything, and the time nothing."""
    return Settings(seed=4, time=300.0, examples=3, shrink=shrink, shrink_time=60.0, lanes=lanes)


def target_of(source: str, lanes: int) -> LocalTarget:
    """The target of an env of this process."""
    env = load_object(source)
    restarts = isinstance(env, type) and issubclass(cast("type[Any]", env), SameStep)
    return (SameStepTarget if restarts else LocalTarget)(env, lanes=lanes, where="inline")


def run_of(check: str, target: Target, lanes: int) -> Outcome:
    """A run of one check alone, but for what tells it that it applies."""
    known = {id: load_checks()[id] for id in (*TELLERS.get(check, ()), check)}
    chosen = settings(lanes, shrink=check not in LEFT_LARGE)
    return trio.run(lambda: run_checks([target], chosen, checks=known))


@functools.cache
def found(check: str, source: str, lanes: int) -> Outcome:
    """A run of one check on an env of this process, told as if a process of its own had served it."""
    outcome = run_of(check, target_of(source, lanes), lanes)
    told = [attrs.evolve(finding, target=source) for finding in outcome.targets[0].findings]
    return attrs.evolve(
        outcome,
        targets=(attrs.evolve(outcome.targets[0], name=source, kind="factory", findings=tuple(told)),),
    )


def failure(outcome: Outcome, check: str) -> Finding:
    (finding,) = [one for one in outcome.findings if one.check == check]
    assert finding.verdict in ("fail", "warn"), finding
    return finding
