"""Envs in threads and in worker processes. Real time, kept short: what hangs here hangs until it is given up."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from rlmesh_trio.endpoints.local_env import LocalEnv, open_local_env
from rlmesh_trio.errors import ConnectError, EndpointError
from rlmesh_trio.messages import EnvReply
from tests.endpoints.asking import at, discrete, observed, start
from tests.endpoints.toys import Clinging, Counter, Script, picture, vector

TOYS = "tests.endpoints.toys"


def info(reply: EnvReply) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", reply.infos)


async def give_up(ask: Callable[[], Any], limit: float = 0.05) -> None:
    with trio.move_on_after(limit) as scope:
        await ask()
    assert scope.cancelled_caught


async def test_a_lane_keeps_one_thread_from_its_making_to_its_closing() -> None:
    made: list[Counter] = []

    def make(lane: int) -> Counter:
        made.append(Counter(length=2, lane=lane))
        return made[-1]

    async with open_local_env(make, lanes=2, where="thread") as env:
        await start(env, ids=("a", "b"), seeds=(1, 2))
        await env.step(discrete(0, 1), at())
        reply = await env.step(discrete(0, 1), at())
        assert observed(env, reply, 2)[:, 1].tolist() == [0, 1]
        assert {record.episode_id for record in reply.completed} == {"a", "b"}
    assert [env.threads for env in made] == [{env.thread} for env in made]
    assert len({env.thread for env in made} | {threading.get_ident()}) == 3


async def test_lanes_in_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2)

    class Meeting(Counter):
        def step(self, action: Any) -> Any:
            meeting.wait(5)
            return super().step(action)

    async with open_local_env(Meeting, lanes=2, where="thread") as env:
        await start(env, ids=())
        async with trio.open_nursery() as nursery:
            for lane in (0, 1):
                nursery.start_soon(env.step, discrete(lane), at(lane))


async def test_an_operation_given_up_in_a_thread_loses_that_lane_alone(caplog: pytest.LogCaptureFixture) -> None:
    hung, well = Script({1: "hang"}), Script({}, lane=1)
    async with open_local_env([hung, well], where="thread") as env:
        await start(env, ids=())
        await give_up(lambda: env.step(discrete(0), at(0)))
        for ask in (env.step(discrete(0), at(0)), start(env, 0)):
            with pytest.raises(EndpointError, match="lane 0 is lost") as caught:
                await ask
            assert caught.value.code == "INTERNAL"
        await env.step(discrete(0), at(1))
    assert (hung.closed, well.closed) == (0, 1)
    assert "lane 0 did not come back in time" in caplog.text
    hung.released.set()


async def test_a_lost_lane_whose_operation_has_ended_is_still_closed() -> None:
    toy = Script({1: "hang"})
    async with open_local_env(toy, where="thread") as env:
        await start(env)
        await give_up(lambda: env.step(discrete(0), at()))
        toy.released.set()
        with pytest.raises(EndpointError, match="lane 0 is lost"):
            await env.step(discrete(0), at())
        await trio.sleep(0.05)
    assert toy.closed == 1


async def test_a_thread_hands_on_what_the_env_raises() -> None:
    async with open_local_env(Script({1: "raise"}), where="thread") as env:
        await start(env)
        with pytest.raises(EndpointError, match="step failed: RuntimeError: toy fault") as caught:
            await env.step(discrete(0), at())
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_factory_that_hangs_in_a_thread_can_be_given_up() -> None:
    release = threading.Event()

    def make() -> Counter:
        release.wait(60)
        return Counter()

    async def open_it() -> None:
        async with open_local_env(make, where="thread"):
            pass

    await give_up(open_it)
    release.set()


def children() -> set[int]:
    while True:
        tasks = Path("/proc/self/task").iterdir()
        # A thread that ends while we look hands its children to another one: look again.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def is_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def until_dead(pid: int) -> None:
    """Wait for a process to be a zombie, which it stays until it is reaped."""
    with trio.fail_after(5):
        while not is_dead(pid):  # noqa: ASYNC110 - there is nobody to set an event
            await trio.sleep(0.005)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for leaks in /proc")


@needs_proc
async def test_worker_processes_answer_like_this_one_and_leave_nothing_behind(
    capfd: pytest.CaptureFixture[str],
) -> None:
    files, running = open_files(), children()
    async with open_local_env(f"{TOYS}:counter", lanes=2, where="process") as env:
        assert (env.contract.num_envs, env.contract.env_id, env.subset_step) == (2, "UnknownEnv-v1", True)
        reply = await start(env, ids=("a", "b"), seeds=(1, 2))
        assert info(reply)["final_info"] == [{"lane": 0}, {"lane": 1}]
        for _ in range(3):
            reply = await env.step(discrete(1, 2), at(ids=("a", "b")))
        assert observed(env, reply, 2).tolist() == [[3, 1, 0], [3, 2, 1]]
        pids = {lane["pid"] for lane in info(reply)["final_info"]}
        assert len(pids) == 2
        assert pids == children() - running
        assert [(r.episode_id, r.seed, r.cumulative_reward) for r in reply.completed] == [("a", 1, 3.0)]
        with pytest.raises(EndpointError, match="above the highest") as caught:
            await env.step(discrete(7), at(0))
        assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)
    assert (open_files(), children()) == (files, running)


@needs_proc
async def test_what_goes_wrong_in_a_worker_process_is_told_for_its_lane_alone() -> None:
    files, running = open_files(), children()
    async with open_local_env(f"{TOYS}:faulty", lanes=4, where="process") as env:
        await start(env, ids=())
        reply = await env.step(discrete(0, 0, 0, 0), at())
        pids = [lane["pid"] for lane in info(reply)["final_info"]]

        with pytest.raises(EndpointError, match="step failed: RuntimeError: toy fault") as raised:
            await env.step(discrete(0), at(0))
        assert any("Traceback" in note and "toys.py" in note for note in raised.value.__notes__)
        await env.step(discrete(0), at(0))

        await give_up(lambda: env.step(discrete(0), at(1)))
        await until_dead(pids[1])
        with pytest.raises(EndpointError, match="lane 1 is lost"):
            await env.step(discrete(0), at(1))

        for lane, how in ((2, "was killed by SIGKILL"), (3, "exited with status 3")):
            for _ in range(2):
                with pytest.raises(EndpointError, match=f"the worker process of lane {lane} {how}") as crashed:
                    await env.step(discrete(0), at(lane))
                assert (crashed.value.code, crashed.value.recoverable) == ("CRASHED", False)
        await env.step(discrete(0), at(0))
    assert (open_files(), children()) == (files, running)


async def test_a_worker_process_keeps_its_answers_apart_from_what_the_env_prints(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    async with open_local_env(f"{TOYS}:chatty", where="process") as env:
        await start(env)
        await env.step(discrete(0), at())
        out, err = capfd.readouterr()
        assert (out, "stepped" in err) == ("", True), "a process that is killed later has said it"
        with pytest.raises(EndpointError, match="infos cannot leave its process: TypeError"):
            await env.step(discrete(0), at())
        reply = await env.step(discrete(0), at())
        assert info(reply)["rlmesh.conformance.warning"][0]["kind"] == "observation"


async def test_a_factory_of_no_module_and_a_vector_can_go_to_a_process() -> None:
    count = 2

    async with open_local_env(lambda: vector(count), where="process") as env:
        assert (env.contract.num_envs, env.subset_step) == (2, False)
        await start(env, ids=("a", "b"))
        await env.step(discrete(0, 0), at())
        reply = await env.step(discrete(0, 0), at())
        assert [record.episode_id for record in reply.completed] == ["a"]
        assert info(reply)["t"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (f"{TOYS}:broken", "raised ValueError: no such simulator"),
        (f"{TOYS}:dies", "the worker process of lane 0 exited with status 7"),
    ],
)
async def test_a_worker_process_that_cannot_make_its_env_is_a_clear_error(source: str, says: str) -> None:
    with pytest.raises(ConnectError, match=says):
        async with open_local_env(source, where="process"):
            pass


async def test_only_what_can_be_made_anew_goes_to_a_process() -> None:
    with pytest.raises(ConnectError, match="exists already"):
        async with open_local_env(Counter(), where="process"):
            pass
    lock = threading.Lock()
    with pytest.raises(ConnectError, match="cannot be sent to a process"):
        async with open_local_env(lambda: Counter(bool(lock)), where="process"):
            pass


@needs_proc
async def test_a_worker_process_that_is_still_starting_can_be_given_up() -> None:
    files, running = open_files(), children()

    async def open_it() -> None:
        async with open_local_env(f"{TOYS}:sleeper", where="process"):
            pass

    await give_up(open_it, 0.2)
    assert (open_files(), children()) == (files, running)


@needs_proc
async def test_an_env_that_will_not_close_is_left_or_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = children()
    for module in ("lane_workers", "lane_process"):
        monkeypatch.setattr(f"rlmesh_trio.endpoints.{module}.CLOSE_GRACE", 0.1)
    async with open_local_env(f"{TOYS}:Clinging", where="process") as env:
        await start(env)
    assert "lane 0 did not close in time and was killed" in caplog.text
    assert children() == running
    async with open_local_env(Clinging(), where="thread") as env:
        await start(env)
    assert "lane 0 did not come back in time" in caplog.text
    Clinging.released.set()


async def test_an_env_is_closed_when_a_step_that_was_given_up_has_come_back(caplog: pytest.LogCaptureFixture) -> None:
    go_on, closed = threading.Event(), threading.Event()

    class Waiting(Counter):
        def step(self, action: Any) -> Any:
            go_on.wait(60)
            return super().step(action)

        def close(self) -> None:
            closed.set()

    async def let_go() -> None:
        await trio.sleep(0.1)
        go_on.set()

    async with trio.open_nursery() as nursery, open_local_env(Waiting, where="thread") as env:
        await start(env)
        await give_up(lambda: env.step(discrete(0), at()))
        nursery.start_soon(let_go)
    assert closed.is_set()
    assert caplog.text == ""


async def test_large_observations_cross_in_pieces() -> None:
    async with open_local_env(f"{TOYS}:Picture", where="process") as env:
        reply = await start(env, seeds=(4,))
        assert observed(env, reply)[0].tolist() == picture(4).tolist()
        reply = await env.step(discrete(1), at())
        assert observed(env, reply)[0].tolist() == picture(1).tolist()


async def test_a_worker_process_ends_when_it_is_stopped_from_outside() -> None:
    """An interrupt from the terminal reaches the whole process group: the worker leaves it to its parent."""

    async def step(env: LocalEnv) -> int:
        return info(await env.step(discrete(0), at()))["pid"]

    async with open_local_env(f"{TOYS}:Counter", where="process") as env:
        await start(env)
        pid = await step(env)
        os.kill(pid, signal.SIGINT)
        assert await step(env) == pid
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(EndpointError, match="was killed by SIGTERM"):
            await step(env)
