"""Real chunk models over TCP, asked before their chunk has run out: the same actions as a player that never waits."""

import pytest

from rlmesh_trio import Report
from rlmesh_trio.events import StepCompleted
from tests.interop.conftest import StartPeer
from tests.interop.driving import Witness, assert_same, drive_remotely
from tests.interop.naive import play_chunks
from tests.interop.peers.policies import counter
from tests.interop.peers.toys import Counter, Fault
from tests.interop.spies import SpyModel

LENGTH, STAGGER, CHUNK = 10, 3, 4

servers = pytest.mark.parametrize(
    "server", [(), ("--kind", "lanes", "--length-stagger", str(STAGGER))], ids=["single", "lanes"]
)


def predicts_reported(report: Report) -> int:
    assert report.telemetry is not None
    (row,) = (row for row in report.telemetry.rows if (row.op, row.metric) == ("model.predict", "rpc.total"))
    return row.count


@servers
@pytest.mark.parametrize("lead", [1, 2])
@pytest.mark.parametrize("horizon", [CHUNK, CHUNK - 1])
@pytest.mark.parametrize("kind", ["chunk", "chunkbatch"])
async def test_the_next_chunk_is_asked_for_ahead(
    shared_env: StartPeer, shared_model: StartPeer, kind: str, horizon: int, lead: int, server: tuple[str, ...]
) -> None:
    env = shared_env("--length", str(LENGTH), *server)
    model = shared_model("--kind", kind, "--chunk", str(CHUNK))
    witness, spy, before = Witness(), SpyModel(), len(model.events("forward"))
    report = await drive_remotely(env, model, horizon=horizon, lead=lead, hooks=witness, spy=spy, max_episodes=6)
    forwards = model.events("forward")[before:]
    assert {line["horizon"] for line in forwards} == {horizon}
    assert len(witness.episodes) == 6
    asked = [request.episode_info[0].episode_id for request in spy.predicts]
    assert set(asked) == set(witness.episodes)
    assert len(forwards) == len(asked) == predicts_reported(report)
    for name, episode in witness.episodes.items():
        toy = Counter(episode.lane, LENGTH + STAGGER * episode.lane, 0.0, Fault(), None)
        played, asks = play_chunks(toy, counter, episode.seed, frames=horizon, lead=lead)
        assert_same(episode, played)
        # A chunk asked for at the end of its episode may come too late to be asked for at all.
        assert asked.count(name) in (len(asks), len(asks) - 1)
    assert sorted(spy.ended) == sorted(witness.episodes)


@pytest.mark.parametrize("lead", [0, 2])
async def test_the_env_steps_while_a_slow_model_thinks(
    shared_env: StartPeer, shared_model: StartPeer, lead: int
) -> None:
    class Watch(Witness):
        def __init__(self) -> None:
            super().__init__()
            self.overlapped = 0

        async def step_completed(self, event: StepCompleted) -> None:
            await super().step_completed(event)
            self.overlapped += spy.flying

    env = shared_env("--length", str(LENGTH))
    model = shared_model("--kind", "chunk", "--chunk", str(CHUNK), "--sleep", "0.03")
    witness, spy = Watch(), SpyModel()
    await drive_remotely(env, model, horizon=CHUNK, lead=lead, hooks=witness, spy=spy, max_episodes=2)
    assert (witness.overlapped > 0) == (lead > 0)
    for episode in witness.episodes.values():
        toy = Counter(0, LENGTH, 0.0, Fault(), None)
        assert_same(episode, play_chunks(toy, counter, episode.seed, frames=CHUNK, lead=lead)[0])
