"""The family ``twin``: the same env in two places gives the same trace."""

from collections.abc import Iterator

import attrs
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.differences import first_difference
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode, EnvContract, autoreset_name
from rlmesh_trio.errors import ConnectError
from rlmesh_trio.spaces import leaf_spaces
from rlmesh_trio.spaces.leaf_values import leaf_name

__all__ = ("served_equals_local", "two_servers_agree")

_RESTS_ON = ("acct.once", "acct.steps-return", "acct.cause-ids-seed")


def _has_twin(facts: Facts) -> str | None:
    if not (facts.factory and facts.local):
        return "needs a factory: module:make_env or a gymnasium id, which is served and opened here as well"
    if facts.contract.autoreset_mode == AutoresetMode.SAME_STEP:
        return "needs another autoreset mode than SAME_STEP: such an env is served, and not opened here"
    return None


@check(
    "twin.served-equals-local",
    severity="must",
    requirement="The env that is served and the same env opened here give one trace.",
    rule='edition 2026.06 "Values": what a server sends is what the env returned, as declared',
    cases=lambda facts: scripts(facts, reseed=True, unseeded=True, partial=facts.subset_step),
    example=example_script,
    applies=_has_twin,
    after=_RESTS_ON,
    compares=True,
)
async def served_equals_local(lab: Lab, script: Script) -> Evidence | None:
    """Serving adds nothing and takes nothing away."""
    # A vector env is made once, and brings its lanes.
    made = script.lanes if lab.facts.subset_step else 1
    served, local = await lab.play(script), await lab.play_local(script, width=made)
    difference = await confirmed(served, local, lambda: lab.play(script), lab.facts)
    if difference is None or first_difference(local, await lab.play_local(script, width=made), lab.facts) is not None:
        return None
    meaning = "the server changes what the env says, or the env finds something else in the server's process"
    shown = difference_evidence(difference, served, local, ("served", "here"), meaning)
    return attrs.evolve(shown, blame="server")


def _has_other(facts: Facts) -> str | None:
    other = facts.other
    if other is None:
        return "needs a target before this one: conform A B compares B with A"
    if (other.name, other.served, other.local) == (facts.name, True, False):
        return "needs another target before this one: it is the same server, which takes one client at a time"
    return None


def _scripts_for_both(facts: Facts) -> SearchStrategy[Script]:
    both = facts.subset_step and facts.other is not None and facts.other.subset_step
    return scripts(facts, reseed=True, unseeded=True, partial=both)


@check(
    "twin.two-servers-agree",
    severity="note",
    requirement="Two targets that are given the same script give one trace.",
    rule='edition 2026.06 "Values": what a server sends is what the env returned, as declared, whoever serves it',
    cases=_scripts_for_both,
    example=example_script,
    applies=_has_other,
    after=_RESTS_ON,
    compares=True,
)
async def two_servers_agree(lab: Lab, script: Script) -> Evidence | None:
    """Play it on both, the second once more, and tell where they part: versions, languages, machines."""
    facts = lab.facts
    assert facts.other is not None
    labels = _labels(facts.name, facts.other.name)
    if (unlike := _contracts_differ(facts.contract, facts.other.contract, labels)) is not None:
        return unlike
    try:
        theirs = await lab.play_other(script)
        ours = await lab.play(script)
        difference = await confirmed(ours, theirs, lambda: lab.play(script), facts)
        if difference is None or first_difference(theirs, await lab.play_other(script), facts) is not None:
            return None
    except ConnectError as gone:
        return Evidence((str(gone),), "the first target is gone", "There is nothing to compare with any more.")
    meaning = "They serve different envs or versions, or one of the servers changes what its env says."
    told = difference_evidence(difference, ours, theirs, labels, meaning)
    return attrs.evolve(told, severity="note" if difference.info_only else None)


def _labels(here: str, other: str) -> tuple[str, str]:
    return ("here", "the first") if here == other else (here, other)


def _contracts_differ(here: EnvContract, other: EnvContract, labels: tuple[str, str]) -> Evidence | None:
    """What keeps one script from meaning the same on both."""
    sides = zip(_declared(here), _declared(other), strict=False)
    for (name, mine), (other_name, theirs) in sides:
        if (name, mine) != (other_name, theirs):
            told = zip(labels, (f"{name} = {mine}", f"{other_name} = {theirs}"), strict=True)
            width = max(map(len, labels))
            lines = tuple([f"{label:<{width}}  {side}" for label, side in told])
            return Evidence(lines, f"{name} differs", "Nothing was played: no script means the same on both.")
    return None


def _declared(contract: EnvContract) -> Iterator[tuple[str, str]]:
    """What scripts and their answers rest on, in words."""
    yield "num_envs", str(contract.num_envs)
    yield "autoreset_mode", autoreset_name(contract.autoreset_mode)
    for role, space in (("action", contract.action_space), ("obs", contract.observation_space)):
        for spec, leaf in leaf_spaces(space) if space is not None else ():
            yield leaf_name(role, spec.path), f"{leaf}, sent as {spec.dtype}"
        yield role, "no more leaves"
