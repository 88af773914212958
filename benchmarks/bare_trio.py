"""What trio alone takes for a lane step: the yardstick for the engine's own cost, which follows the machine as it does.

The same tasks wake each other in the same order, and nothing else happens: each lane passes a checkpoint, which stands
for the env, puts itself into the memory channel and waits; the batcher takes all that are there and wakes them.
"""

import time
from contextlib import suppress

import trio

__all__ = ("run_bare",)


def run_bare(lanes: int, steps: int) -> float:
    """Let *lanes* tasks make about *steps* steps in all and return the CPU microseconds each took."""
    rounds = max(1, steps // lanes)
    before = time.process_time()
    trio.run(_play, lanes, rounds)
    return (time.process_time() - before) / (rounds * lanes) * 1e6


async def _play(lanes: int, rounds: int) -> None:
    inbox, outbox = trio.open_memory_channel[trio.lowlevel.Task](lanes)
    async with trio.open_nursery() as session:
        session.start_soon(_batch, outbox)
        async with inbox, trio.open_nursery() as playing:
            for _ in range(lanes):
                playing.start_soon(_lane, inbox, rounds)


async def _lane(inbox: trio.MemorySendChannel[trio.lowlevel.Task], rounds: int) -> None:
    task = trio.lowlevel.current_task()
    for _ in range(rounds):
        await trio.lowlevel.checkpoint()
        inbox.send_nowait(task)
        await trio.lowlevel.wait_task_rescheduled(_give_up)


def _give_up(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


async def _batch(outbox: trio.MemoryReceiveChannel[trio.lowlevel.Task]) -> None:
    async for first in outbox:
        waiting = [first]
        with suppress(trio.WouldBlock):
            while True:
                waiting.append(outbox.receive_nowait())
        for task in waiting:
            trio.lowlevel.reschedule(task)
