"""Runs played again with env and model live: the same settings, the same slots, the same roots."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rlmesh_trio.errors import EndpointError, EnvRpcError, ModelRpcError
from rlmesh_trio.recording import Header, RecordingError, open_recording, verify
from rlmesh_trio.replay.closed import play_closed
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.live import Live
from rlmesh_trio.testing import Fail, Fault
from tests.recording.plays import BOX, contract_of, episodes, recorded
from tests.replay.playing import (
    EPISODES,
    Chunks,
    Drift,
    Past,
    Resolved,
    Scripted,
    at,
    back,
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


async def closed(recording: Path, out: Path, live: Live, **given: Any) -> None:
    with open_recording(recording) as opened:
        footer = await play_closed(opened, live, out, **given)
    with open_recording(out) as played:
        assert played.footer == footer


@pytest.mark.parametrize(("lanes", "now"), [(1, None), (2, 7), (7, 1), (7, None)])
async def test_a_run_that_repeats(lanes: int, now: int | None, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, lanes=lanes, level="digest")
    await closed(a, b, live(), lanes=now)
    assert same(a, b)
    with open_recording(b) as played:
        assert played.header.contract.num_envs == (now or lanes)


@pytest.mark.parametrize("seeds", [{"base_seed": 7, "episode_seeds": ()}, {}])
async def test_single_episodes_keep_their_slots(seeds: dict[str, Any], tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    await record(a, lanes=2, **seeds)
    await closed(a, b, live(), episodes=[6, 3])
    assert ordinals(b) == [3, 6]
    assert judged(a, b, episodes=[3, 6]).equal
    assert [row.reset.seeds for row in rows(b, 6) if row.reset] == [row.reset.seeds for row in rows(a, 6) if row.reset]
    await closed(b, c, live())
    assert ordinals(c) == [3, 6], "a recording of some episodes is a run of these"
    assert judged(b, c).equal


async def test_settings_are_those_of_the_header(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    chunks: dict[str, Any] = {"execution_horizon": 3, "prefetch_lead": 1}
    seeds: dict[str, Any] = {"base_seed": 3, "episode_seeds": (), "seed_route_id": "r", "session_id": "mine"}
    caps: dict[str, Any] = {"max_episode_steps": 5, "max_episode_seconds": 900.0, "trial_index_base": 4}
    await record(a, policy=Chunks, lanes=2, **chunks, **seeds, **caps)
    await closed(a, b, live(policy=Chunks))
    assert same(a, b)
    with open_recording(a) as before, open_recording(b) as after:
        assert after.header.settings == before.header.settings
        assert after.header.level == "digest"
        assert {entry.end for entry in after.entries.values()} == {"capped", "terminated"}


async def test_what_is_left_out_of_roots_stays_left_out(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    with open_recording(a) as recording:
        recording.header = attrs.evolve(recording.header, ignored_infos=("x",), tolerance="ulp=2")
        await play_closed(recording, live(), b)
    with open_recording(b) as played:
        assert (played.header.ignored_infos, played.header.tolerance) == (("x",), "ulp=2")


async def test_a_vector_that_restarts_its_lanes(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, vector, policy=Past, base_seed=3, episode_seeds=())
    await closed(a, b, live(vector, Past))
    assert same(a, b)
    for given in ({"lanes": 2}, {}):
        with pytest.raises(NotReplayable, match=r"on 3 lanes, and plays on as many only, not on 2$"):
            await closed(a, tmp_path / "c", live(lambda: vector(lanes=2)), **given)
    with pytest.raises(NotReplayable, match="lane by lane"):
        await closed(a, tmp_path / "c", live(vector), episodes=[2])
    assert not (tmp_path / "c").exists()


async def test_a_vector_whose_lanes_are_reset_by_name(tmp_path: Path) -> None:
    def whole() -> Any:
        return vector(mode="DISABLED")

    a, b, c, d, e = (tmp_path / name for name in "abcde")
    await record(a, whole, partial_reset=True)
    await closed(a, b, live(whole))
    assert same(a, b)
    await record(c, vector, seed_every_episode=True)
    await closed(c, d, live(vector))
    assert same(c, d)
    await closed(c, e, live(vector), episodes=[3, 8])
    assert ordinals(e) == [3, 8]
    assert judged(c, e, episodes=[3, 8]).equal


async def test_another_policy_is_a_difference(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    await closed(a, b, live(policy=forth))
    found = judged(a, b)
    assert not found.equal
    assert {leaf.part for leaf in found.divergences[0].first.leaves} >= {"action"}


class Wide(Drift):
    observation_space = BOX


async def test_another_env_is_refused_before_anything_is_reset(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    resets = Drift.resets
    with pytest.raises(ContractChanged) as refused:
        await closed(a, b, live(Wide))
    assert Drift.resets == resets
    assert not b.exists()
    assert "obs.shape was (3,) and is (2,)" in str(refused.value)
    assert "\n" not in str(refused.value)


class Renamed(Drift):
    metadata = {"render_modes": [], "version": 2}  # noqa: RUF012 - gymnasium's own


async def test_force_goes_on(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    with pytest.raises(ContractChanged):
        await closed(a, b, live(Renamed))
    await closed(a, b, live(Renamed), force=True)
    found = judged(a, b)
    assert [each.path for each in found.contract] == ["metadata.version"]
    assert found.divergences == ()


def fail(_: Drift) -> None:
    raise RuntimeError("it broke")


async def test_an_env_that_fails_is_a_difference(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    await closed(a, b, live(lambda: Drift(at(4, 2, fail))))
    found = judged(a, b)
    assert found.missing == tuple(range(5, EPISODES + 1))
    (told,) = found.divergences
    assert (told.ordinal, told.first.step, told.first.leaves[0].part) == (4, 2, "error")


async def test_a_failure_that_repeats_is_none(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    def broken() -> Drift:
        return Drift(at(4, 2, fail))

    with pytest.raises(Exception, match="it broke"):
        await record(a, broken)
    await closed(a, b, live(broken))
    found = judged(a, b)
    assert found.equal
    assert found.compared == 4


async def test_a_model_that_fails_is_no_answer(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    calls: list[None] = []

    def tired(observations: Any) -> Any:
        calls.append(None)
        if len(calls) == 9:
            raise EndpointError("INTERNAL", "no more")
        return back(observations)

    with pytest.raises(ModelRpcError, match="no more"):
        await closed(a, b, live(policy=tired))
    assert verify(b).problems == ()
    assert ordinals(b) == [1, 2]


async def test_a_lost_connection_is_no_answer(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    gone = Scripted(4, faults=[Fault("step", Fail("CONNECTION", "gone"), 6)])
    with pytest.raises(EnvRpcError, match="gone"):
        await closed(a, b, scripted(gone, Resolved()))
    assert verify(b).problems == ()
    assert ordinals(b) == [1, 2]


async def test_what_cannot_be_played(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    recorded(a, episodes(1, 2, 3), Header(contract=contract_of(1)))
    with pytest.raises(NotReplayable, match="of no run with a model"):
        await closed(a, b, live())
    await record(a)
    with pytest.raises(NotReplayable, match="has no episode 10; it has 1 to 9"):
        await closed(a, b, live(), episodes=[2, 10])
    with pytest.raises(NotReplayable, match="needs a live env"):
        await closed(a, b, Live(model=live().model))
    with pytest.raises(NotReplayable, match="needs a live model"):
        await closed(a, b, Live(env=live().env))
    with pytest.raises(RecordingError, match="name another file"):
        await closed(a, a, live())
    assert not b.exists()


async def test_cancelled_it_leaves_a_whole_recording(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    with trio.CancelScope() as scope:
        await closed(a, b, live(lambda: Drift(at(5, 2, lambda _: scope.cancel()))))
    assert scope.cancelled_caught
    assert verify(b).problems == ()
    found = judged(a, b)
    assert found.divergences == ()
    assert found.unfinished == (5,)
