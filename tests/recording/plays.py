"""Recordings made by hand: a play is what an env was asked and what it answered, drawn whole before it is recorded."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaf, Metadata, ResetRequest, StepTarget
from rlmesh_trio.recording import Footer, Header, RecordingWriter
from rlmesh_trio.spaces import codec_for, contract_from_gymnasium
from rlmesh_trio.spec import EnvContract, ValueSpace

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
DICT = spaces.Dict({"note": spaces.Text(8, min_length=0), "place": BOX, "room": spaces.Discrete(5)})


def contract_of(lanes: int, observation: spaces.Space[Any] = BOX) -> EnvContract:
    return contract_from_gymnasium(
        observation,
        spaces.Discrete(3),
        env_id="Toy-v0",
        metadata={},
        num_envs=lanes,
        autoreset_mode=3,
        render_mode="",
    )


def space_of(contract: EnvContract) -> ValueSpace:
    assert contract.observation_space is not None
    return contract.observation_space


@attrs.frozen
class Op:
    """One request. ``rows`` are observations, ``flags`` 0, 1 (terminated) or 2 (truncated); no rows: no answer."""

    lanes: tuple[int, ...]
    rows: tuple[Any, ...] = ()
    begins: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    is_reset: bool = False
    actions: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()
    flags: tuple[int, ...] = ()
    infos: Metadata | None = None
    refused: str = ""
    capped: bool = False


def leaves_of(space: ValueSpace, rows: Sequence[Any]) -> list[Leaf]:
    return codec_for(space).pack_rows(rows)


def record(writer: RecordingWriter, op: Op) -> None:
    space = space_of(writer.header.contract)
    ids = tuple(f"lane-{lane}" for lane in op.lanes)
    answer: EnvReply | EndpointError | None = None
    if op.refused:
        answer = EndpointError(op.refused, "no", recoverable=True)
    elif op.rows and op.is_reset:
        answer = EnvReply(observation=leaves_of(space, op.rows), infos=op.infos)
    elif op.rows:
        answer = EnvReply(
            observation=leaves_of(space, op.rows),
            infos=op.infos,
            rewards=op.rewards,
            terminated_mask=bytes(flag & 1 for flag in op.flags),
            truncated_mask=bytes(flag >> 1 for flag in op.flags),
            completed=[EpisodeRecord("somebody", 3, 1, 2, 0.5, end_timestamp_ns=7, final_info={"x": 1})]
            if op.capped or any(op.flags)
            else [],
        )
    if op.is_reset:
        options = {"trial_index": list(op.begins)} if len(op.begins) > 1 else {"trial_index": max(op.begins, default=0)}
        writer.record_reset(ResetRequest(op.seeds, options, 5, op.lanes, ids), answer, op.begins)
    else:
        action = [np.array(op.actions, "<i8").tobytes()]
        writer.record_step(action, answer, StepTarget(9, op.lanes, ids), op.begins)
        if op.capped:
            writer.record_end(op.lanes[0], writer.ordinal_on(op.lanes[0]), "capped")


def recorded(path: Path, ops: Iterable[Op], header: Header, level: str | None = None, **fields: Any) -> Footer:
    with RecordingWriter(path, header, level, **fields) as writer:
        for op in ops:
            record(writer, op)
        return writer.finish()


def episodes(lanes: int, count: int, steps: int, *, observation: spaces.Space[Any] = BOX, salt: int = 0) -> list[Op]:
    """*count* episodes of *steps* steps dealt to *lanes*, which are stepped one by one in turn."""
    queue = iter(range(1, count + 1))
    turns = [_lane(lane, queue, steps, observation, salt) for lane in range(lanes)]
    ops: list[Op] = []
    while turns:
        for turn in list(turns):
            op = next(turn, None)
            if op is None:
                turns.remove(turn)
            else:
                ops.append(op)
    return ops


def _lane(lane: int, queue: Iterator[int], steps: int, observation: spaces.Space[Any], salt: int) -> Iterator[Op]:
    for ordinal in queue:
        observation.seed(1000 * ordinal + salt)
        yield Op((lane,), (observation.sample(),), (ordinal,), (ordinal + 40,), True, infos={"b": 1, "a": [ordinal]})
        for step in range(1, steps + 1):
            yield Op(
                (lane,),
                (observation.sample(),),
                actions=(step % 3,),
                rewards=(0.1 * step,),
                flags=(2 if step == steps else 0,),
                infos={"step": step} if step % 2 else {},
            )


INFOS = st.dictionaries(
    st.sampled_from(["a", "b", "final_info", "episode", "timestamp"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["t", "r"]), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


@st.composite
def plays(draw: st.DrawFn) -> tuple[int, list[Op]]:
    """How many lanes, and what was asked of them: whole or in part, refused, unanswered, restarted, given up."""
    lanes = draw(st.integers(1, 3))
    rewards = st.floats() | st.just(-0.0)
    ops: list[Op] = []
    for _ in range(draw(st.integers(0, 12))):
        chosen = tuple(sorted(draw(st.sets(st.integers(0, lanes - 1), min_size=1))))
        width = len(chosen)
        rows = tuple(draw(st.lists(row(), min_size=width, max_size=width)))
        begins = tuple(
            draw(st.lists(st.integers(0, 5), min_size=width, max_size=width, unique_by=lambda n: n or object()))
        )
        is_reset = draw(st.booleans())
        fate = draw(st.sampled_from(["answered", "answered", "answered", "refused", "unanswered"]))
        ops.append(
            Op(
                chosen,
                rows if fate == "answered" else (),
                begins if is_reset or draw(st.booleans()) else (),
                tuple(draw(st.lists(st.integers(0, 2**63 - 1), min_size=width, max_size=width))),
                is_reset,
                tuple(draw(st.lists(st.integers(0, 2), min_size=width, max_size=width))),
                tuple(draw(st.lists(rewards, min_size=width, max_size=width))),
                tuple(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=width, max_size=width))),
                draw(st.none() | INFOS),
                draw(st.sampled_from(["BUSY", "CONNECTION", "INVALID_ACTION"])) if fate == "refused" else "",
                draw(st.booleans()),
            )
        )
    return lanes, ops


def row() -> st.SearchStrategy[dict[str, Any]]:
    number = st.floats(width=32)
    return st.fixed_dictionaries(
        {
            "note": st.text("abcxyz", max_size=8),
            "place": st.lists(number, min_size=2, max_size=2).map(lambda two: np.array(two, np.float32)),
            "room": st.integers(0, 4).map(np.int64),
        }
    )
