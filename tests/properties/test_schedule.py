"""The canary of seeded task orders: it fails when trio orders its tasks in another way than this package knows."""

import random
import signal
from importlib import import_module
from typing import Any

import pytest
import trio

from rlmesh_trio.testing.schedule import (
    SchedulerUnknown,
    Stalled,
    TookTooLong,
    VirtualClock,
    real_time_limit,
    run_virtual,
    seeded_schedule,
)

INTERNALS: Any = import_module("trio._core._run")


class Trace(trio.abc.Instrument):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps.append(task.name)


def trace(seed: int) -> list[str]:
    """The task steps of a few tasks that sleep, race for a channel and wake each other."""

    async def main() -> list[str]:
        recorded = Trace()
        send, receive = trio.open_memory_channel[int](1)
        parked = trio.lowlevel.ParkingLot()

        async def work(number: int) -> None:
            await trio.sleep(number % 2)
            await send.send(number)
            await trio.lowlevel.checkpoint()
            await receive.receive()
            parked.unpark()
            with trio.move_on_after(0.5):
                await parked.park()

        async with trio.open_nursery() as nursery:
            trio.lowlevel.add_instrument(recorded)
            for number in range(6):
                nursery.start_soon(work, number, name=f"task {number}")
        return recorded.steps

    return run_virtual(seed, main)


def test_the_same_seed_gives_the_same_task_steps() -> None:
    assert trace(7) == trace(7)


def test_different_seeds_give_different_ones() -> None:
    assert len({tuple(trace(seed)) for seed in range(20)}) > 15


def test_trio_is_left_as_it_was() -> None:
    before = INTERNALS._r.getstate(), INTERNALS._ALLOW_DETERMINISTIC_SCHEDULING
    with seeded_schedule(3):
        assert INTERNALS._ALLOW_DETERMINISTIC_SCHEDULING
        assert INTERNALS._r.random() == random.Random(3).random()
    assert (INTERNALS._r.getstate(), INTERNALS._ALLOW_DETERMINISTIC_SCHEDULING) == before


@pytest.mark.parametrize(
    ("name", "value"), [("_r", random), ("_r", None), ("_ALLOW_DETERMINISTIC_SCHEDULING", None)], ids=repr
)
def test_another_trio_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    monkeypatch.setattr(INTERNALS, name, value)
    with pytest.raises(SchedulerUnknown, match=f"trio {trio.__version__}"), seeded_schedule(1):
        raise AssertionError


class TestVirtualTime:
    def test_it_jumps_from_deadline_to_deadline(self) -> None:
        async def main() -> float:
            await trio.sleep(3_600.5)
            return trio.current_time()

        assert trio.run(main, clock=VirtualClock()) == 3_600.5

    def test_what_is_handed_in_from_outside_still_comes(self) -> None:
        async def main() -> None:
            event = trio.Event()
            trio.lowlevel.current_trio_token().run_sync_soon(event.set)
            await event.wait()

        run_virtual(1, main)

    def test_its_end_breaks_a_run_off(self) -> None:
        async def main() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

        with pytest.raises(Stalled, match="still running after 99 s"):
            run_virtual(1, main, end=99)

    def test_tasks_that_wait_for_each_other_are_found_out(self) -> None:
        async def main() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()

        with pytest.raises(Stalled, match="wait for each other at 0 s"):
            run_virtual(1, main)

    def test_what_main_raises_comes_out(self) -> None:
        async def main() -> None:
            await trio.lowlevel.checkpoint()
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            run_virtual(1, main)


def turn_in_circles() -> None:
    while True:
        pass


def test_a_block_that_turns_in_circles_is_interrupted() -> None:
    with pytest.raises(TookTooLong, match="not done in 10ms of real time"), real_time_limit(0.01):
        turn_in_circles()


def test_one_that_is_done_is_left_alone() -> None:
    with real_time_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
