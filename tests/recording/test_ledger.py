"""Which rows are an episode's, how it ends, and what its root covers."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlmesh_trio.recording import Episode, Header, canon, open_recording, verify
from tests.recording.plays import Op, contract_of, episodes, recorded

SEEN = np.zeros(2, np.float32)
OTHER = np.ones(2, np.float32)


def reset(*ordinals: int, lanes: tuple[int, ...] = (0,), seen: Any = SEEN, **fields: Any) -> Op:
    return Op(lanes, (seen,) * len(lanes), ordinals, fields.pop("seeds", (7,) * len(lanes)), True, **fields)


def step(*flags: int, lanes: tuple[int, ...] = (0,), **fields: Any) -> Op:
    rows = fields.pop("rows", (SEEN,) * len(lanes))
    given: dict[str, Any] = {"actions": (1,) * len(lanes), "rewards": (0.5,) * len(lanes), "flags": flags}
    return Op(lanes, rows, **(given | fields))


def refused(code: str = "INVALID_ACTION", **fields: Any) -> Op:
    return step(0, rows=(), refused=code, **fields)


def played(tmp_path: Path, *ops: Op, lanes: int = 1, **fields: Any) -> list[Episode]:
    recorded(tmp_path / "run", ops, Header(contract=contract_of(lanes), **fields), "full")
    assert verify(tmp_path / "run").problems == ()
    canon(tmp_path / "run", tmp_path / "canon")
    with open_recording(tmp_path / "run") as recording, open_recording(tmp_path / "canon") as other:
        assert other.footer is not None
        assert recording.footer is not None
        assert other.footer.run_root == recording.footer.run_root
        return recording.episodes()


def ends(episodes: list[Episode]) -> list[tuple[int, int, str, int]]:
    return [(each.ordinal, each.attempt, each.end, each.steps) for each in episodes]


def test_an_end_is_what_the_flags_say_or_what_came_in_between(tmp_path: Path) -> None:
    told = played(
        tmp_path,
        *(reset(1), step(0), step(1)),
        *(reset(2), step(2)),
        *(reset(3), step(3)),
        *(reset(4), step(0), attrs.evolve(step(0), capped=True)),
        *(reset(5), step(0)),
        *(reset(6), step(0), refused("CRASHED")),
        *(reset(7), refused(), step(0)),
    )
    assert ends(told) == [
        (1, 0, "terminated", 2),
        (2, 0, "truncated", 1),
        (3, 0, "terminated", 1),
        (4, 0, "capped", 2),
        (5, 0, "interrupted", 1),
        (6, 0, "error", 1),
        (7, 0, "interrupted", 1),
    ]
    assert told[5].error_code == "CRASHED"


def test_steps_past_an_end_and_of_episodes_that_do_not_count_are_nobodys(tmp_path: Path) -> None:
    told = played(tmp_path, step(0), reset(1), step(1), step(0), step(0), reset(0), step(1), reset(2))
    assert ends(told) == [(1, 0, "terminated", 1), (2, 0, "interrupted", 0)]


def test_a_lane_that_restarts_on_the_next_step_ignores_that_action(tmp_path: Path) -> None:
    def roots(action: int) -> list[bytes]:
        roll = step(0, begins=(2,), actions=(action,), rewards=(0.0,))
        return [each.root for each in played(tmp_path, reset(1), step(1), roll, step(0), step(1))]

    assert roots(0) == roots(2)
    assert len(set(roots(0))) == 2


def test_a_lane_that_restarts_in_the_same_step_gives_its_observation_to_the_next(tmp_path: Path) -> None:
    def roots(seen: Any) -> list[bytes]:
        told = played(tmp_path, reset(1), step(0), step(1, begins=(2,), rows=(seen,)), step(2))
        assert ends(told) == [(1, 0, "terminated", 2), (2, 0, "truncated", 1)]
        return [each.root for each in told]

    (first, second), (first_too, other) = roots(SEEN), roots(OTHER)
    assert first == first_too
    assert second != other


def test_a_new_attempt_ends_the_one_before_wherever_that_is(tmp_path: Path) -> None:
    told = played(
        tmp_path,
        reset(1, lanes=(0,)),
        reset(2, lanes=(1,)),
        step(0, lanes=(0,)),
        refused("CRASHED", lanes=(0,)),
        step(1, lanes=(1,)),
        reset(1, lanes=(1,)),
        step(1, lanes=(1,)),
        lanes=2,
    )
    assert ends(told) == [(2, 0, "terminated", 1), (1, 0, "error", 1), (1, 1, "terminated", 1)]
    with open_recording(tmp_path / "run") as recording:
        assert [(row.lane, row.tick) for row in recording.rows(1)] == [(1, 6), (1, 7)]


BASE = [reset(1, infos={"a": 1}), step(0), step(0), step(1)]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"seeds": (8,)}),
        (0, {"seeds": ()}),
        (0, {"rows": (OTHER,)}),
        (0, {"infos": {"a": 2}}),
        (1, {"rows": (OTHER,)}),
        (1, {"actions": (2,)}),
        (1, {"rewards": (0.25,)}),
        (1, {"rewards": (-0.0,)}),
        (1, {"infos": {"b": 1}}),
        (3, {"flags": (2,)}),
        (3, {"flags": (3,)}),
        (3, {"flags": (0,)}),
        (2, {"rows": (), "refused": "BUSY"}),
    ],
)
def test_a_root_covers_every_value(place: int, change: dict[str, Any], tmp_path: Path) -> None:
    changed = [attrs.evolve(op, **change) if number == place else op for number, op in enumerate(BASE)]
    (was,), (now,) = played(tmp_path, *BASE), played(tmp_path, *changed)
    assert was.root != now.root


def test_no_root_covers_lanes_ids_or_what_the_clock_decides(tmp_path: Path) -> None:
    (was,) = played(tmp_path, *BASE)
    moved = [attrs.evolve(op, lanes=(2,)) for op in BASE]
    noisy = [
        attrs.evolve(op, infos={**(op.infos or {}), "timestamp": 9.0, "episode_id": "x", "noise": 3}) for op in moved
    ]
    unanswered = step(0, lanes=(2,), rows=())
    (now,) = played(tmp_path, *noisy[:2], unanswered, *noisy[2:], lanes=3, ignored_infos=("noise",))
    assert now.root == was.root
    assert now.lane == 2


def test_leaves_that_are_not_deterministic_are_in_no_root(tmp_path: Path) -> None:
    changed = [attrs.evolve(op, rows=(OTHER,)) for op in BASE]
    (was,) = played(tmp_path, *BASE, unstable_leaves=("$",))
    (now,) = played(tmp_path, *changed, unstable_leaves=("$",))
    assert was.root == now.root


def test_an_episode_is_found_and_read_as_if_its_lane_were_alone(tmp_path: Path) -> None:
    ops = episodes(3, 8, 6)
    recorded(tmp_path / "a", ops, Header(contract=contract_of(3)), "full", chunk_ticks=5)
    with open_recording(tmp_path / "a") as recording:
        for ordinal in (7, 2, 8, 1):
            first = next(number for number, op in enumerate(ops) if op.begins == (ordinal,))
            own = [op for op in ops[first:] if op.lanes == ops[first].lanes][:7]
            rows = list(recording.rows(ordinal))
            assert rows[0].reset is not None
            assert rows[0].reset.seeds == (ordinal + 40,)
            assert rows[0].reset.options == {"trial_index": ordinal}
            assert [[bytes(leaf) for leaf in row.observation or ()] for row in rows] == [
                [op.rows[0].tobytes()] for op in own
            ]
            assert [row.reward for row in rows[1:]] == [op.rewards[0] for op in own[1:]]
            assert [row.truncated for row in rows] == [None, *[False] * 5, True]
            assert [dict(row.infos or {}) for row in rows] == [op.infos for op in own]
        with pytest.raises(KeyError):
            next(recording.rows(9))
