"""The family ``contract``: what a target declares, asked for in handshakes of our own; nothing has to be stepped."""

import json
from collections.abc import Mapping
from textwrap import shorten

import betterproto
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.handshakes import Shake, flaw_of, shaken
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode, autoreset_name
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.spaces import contract_to_wire, space_from_wire
from rlmesh_trio.spaces.convert import key_path
from rlmesh_trio.spaces.leaf_values import leaf_name
from rlmesh_trio.transport.handshake import GENERATION
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import decode, encode

__all__ = (
    "contract_handshake",
    "contract_stable",
    "refuses_foreign",
    "spaces_wellformed",
    "vector_facts",
    "zero_rank",
)

_SESSION = 'edition 2026.06, "Session Establishment"'
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
_FOREIGN = ("rlmesh-wire-v2", "rlmesh-wire-v0", "rlmesh-wire-v1.1", "rlmesh-wire-v11", "rlmesh", "")
_LONGEST = 120


def _served(facts: Facts) -> str | None:
    return None if facts.served else "needs a server: this env runs in the kit's own process"


def _readable(facts: Facts) -> str | None:
    contract = facts.contract
    spaces = contract.observation_space, contract.action_space
    return "needs spaces that can be read" if None in spaces else None


def _nothing(_: Facts) -> tuple[()]:
    return ()


def _no_case(_: Facts) -> SearchStrategy[tuple[()]]:
    return st.just(())


async def _declared(lab: Lab) -> core.EnvContract | None:
    """The contract as the target tells it in a handshake, or as it is known where there is no server."""
    if not lab.facts.served:
        return decode(core.EnvContract, contract_to_wire(lab.facts.contract), what="contract")
    async with lab.raw_stream() as stream:
        return (await shaken(stream)).contract


@check(
    "contract.handshake",
    severity="must",
    requirement="A handshake of the same generation is answered with compatible, workflow editions and a contract.",
    rule=_SESSION,
    cases=_no_case,
    example=_nothing,
    applies=_served,
)
async def contract_handshake(lab: Lab, case: tuple[()]) -> Evidence | None:
    """Shake hands while a client, this one, is there."""
    del case
    async with lab.raw_stream() as stream:
        shake = await shaken(stream)
    fault = flaw_of(shake)
    if fault is None:
        return None
    meaning = "Clients find no way to talk to this server, or not while another one is connected."
    return Evidence((fault, *shake.lines(f"answer to {GENERATION!r}")), fault, meaning, blame="server")


def _generations(_: Facts) -> SearchStrategy[str]:
    made_up = st.text(max_size=12).filter(lambda text: text.strip() != GENERATION)
    return st.one_of(st.sampled_from(_FOREIGN), made_up)


@check(
    "contract.refuses-foreign",
    severity="must",
    requirement="Another generation is answered with compatible=false and a message, and the server lives on.",
    rule=_SESSION,
    cases=_generations,
    example=lambda _: _FOREIGN[0],
    applies=_served,
    after=("contract.handshake",),
)
async def refuses_foreign(lab: Lab, generation: str) -> Evidence | None:
    """Come as a peer of *generation*, and then as one of the right one."""
    async with lab.raw_stream() as stream:
        foreign = await shaken(stream, generation)
        after = await shaken(stream)
    fault = _welcome(foreign)
    if fault is None and flaw_of(after) is not None:
        fault = "the handshake after it fails"
    if fault is None:
        return None
    lines = (fault, *foreign.lines(f"answer to {generation!r}"), *after.lines(f"then, to {GENERATION!r}"))
    return Evidence(lines, fault, "Peers of another protocol go on, and fail later and less clearly.", blame="server")


def _welcome(foreign: Shake) -> str | None:
    """What is wrong with the refusal of a foreign peer."""
    if foreign.reply is None:
        return "another generation is not answered"
    if foreign.reply.base.compatible:
        return "another generation is called compatible"
    return None if foreign.reply.base.error_message else "the refusal gives no reason"


@check(
    "contract.spaces-wellformed",
    severity="must",
    requirement="Both spaces are declared, and each of their leaves can be: known dtype, low <= high, no NaN, n >= 1.",
    rule=f"{_SESSION}; gymnasium.spaces",
    cases=_no_case,
    example=_nothing,
    after=("contract.handshake",),
)
async def spaces_wellformed(lab: Lab, case: tuple[()]) -> Evidence | None:
    """Read the spaces as a client has to."""
    del case
    contract = await _declared(lab)
    if contract is None:
        return None
    for role in ("observation_space", "action_space"):
        if not contract.spec.is_set(role):
            return _malformed(role, "$", "is not declared")
        spec: spaces_pb.SpaceSpec = getattr(contract.spec, role)
        try:
            space_from_wire(encode(spec))
        except SpaceError as wrong:
            found = _spec_at(spec, wrong.path)
            told = () if found is None else (f"declared: {shorten(repr(found), _LONGEST)}",)
            return _malformed(role, wrong.path, wrong.why, *told)
    return None


def _malformed(role: str, path: str, why: str, *lines: str) -> Evidence:
    meaning = "No client can make sense of such a space; values for it cannot be read, written or checked."
    return Evidence((f"{role} at {path}: {why}", *lines), f"{role} {path} is malformed", meaning)


def _spec_at(spec: spaces_pb.SpaceSpec, wanted: str, path: str = "$") -> spaces_pb.SpaceSpec | None:
    """The part of *spec*, which stands at *path*, that stands at *wanted*."""
    if path == wanted:
        return spec
    kind, _ = betterproto.which_one_of(spec, "spec")
    children: list[tuple[str, spaces_pb.SpaceSpec]] = []
    if kind == "dict":
        children = [(key_path(path, key), child) for key, child in zip(spec.dict.keys, spec.dict.spaces, strict=False)]
    elif kind == "tuple":
        children = [(f"{path}[{number}]", child) for number, child in enumerate(spec.tuple.spaces)]
    found = (_spec_at(child, wanted, own) for own, child in children if wanted.startswith(own))
    return next((each for each in found if each is not None), None)


@check(
    "contract.zero-rank",
    severity="should",
    requirement="No leaf is a Box without dimensions: rlmesh's own client and server refuse it.",
    rule="gymnasium allows spaces.Box(low, high, ()); rlmesh 0.1.0 takes a Box of rank 1 and more",
    cases=_no_case,
    example=_nothing,
    applies=_readable,
)
async def zero_rank(lab: Lab, case: tuple[()]) -> Evidence | None:
    """Look for leaves of rank 0."""
    del case
    contract = lab.facts.contract
    declared = (("obs", contract.observation_space), ("action", contract.action_space))
    leaves = [(role, leaf) for role, space in declared for leaf in (space.leaves if space is not None else ())]
    found = [leaf_name(role, leaf.path) for role, leaf in leaves if leaf.kind == "box" and not leaf.shape]
    if not found:
        return None
    lines = tuple([f"{name} is a Box of shape (): make it one of shape (1,)" for name in found])
    return Evidence(lines, f"{found[0]} has rank 0", "An rlmesh client does not connect to an env with such a space.")


@check(
    "contract.vector-facts",
    severity="must",
    requirement="num_envs is 1 or more, and autoreset_mode is NEXT_STEP, SAME_STEP or DISABLED.",
    rule='edition 2026.06, "Vectorization"; gymnasium.vector.AutoresetMode',
    cases=_no_case,
    example=_nothing,
    after=("contract.handshake",),
)
async def vector_facts(lab: Lab, case: tuple[()]) -> Evidence | None:
    """Look at the two fields."""
    del case
    contract = await _declared(lab)
    if contract is None:
        return None
    lanes, mode = contract.num_envs, contract.autoreset_mode
    name = autoreset_name(mode)
    lines = (f"num_envs = {lanes}", f"autoreset_mode = {name}")
    meaning = "A client does not know how many lanes there are, or who starts the next episode of a lane that ended."
    if lanes < 1:
        return Evidence(lines, "num_envs is 0", meaning, blame="server")
    if mode in _MODES:
        return None
    severity = "should" if mode == AutoresetMode.UNSPECIFIED else None
    return Evidence(lines, f"autoreset_mode is {name}", meaning, blame="server", severity=severity)


def _some_play(facts: Facts) -> SearchStrategy[Script | tuple[()]]:
    return st.just(()) if _readable(facts) else scripts(facts, reseed=True)


@check(
    "contract.stable",
    severity="must",
    requirement="The contract is the same in every handshake, also after episodes.",
    rule=f"{_SESSION}: the contract is fixed",
    cases=_some_play,
    example=lambda facts: () if _readable(facts) else example_script(facts),
    applies=_served,
    after=("contract.handshake",),
)
async def contract_stable(lab: Lab, case: Script | tuple[()]) -> Evidence | None:
    """Shake hands twice, play, and shake hands again."""
    async with lab.raw_stream() as stream:
        shakes = [("first", await shaken(stream)), ("second", await shaken(stream))]
    traces: tuple[Trace, ...] = ()
    if isinstance(case, Script):
        traces = (await lab.play(case),)
        async with lab.raw_stream() as stream:
            shakes.append(("later", await shaken(stream)))
    meaning = "The contract depends on the state of the env; a client that comes later drives another one."
    known: Mapping[str, str] | None = None
    for title, shake in shakes:
        if shake.contract is None:
            return Evidence(tuple(shake.lines(f"{title} handshake")), "no contract", meaning, traces=traces)
        fields = _fields(shake.contract)
        known = known or fields
        changed = next((name for name, value in fields.items() if value != known[name]), None)
        if changed is not None:
            lines = (
                f"first handshake: {changed} = {shorten(known[changed], _LONGEST)}",
                f"{title} handshake: {changed} = {shorten(fields[changed], _LONGEST)}",
            )
            return Evidence(lines, f"{changed} changes", meaning, traces=traces)
    return None


def _fields(contract: core.EnvContract) -> Mapping[str, str]:
    """The fields of *contract* as texts that are equal for equal values; a server writes maps in any order."""
    spec = contract.spec
    metadata = LazyMetadata(encode(spec.metadata))
    return {
        "id": spec.id,
        "observation_space": repr(spec.observation_space),
        "action_space": repr(spec.action_space),
        "num_envs": str(contract.num_envs),
        "autoreset_mode": str(int(contract.autoreset_mode)),
        "render_mode": contract.render_mode,
        "metadata": json.dumps(dict(metadata), sort_keys=True, default=repr),
    }
