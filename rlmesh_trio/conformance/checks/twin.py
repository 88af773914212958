"""The family ``twin``: the same env in two places gives the same trace."""

import attrs

from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.differences import first_difference
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode

__all__ = ("served_equals_local",)


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
    after=("acct.once", "acct.steps-return", "acct.cause-ids-seed"),
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
