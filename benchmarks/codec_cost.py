"""Claim: a per-step message costs a few microseconds to write or read.

The messages are those of one lane with a four-number observation, as a real server exchanges them: with ids, timings
and an info map that stays undecoded. A reply is read as in a stream, by the form of the one before; beside it stands
what reading it field by field takes, as happens to the first of each form.
"""

import time
from collections.abc import Callable
from functools import partial

from benchmarks.budgets import Budget
from rlmesh_trio.messages import EpisodeInfo, PredictRequest, StepTarget
from rlmesh_trio.wire.hot_env import decode_env_join, encode_step
from rlmesh_trio.wire.hot_model import decode_model_join, encode_predict
from rlmesh_trio.wire.pb.rlmesh.env import v1 as env_pb
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model_pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.predict_forms import ModelReader
from rlmesh_trio.wire.step_forms import EnvReader

__all__ = ("BUDGETS",)

GOAL = 4.0
CALLS = 100_000
EPISODE_ID = "0197b0c5-58c6-7a10-8a3c-2f9d6f8f1f6c"
REQUEST_ID = "grpc-req-1234"
PREDICT_ID = f"{EPISODE_ID}:predict:1234"
OBSERVATION, ACTION = (bytes(16),), (bytes(8),)
TARGET = StepTarget(timeout_ms=300_000, env_indices=(3,), episode_ids=(EPISODE_ID,))
PREDICT = PredictRequest("local", EPISODE_ID, PREDICT_ID, OBSERVATION, (EpisodeInfo(EPISODE_ID, 1234),))


def step_reply() -> bytes:
    step = env_pb.StepResponse(
        observation=spaces_pb.SpaceValue(leaves=list(OBSERVATION)),
        rewards=[1.0],
        terminated_mask=b"\0",
        truncated_mask=b"\0",
        infos=spaces_pb.MetaMap(entries={"t": spaces_pb.MetaValue(integer=7)}),
        env_indices=[3],
    )
    return bytes(
        env_pb.JoinResponse(
            step=step,
            request_id=REQUEST_ID,
            endpoint_total_ns=90_000,
            decode_ns=9_000,
            user_ns=60_000,
            encode_ns=9_000,
            queue_ns=4_000,
        )
    )


def predict_reply() -> bytes:
    context = model_pb.AdapterContext(session_id="local", env_id=EPISODE_ID, request_id=PREDICT_ID)
    return bytes(
        model_pb.JoinResponse(
            predict=model_pb.PredictResponse(context=context, actions=[spaces_pb.SpaceValue(leaves=list(ACTION))]),
            request_id=PREDICT_ID,
            endpoint_total_ns=90_000,
            decode_ns=9_000,
            user_ns=60_000,
            encode_ns=9_000,
            queue_ns=4_000,
            in_flight=1,
            held_episodes=0,
            held_state_bytes=0,
        )
    )


def time_calls(prepare: Callable[[], Callable[[], object]], count: int) -> float:
    """Microseconds per call of what *prepare* makes."""
    call = prepare()
    before = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - before) / count * 1e6


def reading(read: Callable[[bytes], object], message: bytes) -> Callable[[], object]:
    read(message)
    return partial(read, message)


BUDGETS = tuple(
    Budget(f"codec {name}", goal, CALLS, partial(time_calls, prepare))
    for name, goal, prepare in (
        ("write step", GOAL, lambda: partial(encode_step, REQUEST_ID, ACTION, TARGET)),
        ("read step reply", GOAL, lambda: reading(EnvReader().decode, step_reply())),
        ("read step reply field by field", None, lambda: reading(decode_env_join, step_reply())),
        ("write predict", GOAL, lambda: partial(encode_predict, PREDICT_ID, PREDICT)),
        ("read predict reply", GOAL, lambda: reading(ModelReader().decode, predict_reply())),
        ("read predict reply field by field", None, lambda: reading(decode_model_join, predict_reply())),
    )
)
