"""What becomes of a play that ends before its end: what was compared is told, and what broke it off."""

from pathlib import Path

import trio

from rlmesh_trio.errors import EnvRpcError, OperationTimeout
from rlmesh_trio.recording import open_recording
from rlmesh_trio.replay.judging import Judgement, Wanted, judge, mode_of
from rlmesh_trio.replay.plays import Plays
from rlmesh_trio.testing import Fail, Fault, Hang
from tests.replay.playing import Resolved, Scripted, record_scripted, scripted


async def judged(folder: Path, *faults: Fault) -> Judgement:
    """What is found of four episodes of four steps, the env having these *faults* when they are played again."""
    await record_scripted(folder / "a", Scripted(4), Resolved())
    live = scripted(Scripted(4, faults=list(faults)), Resolved())
    with open_recording(folder / "a") as recording:
        found = Judgement(mode=mode_of(live))
        await judge(Plays(recording=recording, live=live, folder=str(folder)), Wanted(blame=True), found)
    return found


async def test_an_env_that_does_not_answer_in_time(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    found = await judged(tmp_path, Fault("step", Hang(), 6))
    assert found.played is not None
    assert isinstance(found.played.failure, OperationTimeout)
    assert found.comparison is not None
    assert (found.comparison.compared, found.comparison.unfinished, found.comparison.equal) == (2, (2,), True)
    assert not found.played.whole
    assert (found.blamed, found.cause, found.as_recorded) == (None, None, 0)


async def test_a_lost_connection(tmp_path: Path) -> None:
    found = await judged(tmp_path, Fault("step", Fail("CONNECTION", "gone"), 6))
    assert found.played is not None
    assert isinstance(found.played.failure, EnvRpcError)
    assert not found.played.whole
    assert found.comparison is not None
    assert (found.comparison.compared, found.comparison.equal) == (1, True), "what was cut off is not the env's doing"
