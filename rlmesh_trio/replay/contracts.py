"""Where two recordings are of different things: fields of contracts and editions, and facts about their runs. Pure.

A difference of contracts means that the same actions or seeds mean something else. The number of lanes is one only
where lanes decide what an episode is: under the seed rule ``by=lane``. Facts (machine, settings, seeds) decide nothing,
but may say why two runs differ.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.contract import EnvContract, LeafSpec, ValueSpace, autoreset_name
from rlmesh_trio.recording import Header
from rlmesh_trio.recording.headers import peer_of
from rlmesh_trio.replay.findings import FieldDifference
from rlmesh_trio.spaces import OpenText, leaf_spaces, plain_metadata
from rlmesh_trio.spaces.leaf_values import leaf_name

__all__ = ("header_differences", "header_facts")

_NOTHING: Final = "nothing"
_LONGEST: Final = 80

_Leaf = tuple[LeafSpec, gymnasium.Space[Any]]


def header_differences(recorded: Header, now: Header) -> tuple[FieldDifference, ...]:
    """The fields in which the contracts and editions of two recordings differ, those of the spaces by leaf."""
    return tuple(_differences(recorded, now))


def _differences(recorded: Header, now: Header) -> Iterator[FieldDifference]:
    a, b = recorded.contract, now.contract
    yield from _field("edition", recorded.workflow_edition, now.workflow_edition)
    yield from _field("env_id", a.env_id, b.env_id)
    yield from _field("autoreset_mode", *(autoreset_name(side.autoreset_mode) for side in (a, b)))
    yield from _field("render_mode", a.render_mode, b.render_mode)
    if "by=lane" in (recorded.seed_rule, now.seed_rule):
        yield from _field("num_envs", a.num_envs, b.num_envs)
    yield from _spaces("obs", a.observation_space, b.observation_space)
    yield from _spaces("action", a.action_space, b.action_space)
    flat = [_metadata(contract) for contract in (a, b)]
    for name in sorted({*flat[0], *flat[1]}):
        yield from _field(name, *(side.get(name, _NOTHING) for side in flat))


def _field(path: str, a: object, b: object) -> Iterator[FieldDifference]:
    if a != b:
        yield FieldDifference(path, _short(a), _short(b))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}... {len(text)} characters"


def _spaces(role: str, a: ValueSpace | None, b: ValueSpace | None) -> Iterator[FieldDifference]:
    if a is None or b is None:
        yield from _field(role, *("undeclared" if space is None else "declared" for space in (a, b)))
        return
    sides = [{leaf_name(role, spec.path): (spec, space) for spec, space in leaf_spaces(side)} for side in (a, b)]
    for name in dict.fromkeys((*sides[0], *sides[1])):
        mine, theirs = sides[0].get(name), sides[1].get(name)
        if mine is None or theirs is None:
            yield from _field(name, *(_NOTHING if leaf is None else _leaf(leaf) for leaf in (mine, theirs)))
        else:
            yield from _leaves(name, mine, theirs)
    orders = [list(side) for side in sides]
    if orders[0] != orders[1] and set(orders[0]) == set(orders[1]):
        yield from _field(f"{role} order of leaves", *(", ".join(order) for order in orders))


def _leaf(leaf: _Leaf) -> str:
    return f"{leaf[0].kind} {leaf[0].dtype} of shape {leaf[0].shape}"


def _leaves(name: str, a: _Leaf, b: _Leaf) -> Iterator[FieldDifference]:
    for field in ("kind", "dtype", "shape"):
        yield from _field(f"{name}.{field}", getattr(a[0], field), getattr(b[0], field))
    if (a[0].kind, a[0].shape) != (b[0].kind, b[0].shape):
        return
    mine, theirs = _limits(a[1]), _limits(b[1])
    for field in mine:
        yield from _first_element(f"{name}.{field}", np.asarray(mine[field]), np.asarray(theirs[field]))


def _first_element(path: str, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Iterator[FieldDifference]:
    for place in np.argwhere(np.asarray(a != b))[:1]:
        index = tuple(map(int, place))
        yield from _field(path + (f"[{', '.join(map(str, index))}]" if index else ""), a[index], b[index])


def _limits(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """What a fundamental space admits, besides its dtype and shape."""
    match space:
        case spaces.Box():
            return {"low": space.low, "high": space.high}
        case spaces.Discrete():
            return {"n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"nvec": space.nvec}
        case spaces.Text():
            charset = "any" if isinstance(space, OpenText) else "".join(sorted(space.character_set))
            return {"min_length": space.min_length, "max_length": space.max_length, "charset": charset}
        case _:
            return {}


def _metadata(contract: EnvContract) -> dict[str, object]:
    told = plain_metadata(contract.metadata)
    return dict(entry for key, value in told.items() for entry in _flat(f"metadata.{key}", value))


def _flat(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _flat(f"{path}.{key}", inner)
    else:
        yield path, value


def header_facts(header: Header) -> dict[str, str]:
    """What a header says of its run besides contract and edition, by name; nothing that is empty."""
    told: dict[str, object] = {
        "base_seed": header.base_seed,
        "seed_rule": header.seed_rule,
        "level": f"ring={header.ring}" if header.level == "ring" else header.level,
        "num_envs": header.contract.num_envs,
        "unstable_leaves": ", ".join(header.unstable_leaves),
        "ignored_infos": ", ".join(header.ignored_infos),
        "tolerance": header.tolerance,
        "env_address": header.env_address,
        **dict(_flat("settings", header.settings)),
        **dict(_flat("machine", header.machine)),
        **dict(_flat("env_peer", _peer(header.env_peer))),
        **dict(_flat("model_peer", _peer(header.model_peer))),
    }
    return {name: str(value) for name, value in told.items() if value not in (None, "", {}, [])}


def _peer(encoded: bytes) -> Mapping[str, Any]:
    peer = peer_of(encoded)
    return {"unreadable": encoded.hex()} if peer is None else attrs.asdict(peer)
