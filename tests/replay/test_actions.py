"""Recorded actions into a live env: episode by episode where each stands for itself, else request by request."""

from pathlib import Path
from typing import Any

import pytest
import trio

from rlmesh_trio.conformance.player import EpisodeIds, play
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.trace_recording import record_traces
from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.errors import EnvRpcError, OperationTimeout
from rlmesh_trio.recording import RecordingError, open_recording, verify
from rlmesh_trio.replay.actions import play_actions
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.live import Live
from rlmesh_trio.testing import Fail, Fault, Hang
from rlmesh_trio.testing.faults import Operation
from tests.replay.playing import (
    QUICK,
    Drift,
    Resolved,
    Scripted,
    at,
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
from tests.replay.test_closed import Renamed, Wide, fail


async def acted(recording: Path, out: Path, live: Live, **given: Any) -> None:
    with open_recording(recording) as opened:
        footer = await play_actions(opened, live, out, **given)
    with open_recording(out) as played:
        assert played.footer == footer


@pytest.mark.parametrize("level", ["digest", "full"])
@pytest.mark.parametrize(("lanes", "now"), [(1, 1), (1, 7), (2, 3), (7, 1)])
async def test_an_env_that_repeats(lanes: int, now: int, level: str, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, lanes=lanes, level=level, max_episode_steps=6)
    await acted(a, b, live(lanes=now, policy=None))
    assert same(a, b)
    with open_recording(b) as played:
        assert {entry.end for entry in played.entries.values()} == {"capped", "terminated"}
        assert played.header.level == "full"


async def test_episodes_are_played_in_the_order_they_are_named(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, lanes=2)
    await acted(a, b, live(lanes=3), episodes=[7, 2, 5], level="digest")
    assert judged(a, b, episodes=[2, 5, 7]).equal
    with open_recording(b) as played:
        assert [tick.begins[0] for tick in played.ticks() if tick.reset] == [7, 2, 5]
        assert {tick.lanes for tick in played.ticks()} == {(0,)}
        assert played.header.level == "digest"


@pytest.mark.parametrize("until", [0, 2, 99])
async def test_none_is_played_past_a_step(until: int, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    await acted(a, b, live(), until=until)
    assert [len(rows(b, n)) for n in ordinals(b)] == [min(until + 1, len(rows(a, n))) for n in ordinals(a)]
    assert judged(a, b).divergences == ()


@pytest.mark.parametrize("until", [None, 2])
async def test_a_vector_is_played_request_by_request(until: int | None, tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    await record(a, vector, base_seed=3, episode_seeds=(), level="digest")
    await acted(a, b, live(vector))
    assert same(a, b)
    await acted(a, c, live(vector), episodes=[2, 4], until=until)
    found = judged(a, c, episodes=[2, 4])
    assert found.equal
    assert found.unfinished == (() if until is None else (4,))
    with open_recording(b) as whole, open_recording(c) as cut:
        assert cut.footer
        assert whole.footer
        assert cut.footer.ticks < whole.footer.ticks


async def test_a_vector_whose_lanes_are_reset_by_name(tmp_path: Path) -> None:
    def whole() -> Any:
        return vector(mode="DISABLED")

    await record(tmp_path / "reseeded", vector, seed_every_episode=True)
    await acted(tmp_path / "reseeded", tmp_path / "again", live(vector))
    assert same(tmp_path / "reseeded", tmp_path / "again")
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    await record(a, whole, partial_reset=True)
    await acted(a, b, live(whole))
    assert same(a, b)
    await acted(a, c, live(lanes=2), force=True)
    assert judged(a, c).divergences == (), "each episode stands for itself, and plays on lanes as well"
    await record(tmp_path / "d")
    with pytest.raises(NotReplayable, match="moves its 3 lanes together"):
        await acted(tmp_path / "d", tmp_path / "e", live(whole), force=True)


def lengthen(env: Drift) -> None:
    env.length = 12


async def test_a_lane_that_restarts_elsewhere_plays_none_of_the_recorded_episodes(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, vector, base_seed=3, episode_seeds=())
    begun = rows(a, 2)[0].reset
    assert begun is not None
    await acted(a, b, live(lambda: vector(at(begun.seeds[0] - 100, 1, lengthen))))
    found = judged(a, b)
    assert [each.ordinal for each in found.divergences] == [2]
    assert found.missing
    lanes = {rows(a, ordinal)[0].lane for ordinal in found.missing}
    assert lanes == {rows(a, 2)[0].lane}


async def test_lanes_count_where_runs_repeat_lane_by_lane(tmp_path: Path) -> None:
    a = tmp_path / "a"
    await record(a, vector, base_seed=3, episode_seeds=())
    with pytest.raises(NotReplayable, match=r"on 3 lanes, and plays on as many only, not on 2$"):
        await acted(a, tmp_path / "b", live(lambda: vector(lanes=2)))


def nudge(env: Drift) -> None:
    env.place[1] += 1e-3


async def test_the_first_step_that_differs_is_found(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, lanes=2)
    await acted(a, b, live(lambda: Drift(at(4, 2, nudge))))
    (found,) = judged(a, b).divergences
    assert (found.ordinal, found.first.step, found.seed) == (4, 2, 104)
    assert [(leaf.part, leaf.index) for leaf in found.first.leaves] == [("observation", (1,))]


async def test_an_episode_ends_where_the_env_ends_it(tmp_path: Path) -> None:
    def cut(env: Drift) -> None:
        env.length = 2

    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    await acted(a, b, live(lambda: Drift(at(4, 2, cut))))
    (found,) = judged(a, b).divergences
    assert found.ordinal == 4
    assert found.steps[1] == 2
    assert found.ends == ("terminated", "terminated")


@pytest.mark.parametrize(("kind", "code"), [("fails", "INTERNAL"), ("hangs", "TIMEOUT")])
@pytest.mark.parametrize(("operation", "call"), [("step", 6), ("reset", 2)])
async def test_what_fails_ends_its_episode_alone(
    kind: str, code: str, operation: Operation, call: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    action = Fail("INTERNAL", "it broke") if kind == "fails" else Hang()
    await acted(a, b, scripted(Scripted(4, faults=[Fault(operation, action, call)])))
    found = judged(a, b)
    if operation == "reset":
        assert (found.missing, found.divergences) == ((2,), ())
        with open_recording(b) as played:
            assert [tick.error.code for tick in played.ticks() if tick.error] == [code]
    else:
        (told,) = found.divergences
        assert (told.ordinal, told.first.step, told.ends) == (2, 2, ("terminated", "error"))
        assert [leaf.values for leaf in told.first.leaves] == [("an answer", code)]


@pytest.mark.parametrize("lanes", [1, 3])
async def test_a_lost_connection_ends_the_play(lanes: int, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record_scripted(a, Scripted(4), Resolved())
    gone = Fault("step", Fail("CONNECTION", "gone"), 6)
    with pytest.raises(EnvRpcError, match="gone") as lost:
        await acted(a, b, scripted(Scripted(*[4] * lanes, faults=[gone])))
    assert (lost.value.code, lost.value.operation) == ("CONNECTION", "env.step")
    assert verify(b).problems == ()
    assert ordinals(b) == [1, 2, 3, 4][: max(2, lanes)]


async def test_what_was_never_answered_is_not_asked_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with pytest.raises(OperationTimeout):
        await record_scripted(a, Scripted(4, faults=[Fault("step", Hang(), 6)]), Resolved(), limits=QUICK)
    assert not rows(a, 2)[-1].answered
    await acted(a, b, scripted(Scripted(4)))
    found = judged(a, b)
    assert found.compared == 2
    assert found.run_roots[0] == found.run_roots[1]


async def test_lanes_that_failed_are_not_stepped_until_they_are_reset(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, vector, base_seed=3, episode_seeds=())
    begun = rows(a, 2)[0].reset
    assert begun is not None
    await acted(a, b, live(lambda: vector(at(begun.seeds[0] - 100, 2, fail))))
    found = judged(a, b)
    assert {(each.first.step, each.ends[1]) for each in found.divergences} == {(2, "error")}
    with open_recording(b) as played:
        assert [tick.error is not None for tick in played.ticks()] == [False, False, True]


async def test_a_failed_conformance_case_is_played_as_it_was_asked(tmp_path: Path) -> None:
    """Two traces one after the other: lanes reset and stepped by name and all at once, and an action refused."""
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    one, bad = (b"\x01" + bytes(7),), (b"\x09" + bytes(7),)
    script = Script(
        2,
        (
            Reset((1, 2)),
            Step((one, one)),
            Step((one,), (1,)),
            Step((bad,), (0,)),
            Wait(0.01),
            Reset((5,), lanes=(0,)),
            Step((one, one), (1, 0)),
        ),
    )
    async with open_local_env(Drift, lanes=2) as env:
        facts = Facts("here", env.contract, env.subset_step, frozenset(), factory=False, local=True)
        ids = EpisodeIds()
        traces = [
            await play(env, script, facts, ids=ids, step_timeout=5.0),
            await play(
                env,
                Script(2, (Reset((3, 4)), Step((one, one)))),
                facts,
                ids=ids,
                step_timeout=5.0,
            ),
        ]
        record_traces(a, traces, env.contract, check="seed.repeats", blob="c-x")
    assert [answer.refusal.code for trace in traces for answer in trace.answers if answer.refusal] == ["INVALID_ACTION"]
    await acted(a, b, live())
    found = judged(a, b)
    assert found.equal
    assert found.compared == 5
    assert found.run_roots[0] == found.run_roots[1]
    with open_recording(a) as before, open_recording(b) as after:
        assert [tick.lanes for tick in after.ticks()] == [tick.lanes for tick in before.ticks()]
    await acted(a, c, live(lambda: Drift(at(-95, 1, fail))))
    told = judged(a, c).divergences
    assert [(each.ordinal, each.first.leaves[0].part) for each in told] == [(2, "error"), (3, "error")]
    with pytest.raises(NotReplayable, match="not on 3"):
        await acted(a, c, live(lanes=3))


async def test_another_env_is_refused_before_anything_is_reset(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    resets = Drift.resets
    for other in (Wide, Renamed):
        with pytest.raises(ContractChanged):
            await acted(a, b, live(other))
    assert Drift.resets == resets
    assert not b.exists()
    await acted(a, b, live(Renamed), force=True)
    assert judged(a, b).divergences == ()


async def test_what_cannot_be_played(tmp_path: Path) -> None:
    a = tmp_path / "a"
    await record(a)
    with pytest.raises(NotReplayable, match="needs a live env"):
        await acted(a, tmp_path / "b", Live(model=live().model))
    with pytest.raises(NotReplayable, match="has no episode 0"):
        await acted(a, tmp_path / "b", live(), episodes=[0])
    with pytest.raises(RecordingError, match="name another file"):
        await acted(a, a, live())
    with pytest.raises(RecordingError, match="cannot be written"):
        await acted(a, tmp_path / "no" / "b", live())


async def test_cancelled_it_leaves_a_whole_recording(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a)
    with trio.CancelScope() as scope:
        await acted(a, b, live(lambda: Drift(at(5, 2, lambda _: scope.cancel()))))
    assert scope.cancelled_caught
    assert verify(b).problems == ()
    assert judged(a, b).unfinished == (5,)
