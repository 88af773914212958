"""The corners of a policy, what they are given beside the observation, and the built-in policies."""

from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.endpoints.policy_forms import EpisodeContext, PastObservation
from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import EpisodeInfo, PredictReply, PredictRequest, ResetAdapterRequest
from rlmesh_trio.spaces import OpenText, codec_for, space_from_gymnasium
from tests.endpoints.predicting import asking, spec_for
from tests.endpoints.toys import ALL_KINDS

COMPOSED = spaces.Dict(
    {
        "grip": spaces.Discrete(5),
        "arm": spaces.Tuple((spaces.Box(-9, 9, (2,), np.float32), spaces.Text(5))),
    }
)


def composed(number: int) -> dict[str, Any]:
    return {"grip": number, "arm": (np.full(2, number, np.float32), f"n{number}")}


class Row:
    def predict(self, observation: Any) -> Any:
        observation[1] = 99
        return composed(int(observation[0]))


class RowBatch:
    def predict_batch(self, observation: Any) -> Any:
        values = observation[:, 0]
        return {
            "grip": values.astype(np.int64),
            "arm": (np.stack([values, values], 1), [f"n{int(value)}" for value in values]),
        }


class Chunk:
    def predict_chunk(self, observation: Any) -> Any:
        values = observation[0] + np.arange(4)
        return {
            "grip": values.astype(np.int64),
            "arm": (np.stack([values, values], 1), [f"n{int(value)}" for value in values]),
        }


class ChunkBatch:
    def predict_chunk_batch(self, observation: Any) -> Any:
        values = observation[:, :1] + np.arange(4)
        return {
            "grip": values.astype(np.int64),
            "arm": [np.stack([values, values], 2), [[f"n{int(value)}" for value in row] for row in values]],
        }


def as_policy(observation: Any) -> Any:
    return RowBatch().predict_batch(observation)


@pytest.mark.parametrize(
    ("policy", "horizon", "frames"),
    [
        (as_policy, 1, 1),
        (Row, 1, 1),
        (RowBatch, 1, 1),
        (Chunk, 1, 1),
        (Chunk, 3, 3),
        (Chunk, 9, 4),
        (ChunkBatch, 1, 1),
        (ChunkBatch, 3, 3),
        (ChunkBatch, 9, 4),
    ],
)
async def test_every_corner_answers_the_same(policy: object, horizon: int, frames: int) -> None:
    spec = spec_for(action=COMPOSED)
    async with asking(policy, horizon=horizon, spec=spec) as ask:
        requests = [ask.request([[0, 5]]), ask.request([[1, 5]]), ask.request([[0, 6]])]
        wide = ask.request([[1, 0], [0, 0]])
        for asked in (requests, [wide], [*requests, wide]):
            replies = await ask.model.predict_group(asked)
            for request, reply in zip(asked, replies, strict=True):
                assert isinstance(reply, PredictReply), repr(reply)
                first = [1, 0] if request is wide else [[0], [1], [0]][requests.index(request)]
                assert len(reply.actions) == frames
                codec = codec_for(space_from_gymnasium(COMPOSED))
                for k, leaves in enumerate(reply.actions):
                    for row, start in enumerate(first):
                        action = codec.unpack_row(leaves, len(first), row)
                        assert (action["grip"], action["arm"][1]) == (start + k, f"n{start + k}")
                        assert action["arm"][0].tolist() == [start + k] * 2


async def test_un_chunked_and_batched_corners_come_first() -> None:
    asked: list[str] = []

    class All:
        def predict(self, observation: Any) -> Any:
            asked.append("predict")
            return 0

        def predict_batch(self, observation: Any) -> Any:
            asked.append("predict_batch")
            return [0] * len(observation)

        def predict_chunk(self, observation: Any) -> Any:
            asked.append("predict_chunk")
            return [0, 0]

        def predict_chunk_batch(self, observation: Any) -> Any:
            asked.append("predict_chunk_batch")
            return np.zeros((len(observation), 2), np.int64)

    for horizon in (1, 2):
        async with asking(All(), horizon=horizon) as ask:
            await ask.frames([0, 0])
    assert asked == ["predict_batch", "predict_chunk_batch"]


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ([], "predict_chunk returned no axis of frames, or an empty one"),
        (3, "predict_chunk returned no axis of frames, or an empty one"),
        ([1, 9], r"action space: \$: row 1: the value 9"),
        ([[1, 2]], r"action space: \$: expected the shape \(1,\), got \(1, 2\)"),
    ],
)
async def test_a_chunk_that_is_none(chunk: object, says: str) -> None:
    class Policy:
        def predict_chunk(self, observation: Any) -> Any:
            return chunk

    async with asking(Policy, horizon=2) as ask:
        with pytest.raises(EndpointError, match=says):
            await ask.model.predict(ask.request([[0, 0]]))


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        (np.zeros((2, 0), np.int64), "predict_chunk_batch returned no axis of frames, or an empty one"),
        (np.zeros(2, np.int64), "predict_chunk_batch returned no axis of frames, or an empty one"),
        ([[0, 0], [0]], "predict_chunk_batch returned no axis of frames, or an empty one"),
        (np.zeros((3, 2), np.int64), "predict returned 3 actions for 2 lanes"),
        (np.full((2, 2), 9), r"action space: \$: row 0: the value 9"),
    ],
)
async def test_a_batch_of_chunks_that_is_none(chunk: object, says: str) -> None:
    class Policy:
        def predict_chunk_batch(self, observation: Any) -> Any:
            return chunk

    async with asking(Policy, horizon=2) as ask:
        with pytest.raises(EndpointError, match=says):
            await ask.model.predict(ask.request([[0, 0], [1, 0]]))


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ({"grip": np.zeros((1, 2), np.int64), "arm": (np.zeros((1, 3, 2)), [["a"] * 3])}, r"chunks of \[2, 3\] frames"),
        ({"grip": np.zeros((1, 2), np.int64)}, r"\$: expected the keys"),
        ([1, 2], r"\$: expected a mapping"),
        ({"grip": np.zeros((1, 2), np.int64), "arm": 5}, r"\$\.arm: expected a tuple"),
    ],
)
async def test_a_chunk_of_another_structure(chunk: object, says: str) -> None:
    class Policy:
        def predict_chunk_batch(self, observation: Any) -> Any:
            return chunk

    async with asking(Policy, horizon=2, spec=spec_for(action=COMPOSED)) as ask:
        with pytest.raises(EndpointError, match=says):
            await ask.model.predict(ask.request([[0, 0]]))


class Told:
    """Every corner notes what it was told; they differ in what they ask for."""

    wants_history = True

    def __init__(self) -> None:
        self.told: list[Any] = []


class ToldRow(Told):
    def predict(self, observation: Any, *, history: Any, context: Any) -> Any:
        self.told.append((observation.tolist(), history, context))
        return 0


class ToldBatch(Told):
    def predict_batch(self, observation: Any, context: Any, history: Any, execution_horizon: int) -> Any:
        self.told.extend(zip(observation.tolist(), history, context, strict=True))
        assert execution_horizon == 1
        return [0] * len(observation)


class ToldChunk(Told):
    def predict_chunk(self, observation: Any, execution_horizon: int, context: Any = None, history: Any = None) -> Any:
        self.told.append((observation.tolist(), history, context))
        return [0] * execution_horizon


def plain(history: Sequence[PastObservation]) -> list[tuple[list[float], str, int]]:
    return [(past.observation.tolist(), past.episode_id, past.step) for past in history]


@pytest.mark.parametrize("policy", [ToldRow, ToldBatch, ToldChunk])
async def test_a_corner_is_told_what_it_names(policy: type[Told]) -> None:
    told = policy()
    async with asking(told, horizon=2 if policy is ToldChunk else 1) as ask:
        assert ask.model.wants_history()
        past = [ask.past([[1, 1], [2, 2]], 4, "old", "b"), ask.past([[3, 3], [4, 4]], 5, "a", "b")]
        request = ask.request([[5, 5], [6, 6]], "a", "b", episode_steps=(1, 9), history=past, step=6)
        alone = ask.request([[7, 7]], "c", number=2)
        replies = await ask.model.predict_group([request, alone])
        assert [len(ask.actions(reply, rows)) for reply, rows in zip(replies, (2, 1), strict=True)] == [
            2 if policy is ToldChunk else 1
        ] * 2
    assert [(observation, context) for observation, _, context in told.told] == [
        ([5, 5], EpisodeContext("a", 0, 1)),
        ([6, 6], EpisodeContext("b", 1, 9)),
        ([7, 7], EpisodeContext("c", 0, None)),
    ]
    assert [plain(history) for _, history, _ in told.told] == [
        [([1, 1], "old", 4), ([3, 3], "a", 5)],
        [([2, 2], "b", 4), ([4, 4], "b", 5)],
        [],
    ]


async def test_a_batch_is_read_only_and_a_row_is_the_policys_own() -> None:
    def scribbler(observation: Any) -> Any:
        observation[0, 0] = 5
        return [0]

    async with asking(scribbler) as ask:
        with pytest.raises(EndpointError, match="read-only"):
            await ask.model.predict(ask.request([[1, 0]]))
    async with asking(Row, spec=spec_for(action=COMPOSED)) as ask:
        request = ask.request([[1, 0]])
        before = [bytes(leaf) for leaf in request.observation or ()]
        await ask.model.predict(request)
        assert [bytes(leaf) for leaf in request.observation or ()] == before


EVERY_KIND: list[gymnasium.Space[Any]] = [
    ALL_KINDS,
    spaces.Discrete(3, start=4),
    spaces.Box(2, 5, (2,), np.float32),
    spaces.Box(-np.inf, np.inf, (2,), np.float64),
    cast("Any", spaces.Box)(np.array([1, 0]), np.array([1, 1]), dtype=bool),
    spaces.Box(0, 255, (3, 2), np.uint8),
    spaces.MultiBinary([2, 2]),
    spaces.MultiDiscrete([3, 4]),
    OpenText(7, min_length=3),
    spaces.Text(4, charset="xy"),
    spaces.Tuple(()),
]


@pytest.mark.parametrize("policy", ["random", "zero"])
@pytest.mark.parametrize("space", EVERY_KIND, ids=str)
async def test_the_built_in_policies_play_every_space(policy: str, space: gymnasium.Space[Any]) -> None:
    declared = space_from_gymnasium(space)
    async with asking(policy, horizon=3, where="auto", spec=spec_for(action=space)) as ask:
        (reply,) = await ask.model.predict_group([ask.request([[0, 0], [0, 0]])])
        assert isinstance(reply, PredictReply), repr(reply)
        assert len(reply.actions) == 3
        codec = codec_for(declared)
        for leaves in reply.actions:
            codec.check_members(leaves, 2)
            for row in (0, 1):
                assert declared.space.contains(codec.unpack_row(leaves, 2, row))


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3, start=-1), 0),
        (spaces.Discrete(3, start=4), 4),
        (spaces.Discrete(3, start=-7), -5),
        (spaces.Box(2, 5, (1,), np.float32), [2]),
        (spaces.Box(-5, -2, (1,), np.float32), [-2]),
        (spaces.Box(-5, 5, (1,), np.float32), [0]),
        (spaces.MultiDiscrete([2, 3]), [0, 0]),
    ],
)
async def test_zero_is_zero_or_what_comes_nearest(space: gymnasium.Space[Any], action: Any) -> None:
    async with asking("zero", spec=spec_for(action=space)) as ask:
        assert await ask.frames([0, 0], [1, 1]) == [[action, action]]


def blind(*ids: str, seeds: Sequence[int | None]) -> PredictRequest:
    infos = [EpisodeInfo(name, seed) for name, seed in zip(ids, seeds, strict=True)]
    return PredictRequest("s", "e", "r", [], tuple(infos))


async def test_random_depends_on_the_episodes_seed_alone() -> None:
    space = spaces.Discrete(1_000_000)
    seeds = {"a": 11, "b": 12, "c": -13}

    async def play(schedule: Sequence[Sequence[str]], *, forget: bool = False) -> dict[str, list[int]]:
        """The actions of each episode, asked in groups of one row as *schedule* says."""
        actions: dict[str, list[int]] = {name: [] for name in seeds}
        async with asking("random", spec=spec_for(action=space)) as ask:
            for names in schedule:
                requests = [blind(name, seeds=[seeds[name]]) for name in names]
                replies = await ask.model.predict_group(requests)
                for name, reply in zip(names, replies, strict=True):
                    actions[name].extend(ask.actions(reply, 1)[0].tolist())
                if forget:
                    await ask.model.reset_adapter(ResetAdapterRequest("s", "e", "r", tuple(names)))
        return actions

    alone = await play([["a"], ["a"], ["a"], ["b"], ["b"], ["b"], ["c"], ["c"], ["c"]])
    mixed = await play([["c", "a"], ["b", "a", "c"], ["b"], ["c", "b", "a"]])
    assert alone == mixed
    assert all(len(set(actions)) == 3 for actions in alone.values())
    assert len({tuple(actions) for actions in alone.values()}) == 3
    again = await play([["a"], ["a"]], forget=True)
    assert again["a"] == [alone["a"][0]] * 2


async def test_random_refuses_a_space_that_gymnasium_cannot_draw_from() -> None:
    with pytest.raises(SpaceError, match="random cannot draw from Box"):
        async with asking("random", spec=spec_for(action=spaces.Box(0, 2**63, (2,), np.uint64))):
            pass


async def test_random_does_not_draw_what_the_env_draws() -> None:
    space = spaces.Discrete(1_000_000)
    space.seed(7)
    async with asking("random", spec=spec_for(action=space)) as ask:
        (reply,) = await ask.model.predict_group([blind("a", seeds=[7])])
        assert ask.actions(reply, 1)[0].tolist() != [space.sample()]


async def test_random_without_a_seed_is_fresh_and_what_it_holds_is_told() -> None:
    space = spaces.Discrete(1_000_000_000)
    async with asking("random", spec=spec_for(action=space)) as ask:
        request = blind("a", "b", "", seeds=[None, None, None])
        (reply,) = await ask.model.predict_group([request])
        assert len(set(ask.actions(reply, 3)[0].tolist())) == 3
        assert isinstance(reply, PredictReply)
        assert reply.phases is not None
        assert reply.phases.held_episodes == 2
        held = reply.phases.held_state_bytes
        assert held is not None
        assert held > 0
        await ask.model.reset_adapter(ResetAdapterRequest("s", "e", "r", ("a", "zzz")))
        (reply,) = await ask.model.predict_group([blind("b", seeds=[None])])
        assert isinstance(reply, PredictReply)
        assert reply.phases is not None
        assert (reply.phases.held_episodes, reply.phases.held_state_bytes) == (1, held // 2)


async def test_a_policy_is_found_by_name() -> None:
    for policy in ("tests.endpoints.test_local_policies:Row", "tests.endpoints.test_local_policies:as_policy"):
        async with asking(policy, spec=spec_for(action=COMPOSED)) as ask:
            (reply,) = await ask.model.predict_group([ask.request([[1, 0]])])
            assert isinstance(reply, PredictReply)


async def test_random_goes_on_where_a_lockstep_vector_restarts_a_lane_unseeded() -> None:
    space = spaces.Discrete(1_000_000_000)

    async def play() -> list[list[int]]:
        asked = [("a", "b", [1, 2]), ("c", "b", [None, 2]), ("c", "d", [None, None])]
        drawn: list[list[int]] = []
        async with asking("random", spec=spec_for(action=space)) as ask:
            for first, second, seeds in asked:
                (reply,) = await ask.model.predict_group([blind(first, second, seeds=seeds)])
                drawn.append(ask.actions(reply, 2)[0].tolist())
        return drawn

    once = await play()
    assert await play() == once
    assert len({action for actions in once for action in actions}) == 6
