"""Recorded observations into a live model: asked as the recorded one was, it can differ in its actions alone."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import ModelRpcError, OperationTimeout
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.recording import Batch, Recorder, RecordingError, header_of, open_recording, verify
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.live import Live
from rlmesh_trio.replay.observations import Batches, play_observations
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing import Fail, Fault, Hang
from rlmesh_trio.testing.faults import Operation
from tests.replay.playing import (
    EPISODES,
    SEEDS,
    Chunks,
    Drift,
    Past,
    Resolved,
    Scripted,
    at,
    back,
    crowded,
    forth,
    judged,
    live,
    ordinals,
    record,
    record_scripted,
    rows,
    same,
    scripted,
    vector,
)
from tests.replay.test_closed import fail


async def observed(recording: Path, out: Path, live: Live, **given: Any) -> None:
    with open_recording(recording) as opened:
        footer = await play_observations(opened, live, out, **given)
    with open_recording(out) as played:
        assert played.footer == footer


CHUNKED = {"execution_horizon": 4}
AHEAD = {"execution_horizon": 3, "prefetch_lead": 1}
RUNS: dict[str, tuple[object, object, dict[str, Any]]] = {
    "one": (Drift, back, {}),
    "two": (Drift, back, {"lanes": 2}),
    "seven, capped": (Drift, back, {"lanes": 7, "max_episode_steps": 5}),
    "chunks": (Drift, Chunks, {"lanes": 2} | CHUNKED),
    "chunks ahead": (Drift, Chunks, {"lanes": 3} | AHEAD),
    "past": (Drift, Past, {"lanes": 3} | CHUNKED),
    "past ahead": (Drift, Past, {"lanes": 3, "max_episode_steps": 6} | AHEAD),
    "past, frame by frame ahead": (Drift, Past, {"lanes": 2, "prefetch_lead": 1}),
    "vector": (vector, back, {"base_seed": 3, "episode_seeds": ()}),
    "vector ahead": (vector, back, {"base_seed": 3, "episode_seeds": (), "prefetch_lead": 1}),
    "vector, past": (vector, Past, {"base_seed": 3, "episode_seeds": ()}),
    "vector reseeded": (vector, back, {"base_seed": 3, "episode_seeds": (), "seed_every_episode": True}),
    "vector reset by name": (lambda: vector(mode="DISABLED"), back, {"partial_reset": True}),
}


@pytest.mark.parametrize("name", RUNS)
async def test_a_model_that_repeats(name: str, tmp_path: Path) -> None:
    source, policy, fields = RUNS[name]
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    await record(a, source, policy, **fields)
    await observed(a, b, live(policy=policy))
    assert same(a, b)
    await observed(a, c, live(policy=policy), batches="single")
    assert same(a, c)


RESTARTING_AHEAD = "vector ahead"


@pytest.mark.parametrize("name", [name for name in RUNS if name != RESTARTING_AHEAD])
async def test_a_recording_that_does_not_tell_of_batches(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each row is asked for by itself, when the one before is used up: what is pure comes out the same."""
    source, policy, fields = RUNS[name]
    a, b = tmp_path / "a", tmp_path / "b"
    await record_env_alone(a, source, policy, **fields)
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        await observed(a, b, live(policy=policy))
    assert same(a, b)
    assert [line.getMessage() for line in caplog.records][-1:] == [
        f"{a} does not tell how the model was asked: each row is asked for by itself"
    ]


async def test_what_hung_on_time_and_is_not_told(tmp_path: Path) -> None:
    source, policy, fields = RUNS[RESTARTING_AHEAD]
    await record_env_alone(tmp_path / "a", source, policy, **fields)
    with pytest.raises(NotReplayable, match="only a recording of the model too tells"):
        await observed(tmp_path / "a", tmp_path / "b", live(policy=policy))
    assert not (tmp_path / "b").exists()


async def record_env_alone(path: Path, source: object, policy: object, *, lanes: int = 1, **fields: Any) -> None:
    made = live(source, policy, lanes=lanes)
    assert made.env
    assert made.model
    chunks = {name: fields.pop(name, default) for name, default in (("execution_horizon", 1), ("prefetch_lead", 0))}
    async with made.env(None) as env, made.model() as model:
        spec = SessionSpec.for_env(env, **({"max_episodes": EPISODES} | SEEDS | fields))
        await model.resolve(spec, execution_horizon=chunks["execution_horizon"])
        with Recorder(path, header_of(spec, env, model, **chunks), "full") as recorder:
            lead = chunks["prefetch_lead"]
            await run_session(spec, recorder.wrap(env), model, hooks=recorder.hooks, prefetch_lead=lead)


class Diary:
    """What a policy is asked, call by call: seed and step of each row; and which episodes end."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int | None, int | None]]] = []
        self.seen: dict[str, list[float]] = {}
        self.ended: list[str] = []

    def predict_batch(self, observations: Any, context: Any) -> Any:
        self.calls.append([(each.seed, each.step) for each in context])
        for each, observation in zip(context, observations, strict=True):
            self.seen.setdefault(each.episode_id, []).append(float(observation[0]))
        return back(observations)

    def on_episode_end(self, episode_id: str) -> None:
        self.ended.append(episode_id)


@pytest.mark.parametrize("lanes", [1, 3])
async def test_the_model_is_asked_as_it_was(lanes: int, tmp_path: Path) -> None:
    before, after, single = Diary(), Diary(), Diary()
    a = tmp_path / "a"
    await record(a, policy=before, lanes=lanes)
    await observed(a, tmp_path / "b", live(policy=after))
    assert after.calls == before.calls
    assert list(after.seen.values()) == list(before.seen.values())
    order = [[list(each.seen).index(episode_id) for episode_id in each.ended] for each in (before, after)]
    assert order[0] == order[1]
    assert len(order[1]) == EPISODES
    assert set(after.seen).isdisjoint(before.seen)
    await observed(a, tmp_path / "c", live(policy=single), batches="single")
    assert single.calls == [[row] for call in before.calls for row in call]


async def test_a_model_that_looks_at_its_neighbours(tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    await record(a, policy=crowded, lanes=3)
    await observed(a, b, live(policy=crowded))
    assert same(a, b)
    await observed(a, c, live(policy=crowded), batches="single")
    assert not judged(a, c).equal


@pytest.mark.parametrize("name", ["two", "chunks ahead", "vector"])
async def test_nothing_but_actions_differs(name: str, tmp_path: Path) -> None:
    source, policy, fields = RUNS[name]
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, source, policy, **fields)
    await observed(a, b, live(policy=forth if policy is back else Past))
    found = judged(a, b)
    assert found.divergences
    assert {leaf.part for each in found.divergences for leaf in each.first.leaves} == {"action"}
    assert all(each.ends[0] == each.ends[1] and each.steps[0] == each.steps[1] for each in found.divergences)
    assert (found.missing, found.surplus, found.unfinished) == ((), (), ())


async def test_an_answer_is_played_from_the_step_that_it_was_played_from(tmp_path: Path) -> None:
    """A chunk that was asked for ahead begins when the one before is used up, not when it was asked for."""
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(9), Resolved(extra=3), execution_horizon=4, prefetch_lead=2)
    await observed(a, b, scripted(model=Resolved(extra=3)))
    assert judged(a, b).run_roots[0] == judged(a, b).run_roots[1]
    assert [bytes((row.action or [b""])[0])[0] for row in rows(b, 1)[1:]] == [0, 100, 101, 102, 0, 100, 101, 102, 0]


@pytest.mark.parametrize("lead", [0, 2])
@pytest.mark.parametrize("batches", ["recorded", "single"])
async def test_a_single_env_that_restarts_itself(lead: int, batches: Batches, tmp_path: Path) -> None:
    """Frames of the chunk that the last observation of an episode asked for go on into the next."""
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(
        a,
        Scripted(5, next_step=True),
        Resolved(extra=3, history=True),
        execution_horizon=4,
        prefetch_lead=lead,
    )
    model = Resolved(extra=3, history=True)
    await observed(a, b, scripted(model=model), batches=batches)
    assert judged(a, b).run_roots[0] == judged(a, b).run_roots[1]
    steps = [step for history, own in model.ledger() for step, _ in (*history, own)]
    assert steps == list(range(len(steps))), "each observation is shown once, in order"
    if not lead:
        for ended in model.evicted:
            about = [kind for kind, ids in model.calls if ended in ids]
            assert about.index("evict") == len(about) - 1, "an episode ends on the model behind its last observation"


@pytest.mark.parametrize("name", ["two", "seven, capped", "past ahead", "vector"])
async def test_some_episodes(name: str, tmp_path: Path) -> None:
    source, policy, fields = RUNS[name]
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, source, policy, **fields)
    await observed(a, b, live(policy=policy), episodes=[7, 2])
    assert ordinals(b) == [2, 7]
    found = judged(a, b, episodes=[2, 7])
    assert found.equal
    assert found.compared == 2


async def test_calls_about_other_episodes_are_left_out(tmp_path: Path) -> None:
    before, after, single = Diary(), Diary(), Diary()
    a = tmp_path / "a"
    await record(a, policy=before, lanes=2)
    await observed(a, tmp_path / "b", live(policy=after), episodes=[4])
    assert after.calls == [call for call in before.calls if 104 in {seed for seed, _ in call}]
    await observed(a, tmp_path / "c", live(policy=single), episodes=[4], batches="single")
    assert single.calls == [[row] for call in before.calls for row in call if row[0] == 104]


@pytest.mark.parametrize("action", [Fail("INTERNAL", "it broke"), Hang()], ids=["fails", "hangs"])
async def test_a_run_that_recovered(action: Any, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    retry: dict[str, Any] = {"on_env_error": Recovery("retry"), "on_timeout": Recovery("retry")}
    await record_scripted(
        a, Scripted(4, 5, faults=[Fault("step", action, 6), Fault("step", action, 9)]), Resolved(history=True), **retry
    )
    with open_recording(a) as recording:
        assert max(each.attempt for each in recording.episodes()) == 1
    model = Resolved(history=True)
    await observed(a, b, scripted(model=model))
    assert judged(a, b).equal
    assert len(model.predicted) == 6
    assert sorted(model.evicted) == sorted(model.predicted)
    assert model.released == ["the recorded observations are played"]


async def test_it_is_resolved_for_the_recorded_route(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4, 5), Resolved(extra=2), execution_horizon=3, session_id="mine")
    model = Resolved(extra=2)
    await observed(a, b, scripted(model=model))
    assert model.horizon == 3
    assert (model.spec.session_id, model.spec.num_envs, model.spec.subset_step) == ("mine", 2, True)
    assert {request.session_id for request in model.requests} == {"mine"}
    assert len({request.request_id for request in model.requests}) == len(model.requests)


@pytest.mark.parametrize(
    ("action", "error"), [(Fail("INTERNAL", "it broke"), ModelRpcError), (Hang(), OperationTimeout)]
)
@pytest.mark.parametrize("operation", ["predict", "predict_group"])
async def test_a_model_that_fails(
    operation: Operation, action: Any, error: type[Exception], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    model = Resolved(faults=[Fault(operation, action, 7)])
    with pytest.raises(error):
        await observed(a, b, scripted(model=model))
    assert verify(b).problems == ()
    assert ordinals(b) == [1, 2]
    assert len(model.released) == 1


async def test_a_model_that_will_not_be_told_is_told_of_in_the_log(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    faults = [Fault("evict", Fail("INTERNAL", "no"), 1), Fault("evict", Hang(), 2), Fault("release", Hang())]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        await observed(a, b, scripted(model=Resolved(faults=faults)))
    assert judged(a, b).equal
    assert [line.getMessage() for line in caplog.records] == [
        "model reset_adapter failed: no",
        "model reset_adapter failed: no answer in time",
        "model release_adapter failed: no answer in time",
    ]


async def test_fewer_frames_than_were_played(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved(extra=2), execution_horizon=3)
    with pytest.raises(NotReplayable, match="answers step 0 of episode 1 with 2 frames, the recorded one played 3"):
        await observed(a, b, scripted(model=Resolved(extra=1)))
    await observed(a, b, scripted(model=Resolved(extra=5)))
    assert judged(a, b).equal, "what is made besides is not played"


class Elsewhere(Resolved):
    """A model of another edition."""

    supported_editions = ("2031.01",)
    edition = "2031.01"


async def test_another_edition_is_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    with pytest.raises(ContractChanged, match=r"edition was .* and is 2031\.01"):
        await observed(a, b, scripted(model=Elsewhere()))
    assert not b.exists()
    model = Elsewhere()
    await observed(a, b, scripted(model=model), force=True)
    assert model.spec.workflow_edition == "2031.01"


async def test_what_cannot_be_played(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, level="ring=9")
    with pytest.raises(NotReplayable, match="holds digests of the observations only: record with level full"):
        await observed(a, b, live())
    await record(tmp_path / "c")
    with pytest.raises(NotReplayable, match="needs a live model"):
        await observed(tmp_path / "c", b, Live(env=live().env))
    with pytest.raises(NotReplayable, match="has no episode 10"):
        await observed(tmp_path / "c", b, live(), episodes=[10])
    with pytest.raises(RecordingError, match="name another file"):
        await observed(tmp_path / "c", tmp_path / "c", live())
    assert not b.exists()


async def test_a_failed_run_is_played_to_where_it_failed(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with pytest.raises(Exception, match="it broke"):
        await record(a, lambda: Drift(at(4, 2, fail)), lanes=2)
    await observed(a, b, live())
    found = judged(a, b)
    assert found.equal
    assert found.run_roots[0] == found.run_roots[1]


async def test_cancelled_it_leaves_a_whole_recording(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    model = Resolved()
    with trio.CancelScope() as scope:

        async def cancel(call: int) -> None:
            if call == 7:
                scope.cancel()

        model.before_predict = cancel
        await observed(a, b, scripted(model=model))
    assert scope.cancelled_caught
    assert verify(b).problems == ()
    assert judged(a, b).divergences == ()
    assert sorted(model.evicted) == sorted(model.predicted)
    assert len(model.released) == 1


class Telling(Resolved):
    """Tells by its frames what it was shown."""

    def answer(self, request: PredictRequest) -> PredictReply:
        assert request.observation is not None
        shown = request.observation[0][0]
        return attrs.evolve(super().answer(request), actions=[[bytes([shown * 8 + ahead])] for ahead in range(4)])


class Slow(Telling):
    """Answers so late that the episode is over when an answer that was asked for ahead comes."""

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        await trio.sleep(1 + len(self.batches) % 3)
        return await super().predict_group(requests)


@pytest.mark.parametrize("env", [(4, 5), (4,)])
async def test_answers_that_came_too_late_are_dropped(
    env: tuple[int, ...], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(
        a, Scripted(*env, next_step=len(env) == 1), Slow(), execution_horizon=4, prefetch_lead=3, episodes=6
    )
    with open_recording(a) as recording:
        batches = [each.what for each in recording.decisions() if isinstance(each.what, Batch)]
    assert all(row.ordinal for batch in batches for row in batch.rows), (
        "a late answer is of the episode it was asked for"
    )
    model = Telling()
    await observed(a, b, scripted(model=model))
    assert judged(a, b).run_roots[0] == judged(a, b).run_roots[1]
    assert len(model.requests) == len(batches)
    assert len(model.requests) > 6
    assert set(model.evicted) == set(model.predicted)
