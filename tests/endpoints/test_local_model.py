import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
import trio.testing

from rlmesh_trio.endpoints.local_model import LocalModel, Pace, open_local_model
from rlmesh_trio.endpoints.policy_forms import EpisodeContext
from rlmesh_trio.errors import EndpointError, InvalidSpec, ProtocolError
from rlmesh_trio.messages import PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest
from rlmesh_trio.spec import EnvContract, SessionSpec
from tests.endpoints.predicting import asking, spec_for

MICRO = 1_000
MS = 1_000_000


def first_of_row(observation: Any) -> Any:
    return observation[:, 0].astype(np.int64)


def ending(*ids: str) -> ResetAdapterRequest:
    return ResetAdapterRequest("session", "route", "evict", ids)


async def evict(model: LocalModel, *ids: str) -> None:
    await model.reset_adapter(ending(*ids))


async def test_a_callable_answers_all_groups_in_one_call() -> None:
    seen: list[Any] = []

    def policy(observation: Any) -> Any:
        seen.append(observation.tolist())
        return first_of_row(observation)

    async with asking(policy) as ask:
        assert ask.model.fuses_predicts()
        assert not ask.model.wants_history()
        requests = [
            ask.request([[1, 0]], "a", number=1),
            ask.request([[2, 0], [3, 0]], "b", "c", number=2),
            ask.request([[4, 0]], "d", number=3),
        ]
        replies = await ask.model.predict_group(requests)
    assert seen == [[[1, 0], [2, 0], [3, 0], [4, 0]]]
    assert [
        [frame.tolist() for frame in ask.actions(reply, rows)] for reply, rows in zip(replies, (1, 2, 1), strict=True)
    ] == [[[1]], [[2, 3]], [[4]]]
    for request, reply in zip(requests, replies, strict=True):
        assert isinstance(reply, PredictReply)
        assert (reply.session_id, reply.env_id, reply.request_id) == ("session", "route", request.request_id)
        assert reply.phases is not None
        assert reply.endpoint_total_ns is not None
        parts = (reply.phases.decode_ns, reply.phases.user_ns, reply.phases.encode_ns)
        assert min(parts) > 0
        assert sum(parts) <= reply.endpoint_total_ns
        assert (reply.phases.held_episodes, reply.phases.held_state_bytes) == (0, 0)


async def test_predict_answers_one_request_or_raises_its_error() -> None:
    async with asking(first_of_row) as ask:
        assert ask.actions(await ask.model.predict(ask.request([[3, 0]])), 1) == [[3]]
        with pytest.raises(EndpointError, match="the observation does not decode"):
            await ask.model.predict(PredictRequest("s", "e", "r", [b"123"], ask.request([[0, 0]]).episode_info))


async def test_a_request_that_does_not_decode_leaves_the_batch() -> None:
    async with asking(first_of_row) as ask:
        good = [ask.request([[value, 0]], number=value) for value in (1, 2)]
        short = PredictRequest("session", "route", "short", [b"1234"], good[0].episode_info)
        absent = PredictRequest("session", "route", "absent", None, good[0].episode_info)
        replies = await ask.model.predict_group([absent, good[0], short, good[1]])
        assert [ask.actions(reply, 1)[0].tolist() for reply in (replies[1], replies[3])] == [[1], [2]]
        for reply, says in ((replies[0], "there is no observation"), (replies[2], r"\$: .*take 8 bytes, got 4")):
            assert isinstance(reply, EndpointError)
            with pytest.raises(EndpointError, match=says) as caught:
                raise reply
            assert caught.value.code == "INTERNAL"
        (alone,) = await ask.model.predict_group([short])
        assert isinstance(alone, EndpointError)


async def test_the_number_of_rows_is_that_of_the_episodes() -> None:
    async with asking(first_of_row) as ask:
        whole = ask.request([[1, 0], [2, 0]])
        wide = PredictRequest("s", "e", "r", whole.observation, whole.episode_info[:1])
        with pytest.raises(EndpointError, match="take 8 bytes, got 16"):
            await ask.model.predict(wide)


@pytest.mark.parametrize(
    ("answer", "groups", "says"),
    [
        (np.zeros(1, np.int64), 1, "predict returned 1 actions for 2 lanes"),
        (np.zeros(3, np.int64), 1, "predict returned 3 actions for 2 lanes"),
        (np.zeros(3, np.int64), 2, "predict_grouped returned fewer results than prepared groups"),
        (np.zeros(5, np.int64), 2, "predict returned 5 actions for 4 lanes"),
        (3, 1, r"not in the action space: \$: expected the shape \(2,\), got \(\) \(it was given a batch of 2\)"),
        (None, 1, r"not in the action space: \$"),
        (np.full(2, 7), 1, r"not in the action space: \$: row 0: the value 7 is above the highest"),
        (np.zeros(2), 1, r"not in the action space: \$: .*float64"),
    ],
)
async def test_what_a_policy_may_not_answer(answer: object, groups: int, says: str) -> None:
    def policy(observation: Any) -> Any:
        return answer

    async with asking(policy) as ask:
        requests = [ask.request([[0, 0], [0, 0]], number=number) for number in range(groups)]
        for reply in await ask.model.predict_group(requests):
            assert isinstance(reply, EndpointError)
            assert (reply.code, reply.recoverable) == ("INTERNAL", False)
            with pytest.raises(EndpointError, match=says):
                raise reply


async def test_the_leaf_that_does_not_fit_is_named() -> None:
    action = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Box(-1, 1, (2,)), "grip": gymnasium.spaces.Discrete(2)})

    def policy(observation: Any) -> Any:
        rows = len(observation)
        return {"arm": np.full((rows, 2), 1.5, np.float32), "grip": np.zeros(rows, np.int64)}

    async with asking(policy, spec=spec_for(action=action)) as ask:
        with pytest.raises(EndpointError, match=r"\$\.arm: row 0, index \[0\]: the value 1\.5"):
            await ask.model.predict(ask.request([[0, 0]]))


async def test_what_a_policy_raises_is_told_and_its_own_typed_error_is_kept() -> None:
    for raised in (ZeroDivisionError("by zero"), ProtocolError("mine"), EndpointError("BUSY", "later", True)):

        def policy(observation: Any, raised: Exception = raised) -> Any:
            raise raised

        async with asking(policy) as ask:
            replies = await ask.model.predict_group([ask.request([[0, 0]]), ask.request([[0, 0]])])
        for reply in replies:
            if isinstance(raised, ZeroDivisionError):
                assert str(reply) == "predict failed: ZeroDivisionError: by zero (it was given a batch of 2)"
                assert isinstance(reply, EndpointError)
                assert reply.__cause__ is raised
            else:
                assert reply is raised


async def test_a_model_answers_only_for_a_resolved_route() -> None:
    async with open_local_model(first_of_row, where="inline") as model:
        request = PredictRequest("s", "e", "r", [b"12345678"], ())
        with pytest.raises(EndpointError, match=r"not resolved .*: await model.resolve\(spec\)") as caught:
            await model.predict_group([request])
        assert caught.value.code == "NOT_CONFIGURED"
        await model.resolve(spec_for())
        await model.predict_group([request])
        await model.release_adapter(ReleaseAdapterRequest("s", "e", "r", "done"))
        with pytest.raises(EndpointError, match="not resolved"):
            await model.predict_group([request])
        for contract in (EnvContract(), EnvContract(observation_space=spec_for().env_contract.observation_space)):
            with pytest.raises(InvalidSpec, match="_space"):
                await model.resolve(SessionSpec(env_contract=contract))


class Chunky:
    native_chunk = 4

    def predict_chunk(self, observation: Any) -> Any:
        return [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("policy", "horizon", "says"),
    [
        (first_of_row, 2, "execution_horizon=2 needs a policy with predict_chunk or predict_chunk_batch"),
        (Chunky, 5, "execution_horizon=5 is above the native_chunk=4"),
        ("zero", 1025, "must be 1 to 1024, not 1025"),
        ("zero", 0, "must be 1 to 1024, not 0"),
    ],
)
async def test_a_horizon_the_policy_cannot_serve_is_refused_first(policy: object, horizon: int, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        async with asking(policy, horizon=horizon):
            pass


class Diary:
    """Notes everything that happens to it, and where."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.threads: set[int] = set()

    def note(self, what: Any) -> None:
        self.notes.append(what)
        self.threads.add(threading.get_ident())

    def load(self) -> None:
        self.note("load")

    def predict(self, observation: Any, context: EpisodeContext) -> int:
        self.note(tuple(context))
        return 0

    def on_episode_end(self, episode_id: str) -> None:
        self.note(f"end {episode_id}")

    def close(self) -> None:
        self.note("close")


@pytest.mark.parametrize("where", ["inline", "thread"])
async def test_a_policy_lives_in_one_thread_from_load_to_close(where: Any) -> None:
    diary = Diary()
    async with asking(diary, where=where) as ask:
        await ask.model.predict(ask.request([[0, 0], [1, 1]], "a", "b", episode_steps=(7, 8)))
        await evict(ask.model, "a", "never seen")
        await evict(ask.model, "a")
        await evict(ask.model, "b")
    assert diary.notes == ["load", ("a", 0, 7), ("b", 1, 8), "end a", "end b", "close"]
    assert len(diary.threads) == 1
    assert (diary.threads == {threading.get_ident()}) is (where == "inline")


async def test_every_episode_is_ended_although_one_end_fails() -> None:
    class Grumpy(Diary):
        def on_episode_end(self, episode_id: str) -> None:
            super().on_episode_end(episode_id)
            raise OSError(episode_id)

    grumpy = Grumpy()
    async with asking(grumpy) as ask:
        await ask.model.predict(ask.request([[0, 0], [1, 1]], "a", "b"))
        with pytest.raises(EndpointError, match="on_episode_end failed: OSError: a"):
            await evict(ask.model, "a", "b")
    assert grumpy.notes[-3:] == ["end a", "end b", "close"]


async def test_a_failing_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(Diary):
        def close(self) -> None:
            raise OSError("stuck")

    async with asking(Sticky()):
        pass
    assert "closing policy Sticky failed: OSError: stuck" in caplog.text


async def test_every_operation_passes_a_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    async with asking(first_of_row) as ask:
        for call in (
            lambda: ask.model.predict_group([ask.request([[0, 0]])]),
            lambda: ask.model.predict(ask.request([[0, 0]])),
            lambda: ask.model.resolve(spec_for()),
            lambda: evict(ask.model, "a"),
            lambda: ask.model.release_adapter(ReleaseAdapterRequest("s", "e", "r", "done")),
        ):
            with trio.testing.assert_checkpoints():
                await call()


async def test_a_hanging_predict_is_given_up_and_no_second_one_runs_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    release, calls = threading.Event(), list[int]()

    class Hanging(Diary):
        def predict(self, observation: Any, context: EpisodeContext) -> int:
            calls.append(1)
            release.wait(60)
            return 1

    hanging = Hanging()
    async with asking(hanging, where="thread") as ask:
        with trio.move_on_after(0.05) as scope:
            await ask.model.predict(ask.request([[0, 0]], "a"))
        assert scope.cancelled_caught
        for again in (ask.model.predict(ask.request([[0, 0]], "a")), evict(ask.model, "a")):
            with pytest.raises(EndpointError, match="still at a call that was given up") as caught:
                await again
            assert caught.value.code == "BUSY"
        assert calls == [1]
        release.set()
        with trio.fail_after(5):
            while True:
                await trio.sleep(0.005)
                try:
                    assert await ask.frames([0, 0]) == [[1]]
                    break
                except EndpointError:
                    continue
    assert hanging.notes[-1] == "close"


async def test_a_hanging_policy_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Hanging(Diary):
        def predict(self, observation: Any, context: EpisodeContext) -> int:
            release.wait(60)
            return 1

    hanging = Hanging()
    async with asking(hanging, where="thread") as ask:
        with trio.move_on_after(0.02):
            await ask.model.predict(ask.request([[0, 0]], "a"))
    assert "closing policy Hanging failed" in caplog.text
    release.set()


def calls_until(pace: Pace, *, inline: bool, elapsed: int) -> int:
    """How many calls of *elapsed* ns it takes until the next one goes where it is asked for; at most 1000."""
    for count in range(1000):
        if pace.inline is inline:
            return count
        pace.took(elapsed)
    return 1000


def test_auto_starts_in_the_thread_and_goes_inline_after_some_quick_calls() -> None:
    pace = Pace("auto")
    assert not pace.inline
    assert 5 <= calls_until(pace, inline=True, elapsed=10 * MICRO) <= 20


def test_auto_stays_inline_over_one_hiccup_and_leaves_when_calls_are_slow() -> None:
    pace = Pace("auto")
    calls_until(pace, inline=True, elapsed=10 * MICRO)
    pace.took(5 * MS)
    assert pace.inline
    assert calls_until(pace, inline=False, elapsed=2 * MS) <= 8


def test_auto_leaves_at_once_for_a_very_slow_call_and_stays_away_while_it_recurs() -> None:
    pace = Pace("auto")
    calls_until(pace, inline=True, elapsed=10 * MICRO)
    pace.took(100 * MS)
    for call in range(100):
        assert not pace.inline
        pace.took(100 * MS if call % 8 == 7 else 10 * MICRO)


def test_auto_leaves_a_policy_of_half_a_millisecond_in_the_thread() -> None:
    assert calls_until(Pace("auto"), inline=True, elapsed=500 * MICRO) == 1000


@pytest.mark.parametrize("where", ["inline", "thread"])
def test_a_fixed_place_is_kept(where: Any) -> None:
    pace = Pace(where)
    for elapsed in (50 * MS, *[MICRO] * 50):
        pace.took(elapsed)
        assert pace.inline is (where == "inline")


async def test_auto_moves_a_quick_policy_into_this_thread() -> None:
    threads: list[int] = []

    def policy(observation: Any) -> Any:
        threads.append(threading.get_ident())
        return first_of_row(observation)

    async with asking(policy, where="auto") as ask:
        for _ in range(200):
            await ask.frames([1, 0])
            if threads[-1] == threading.get_ident():
                break
    assert threads[0] != threading.get_ident()
    assert threads[-1] == threading.get_ident()
