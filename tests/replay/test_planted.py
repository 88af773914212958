"""What is planted in an env or a policy is found and named: where first, by how much, whose it is, what it hangs on."""

import tempfile
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlmesh_trio.errors import EnvRpcError
from rlmesh_trio.recording import open_recording
from rlmesh_trio.replay.bisection import Cause
from rlmesh_trio.replay.judgement_told import judgement_lines
from rlmesh_trio.replay.judging import Judgement, Wanted, judge, mode_of
from rlmesh_trio.replay.live import Live
from rlmesh_trio.replay.plays import Plays
from tests.replay import planted
from tests.replay.planted import record_walk, steady
from tests.replay.playing import live as anything_live


def live(env: object = planted.Walker, policy: object = steady) -> Live:
    return anything_live(env, policy)


async def judged(recorded: Path, live: Live, *, wanted: Wanted = Wanted(blame=True), **given: Any) -> Judgement:  # noqa: B008
    """What is found out when *recorded* is played again with what is *live*."""
    folder = tempfile.mkdtemp(dir=recorded.parent)
    with open_recording(recorded) as recording:
        found = Judgement(mode=mode_of(live))
        await judge(Plays(recording=recording, live=live, folder=folder, **given), wanted, found)
    return found


@attrs.frozen
class Planted:
    """What is live, and what is to be found: where, the leaf, whose it is, and what the episode hangs on."""

    env: object
    place: tuple[int, int] | None
    leaf: str
    shape: str = ""
    index: tuple[int, ...] = ()
    ulps: int | None = None
    blame: str = "env"
    policy: object = steady
    recorded_with: object = steady
    after: tuple[int, ...] = ()
    verdict: str = "repeats"


TABLE = {
    "noise in one leaf": Planted(planted.Noise, (4, 2), "obs.qpos", "sudden", (1,)),
    "a seed ignored": Planted(planted.Deaf, (5, 0), "obs.qpos", "from the first observation", (0,)),
    "a draw too many": Planted(planted.Greedy, (6, 3), "obs.qpos", "sudden", (0,)),
    "state kept over reset": Planted(planted.Worn, (7, 1), "obs.qpos", "state kept over reset", (0,), after=(2,)),
    "one ulp": Planted(planted.Rounding, (3, 2), "obs.qpos", "growing from one ulp", (1,), ulps=1),
    "a reward's sign": Planted(planted.Flipped, (8, 3), "reward", "sudden"),
    "an info": Planted(planted.Gossip, (3, 2), "info.height", "info only"),
    "another policy": Planted(
        planted.Walker,
        (1, 1),
        "action",
        "state kept over reset",
        blame="model",
        policy=planted.contrary,
        verdict="other",
    ),
    "a policy that draws": Planted(
        planted.Walker, None, "action", blame="model", policy=planted.whimsical, verdict="random"
    ),
    "a policy that hangs on its batch": Planted(
        planted.Walker,
        (1, 1),
        "action",
        "state kept over reset",
        blame="model",
        policy=planted.crowded,
        recorded_with=planted.crowded,
        verdict="batch",
    ),
    "a policy that remembers": Planted(
        planted.Walker,
        (7, 1),
        "action",
        "state kept over reset",
        blame="model",
        policy=planted.Grudge,
        after=(2,),
        verdict="other",
    ),
    "something between the two": Planted(
        planted.Whispering,
        (1, 1),
        "action",
        "state kept over reset",
        blame="pair",
        policy=planted.listening,
        recorded_with=planted.listening,
    ),
    "both": Planted(
        planted.Noise, (1, 1), "action", "state kept over reset", blame="both", policy=planted.contrary, verdict="other"
    ),
}


@pytest.mark.parametrize("name", TABLE)
async def test_what_is_planted_is_named(name: str, tmp_path: Path) -> None:
    case = TABLE[name]
    await record_walk(tmp_path / "a", case.recorded_with, lanes=3)
    found = await judged(tmp_path / "a", live(case.env, case.policy), lanes=1)
    assert found.played is not None
    told = found.played.parts_at
    assert told is not None
    if case.place:
        assert (told.ordinal, told.first.step, told.shape) == (*case.place, case.shape)
    leaf = told.first.leaves[0]
    assert (leaf.path, leaf.index) == (case.leaf, case.index)
    assert leaf.values is not None
    assert leaf.bits[0] != leaf.bits[1] or leaf.part == "action"
    assert case.ulps in (None, leaf.ulps)
    assert (told.seed, told.equal_before) == (100 + told.ordinal, told.ordinal - 1)
    assert found.blamed is not None
    assert found.blamed.model is not None
    assert (found.blamed.blame, found.blamed.model.verdict, found.blamed.why) == (case.blame, case.verdict, "")
    assert found.cause is not None
    assert (found.cause.kind, found.cause.episodes) == ("after" if case.after else "alone", case.after)
    assert found.remarks == []


@pytest.mark.parametrize("name", ["noise in one leaf", "a draw too many", "state kept over reset", "one ulp"])
async def test_of_digests_a_closer_look_is_taken(name: str, tmp_path: Path) -> None:
    case = TABLE[name]
    await record_walk(tmp_path / "a", level="digest")
    found = await judged(tmp_path / "a", live(case.env))
    assert found.mode == "i"
    assert found.focus is not None
    assert (found.focus.ordinal, found.focus.until) == case.place
    if name == "noise in one leaf":
        between = found.focus.between
        assert between is not None
        assert (between.first.step, between.first.leaves[0].path, between.first.leaves[0].index) == (
            2,
            "obs.qpos",
            (1,),
        )
        assert between.first.leaves[0].values is not None
    else:
        assert found.focus.between is None
        assert found.focus.as_recorded == (name == "state kept over reset")
    assert found.blamed is not None
    assert (found.blamed.blame, found.blamed.model) == ("env", None)
    assert "digests" in found.blamed.why


async def test_the_env_shows_again_what_a_model_is_blamed_by(tmp_path: Path) -> None:
    await record_walk(tmp_path / "a", level="digest", lanes=2)
    found = await judged(tmp_path / "a", live(planted.Walker, planted.contrary))
    assert found.focus is None
    assert found.blamed is not None
    assert found.blamed.model is not None
    assert (found.blamed.blame, found.blamed.model.verdict) == ("model", "other")


async def test_a_recorded_episode_that_was_spoiled(tmp_path: Path) -> None:
    await record_walk(tmp_path / "a", env=planted.Worn)
    found = await judged(tmp_path / "a", live(planted.Worn), lanes=9)
    assert found.cause == Cause("recorded after", (2,), same_lane=True, plays=found.cause.plays if found.cause else 0)


async def test_what_outlives_a_play_cannot_be_bisected(tmp_path: Path) -> None:
    marks: list[str] = []

    class Scarred(planted.Walker):
        """Heals once."""

        def before(self) -> None:
            if self.at(2, 1):
                marks.append("worn")
            if self.at(7, 1) and "worn" in marks:
                self.qvel = self.qvel + np.full(3, 0.5, np.float32)
                if "healed" not in marks:
                    marks[:] = ["healed"]

    await record_walk(tmp_path / "a")
    found = await judged(tmp_path / "a", live(Scarred))
    assert found.cause == Cause("lasting", (1, 2, 3, 4, 5, 6), same_lane=True, is_smallest=False, plays=5)


async def test_chance_is_not_taken_for_what_carries_over(tmp_path: Path) -> None:
    moods = iter([True, False, True, False])

    class Moody(planted.Walker):
        """Differs as it happens: in the run and after others, not by itself, and always from then on."""

        def before(self) -> None:
            if self.at(7, 1) and next(moods, True):
                self.qvel = self.qvel + np.full(3, 0.5, np.float32)

    await record_walk(tmp_path / "a")
    found = await judged(tmp_path / "a", live(Moody), wanted=Wanted())
    assert found.cause is not None
    assert found.cause.kind == "chance"
    assert "chance plays a part" in "".join(judgement_lines(found))


async def test_another_contract_is_told_before_anything_is_played(tmp_path: Path) -> None:
    await record_walk(tmp_path / "a")
    found = await judged(tmp_path / "a", live(planted.Renewed))
    assert found.is_refused
    assert found.comparison is not None
    assert [(field.path, field.now) for field in found.comparison.contract] == [("metadata.version", "2")]
    forced = await judged(tmp_path / "a", live(planted.Renewed), force=True)
    assert forced.comparison is not None
    assert (forced.comparison.equal, forced.comparison.divergences) == (False, ())


async def test_an_env_that_breaks(tmp_path: Path) -> None:
    await record_walk(tmp_path / "a")
    found = await judged(tmp_path / "a", live(planted.Frail))
    assert found.comparison is not None
    assert found.comparison.missing == (5, 6, 7, 8, 9)
    told = found.comparison.divergences[0]
    assert (told.ordinal, told.first.step, told.first.leaves[0].part) == (4, 2, "error")
    assert found.blamed is not None
    assert found.blamed.blame == "env"


@pytest.mark.parametrize("broken", ["step", "reset"])
async def test_a_run_that_its_env_broke_off_may_be_played_on_other_lanes(broken: str, tmp_path: Path) -> None:
    class Crippled(planted.Walker):
        """Fails at the same place each time, while the episodes after that are under way on other lanes."""

        def heard(self, seed: int | None) -> int | None:
            if broken == "reset" and self.ordinal == 4:
                raise RuntimeError("no leg")
            return seed

        def before(self) -> None:
            if broken == "step" and self.at(4, 2):
                raise RuntimeError("a leg broke")

    with pytest.raises(EnvRpcError):
        await record_walk(tmp_path / "a", env=Crippled, lanes=3)
    with open_recording(tmp_path / "a") as recording:
        cut = [each for each, entry in recording.entries.items() if entry.end == "interrupted"]
    assert cut
    for lanes in (1, 2, 3, 9):
        found = await judged(tmp_path / "a", live(Crippled), lanes=lanes)
        assert found.comparison is not None
        assert (found.comparison.equal, found.comparison.missing, found.blamed) == (True, (), None)


async def test_an_interrupted_episode_that_can_no_longer_begin_is_missing(tmp_path: Path) -> None:
    class Lamer(planted.Frail):
        def heard(self, seed: int | None) -> int | None:
            if self.ordinal == 5:
                raise RuntimeError("no leg")
            return seed

    with pytest.raises(EnvRpcError):
        await record_walk(tmp_path / "a", env=planted.Frail, lanes=3)
    found = await judged(tmp_path / "a", Live(env=live(Lamer).env), wanted=Wanted())
    assert found.comparison is not None
    assert found.comparison.missing == (5,)


@pytest.mark.parametrize(
    ("policy", "verdict"), [(planted.whimsical, "random"), (planted.crowded, "batch"), (steady, "repeats")]
)
async def test_a_model_alone_is_asked_in_batches_and_row_by_row(policy: object, verdict: str, tmp_path: Path) -> None:
    await record_walk(tmp_path / "a", policy, lanes=3)
    found = await judged(tmp_path / "a", Live(model=live(policy=policy).model))
    assert found.model is not None
    assert found.model.single is not None
    assert found.model.verdict == verdict
    assert found.model.batched.differs == (verdict == "random")
    assert found.model.single.differs == (verdict != "repeats")


async def test_runs_are_compared_with_each_other(tmp_path: Path) -> None:
    await record_walk(tmp_path / "a", max_episodes=3)
    steadily = await judged(tmp_path / "a", live(planted.Walker), wanted=Wanted(runs=3))
    assert (steadily.traces, steadily.as_recorded) == ((3,), 3)
    envs = iter([planted.Walker, planted.Rounding, planted.Deaf, planted.Rounding, planted.Walker])

    def made() -> planted.Walker:
        return next(envs)()

    mixed = await judged(tmp_path / "a", live(made), wanted=Wanted(runs=5, bisect=False, episodes=(1, 3)))
    assert (mixed.traces, mixed.as_recorded) == ((3, 2), 3)
    assert mixed.played is not None
    assert mixed.played.differs


async def test_a_run_that_breaks_off_is_the_one_that_is_told(tmp_path: Path) -> None:
    asked: list[None] = []

    def tiring(observations: Any) -> Any:
        asked.append(None)
        if len(asked) > 20:
            raise RuntimeError("too tired")
        return steady(observations)

    await record_walk(tmp_path / "a", max_episodes=3)
    found = await judged(tmp_path / "a", live(policy=tiring), wanted=Wanted(runs=2))
    assert found.as_recorded == 1
    assert found.played is not None
    assert "too tired" in str(found.played.failure)
    assert not found.played.whole
    assert found.cause is None
