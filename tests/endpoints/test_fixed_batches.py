"""A policy that takes batches can be called with one number of rows always: as many as the session has lanes."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlmesh_trio.endpoints.policy_forms import EpisodeContext
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import PredictReply, PredictRequest
from tests.endpoints.predicting import Asking, asking, spec_for

LANES = 4
SPEC = attrs.evolve(spec_for(), num_envs=LANES, subset_step=True)


class Batched:
    """Answers with the first number of each row, and keeps what it was called with."""

    wants_history = True

    def __init__(self) -> None:
        self.rows: list[list[float]] = []
        self.told: list[list[tuple[str, int]]] = []

    def predict_batch(self, observations: Any, context: Sequence[EpisodeContext], history: Sequence[Any]) -> Any:
        self.rows.append(observations[:, 0].tolist())
        self.told.append([(one.episode_id, len(past)) for one, past in zip(context, history, strict=True)])
        return observations[:, 0].astype(np.int64)


class Chunked(Batched):
    def predict_chunk_batch(self, observations: Any, context: Any, history: Any) -> Any:
        first = self.predict_batch(observations, context, history)
        return np.stack([first, first + 1], axis=1)


def requests(ask: Asking, *values: int) -> list[PredictRequest]:
    past = [ask.past([[0, 0]], 1, "e")]
    return [ask.request([[value, 0]], f"e{value}", number=value, history=past * (value % 2)) for value in values]


@pytest.mark.parametrize(("policy", "frames"), [(Batched, 1), (Chunked, 2)])
async def test_a_batch_is_filled_up_with_its_last_row(policy: type[Batched], frames: int) -> None:
    made = policy()
    async with asking(made, spec=SPEC, horizon=frames, fixed_batch=True) as ask:
        for values in ((1,), (1, 2), (2, 1, 3), (3, 0, 1, 2)):
            replies = await ask.model.predict_group(requests(ask, *values))
            answers = [[frame.tolist() for frame in ask.actions(reply, 1)] for reply in replies]
            assert answers == [[[value + k] for k in range(frames)] for value in values]
            assert [isinstance(reply, PredictReply) and reply.request_id for reply in replies] == [
                f"request-{value}" for value in values
            ]
    assert made.rows == [[1, 1, 1, 1], [1, 2, 2, 2], [2, 1, 3, 3], [3, 0, 1, 2]]
    assert made.told[1] == [("e1", 1), ("e2", 0), ("e2", 0), ("e2", 0)]
    assert made.told[2] == [("e2", 0), ("e1", 1), ("e3", 1), ("e3", 1)]


async def test_a_whole_vector_is_full() -> None:
    made = Batched()
    async with asking(made, spec=attrs.evolve(SPEC, subset_step=False), fixed_batch=True) as ask:
        assert await ask.frames([1, 0], [2, 0], [3, 0], [4, 0]) == [[1, 2, 3, 4]]
    assert made.rows == [[1, 2, 3, 4]]


async def test_without_it_a_batch_is_as_long_as_it_is() -> None:
    made = Batched()
    async with asking(made, spec=SPEC) as ask:
        await ask.model.predict_group(requests(ask, 1, 2))
    assert made.rows == [[1, 2]]


async def test_a_policy_of_rows_is_called_for_those_there_are() -> None:
    seen: list[float] = []

    class Rows:
        def predict(self, observation: Any) -> Any:
            seen.append(float(observation[0]))
            return 0

    async with asking(Rows(), spec=SPEC, fixed_batch=True) as ask:
        await ask.model.predict_group(requests(ask, 1, 2))
    assert seen == [1, 2]
    async with asking("random", spec=SPEC, fixed_batch=True) as ask:
        assert len(await ask.model.predict_group(requests(ask, 1, 2))) == 2


async def test_what_does_not_decode_leaves_a_full_batch_of_the_others() -> None:
    made = Batched()
    async with asking(made, spec=SPEC, fixed_batch=True) as ask:
        good, broken = requests(ask, 1, 2)
        replies = await ask.model.predict_group([good, attrs.evolve(broken, observation=[b"123"])])
        assert ask.actions(replies[0], 1) == [[1]]
        assert isinstance(replies[1], EndpointError)
    assert made.rows == [[1, 1, 1, 1]]


async def test_too_few_answers_are_counted_in_the_full_batch() -> None:
    def forgetful(rows: Any) -> Any:
        return rows[:2, 0].astype(np.int64)

    async with asking(forgetful, spec=SPEC, fixed_batch=True) as ask:
        (reply,) = await ask.model.predict_group(requests(ask, 1))
    assert isinstance(reply, EndpointError)
    assert reply.message == "predict_grouped returned fewer results than prepared groups"
