"""Which fields of two headers make two different things, and which facts about two runs are told."""

from typing import Any

import attrs
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.recording import Header
from rlmesh_trio.replay.contracts import header_differences, header_facts
from rlmesh_trio.replay.findings import FieldDifference
from rlmesh_trio.spaces import OpenText, contract_from_gymnasium
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.strict import encode

BOX = spaces.Box(-1, 1, (2, 3), np.float32)


def header(observation: spaces.Space[Any] = BOX, action: spaces.Space[Any] = BOX, **fields: Any) -> Header:
    own = {name: fields.pop(name) for name in ("edition", "seed_rule") if name in fields}
    told: dict[str, Any] = {"env_id": "Toy-v0", "metadata": {}, "num_envs": 1, "autoreset_mode": 3, "render_mode": ""}
    contract = contract_from_gymnasium(observation, action, **(told | fields))
    return Header(contract=contract, workflow_edition=own.pop("edition", "2026.06"), **own)


def bounded(place: tuple[int, ...], bound: float) -> spaces.Space[Any]:
    low = BOX.low.copy()
    low[place] = bound
    return spaces.Box(low, BOX.high, dtype=np.float32)


@pytest.mark.parametrize(
    ("recorded", "now", "path", "sides"),
    [
        ({}, {"edition": "2027.01"}, "edition", ("2026.06", "2027.01")),
        ({}, {"env_id": "Toy-v1"}, "env_id", ("Toy-v0", "Toy-v1")),
        ({}, {"autoreset_mode": 1}, "autoreset_mode", ("DISABLED", "NEXT_STEP")),
        ({}, {"render_mode": "rgb_array"}, "render_mode", ("", "rgb_array")),
        ({}, {"metadata": {"a": {"b": 1}}}, "metadata.a.b", ("nothing", "1")),
        ({"seed_rule": "by=lane"}, {"seed_rule": "by=lane", "num_envs": 2}, "num_envs", ("1", "2")),
        ({}, {"observation": spaces.Box(-1, 1, (2, 4), np.float32)}, "obs.shape", ("(2, 3)", "(2, 4)")),
        ({}, {"action": spaces.Box(-1, 1, (2, 3), np.float64)}, "action.dtype", ("float32", "float64")),
        ({}, {"observation": bounded((1, 2), -2)}, "obs.low[1, 2]", ("-1.0", "-2.0")),
        (
            {"action": spaces.Discrete(3)},
            {"action": spaces.Discrete(3, start=1)},
            "action.start",
            ("0", "1"),
        ),
        (
            {"action": spaces.MultiDiscrete([3, 4])},
            {"action": spaces.MultiDiscrete([3, 5])},
            "action.nvec[1]",
            ("4", "5"),
        ),
        (
            {"observation": OpenText(9)},
            {"observation": spaces.Text(9, charset="ba")},
            "obs.charset",
            ("any", "ab"),
        ),
        (
            {"action": spaces.Discrete(3)},
            {"action": spaces.MultiDiscrete([3])},
            "action.kind",
            ("discrete", "multi_discrete"),
        ),
        (
            {"observation": spaces.Dict({"a": BOX})},
            {"observation": spaces.Dict({"a": BOX, "b": spaces.Discrete(2)})},
            "obs.b",
            ("nothing", "discrete int64 of shape ()"),
        ),
        (
            {"observation": spaces.Dict([("a", BOX), ("b", BOX)], sort_keys=False)},
            {"observation": spaces.Dict([("b", BOX), ("a", BOX)], sort_keys=False)},
            "obs order of leaves",
            ("obs.a, obs.b", "obs.b, obs.a"),
        ),
    ],
)
def test_each_field_that_differs_is_told(
    recorded: dict[str, Any], now: dict[str, Any], path: str, sides: tuple[str, str]
) -> None:
    first = header_differences(header(**recorded), header(**now))[0]
    assert (first.path, (first.recorded, first.now)) == (path, sides)
    assert header_differences(header(**now), header(**now)) == ()


def test_one_field_is_all_that_is_told_of_it() -> None:
    both = header_differences(header(), header(spaces.Box(-1, 2, (2, 3), np.float32)))
    assert both == (FieldDifference("obs.high[0, 0]", "1.0", "2.0"),)


def test_lanes_do_not_count_where_they_decide_nothing_nor_do_facts() -> None:
    other = attrs.evolve(header(num_envs=4), level="full", base_seed=3, machine={"cpu": "b"})
    assert header_differences(header(), other) == ()


def test_a_space_that_is_not_declared_is_told() -> None:
    bare = attrs.evolve(header(), contract=attrs.evolve(header().contract, action_space=None))
    assert header_differences(bare, header()) == (FieldDifference("action", "undeclared", "declared"),)
    assert header_differences(bare, bare) == ()


def test_a_long_value_is_cut() -> None:
    (told,) = header_differences(header(), header(metadata={"a": "x" * 500}))
    assert len(told.now) < 100


def test_facts_are_told_by_name_and_only_those_there_are() -> None:
    peer = encode(core.PeerInfo(component="env", framework_versions={"numpy": "2.1"}))
    told = attrs.evolve(
        header(num_envs=2),
        level="ring",
        ring=3,
        base_seed=0,
        machine={"cpu": "x"},
        settings={"caps": {"steps": 5}},
        env_peer=peer,
        model_peer=b"\xff",
    )
    assert header_facts(told) == {
        "base_seed": "0",
        "seed_rule": "by=slot",
        "level": "ring=3",
        "num_envs": "2",
        "settings.caps.steps": "5",
        "machine.cpu": "x",
        "env_peer.component": "env",
        "env_peer.framework_versions.numpy": "2.1",
        "model_peer.unreadable": "ff",
    }
