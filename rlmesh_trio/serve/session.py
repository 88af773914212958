"""One client's Join call from its first request to its last: what runs when, and what the client is told.

Operations on all lanes, and those of one lane, run one by one in the order they came; operations that name different
lanes run side by side where the env runs elsewhere. Every request is answered once. One that outlives its deadline is
answered with ``TIMEOUT`` then, and goes on: the lane is free for the next when it ends.

When the client is gone, what still runs may end by itself. After :data:`ABANDON_AFTER` seconds it is abandoned, if its
env can be made anew; else the place stays taken until it ends.
"""

import logging
import math
from time import perf_counter_ns

import trio
from grpclib.const import Status

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.serve.join_call import JoinCall
from rlmesh_trio.serve.operations import Operation, Operations
from rlmesh_trio.serve.served_lanes import ServedLanes
from rlmesh_trio.wire.served_env import decode_served, encode_served_error, read_served_id

__all__ = ("ABANDON_AFTER", "DRAIN", "Session")

logger = logging.getLogger("rlmesh_trio")

ABANDON_AFTER = 3.0
DRAIN = 2.0
# So many operations may be under way or wait their turn, or two for each lane, before no more is read.
_LEAST_AHEAD = 64
# How long a client that reads nothing may hold up the end of its call.
_FINISH = 30.0


class Session:
    """The session of *call*; :meth:`run` it once."""

    def __init__(self, call: JoinCall, lanes: ServedLanes) -> None:
        self._call = call
        self._lanes = lanes
        self._over = False
        self._status, self._why = Status.OK, ""
        self._listening = trio.CancelScope()
        self._ending = trio.CancelScope()
        self._all = range(lanes.contract.num_envs)
        self._last: list[trio.Event | None] = [None] * len(self._all)
        self._running: set[Operation] = set()
        self._ahead = max(_LEAST_AHEAD, 2 * len(self._all))
        self._crowd_thinned = trio.Event()
        self._idle = trio.Event()
        self._alarm = trio.CancelScope()
        call.when_gone = self._abandon_soon

    async def run(self) -> None:
        """Serve until the client asks for nothing more, or is gone, or must not go on, or :meth:`stop` is called."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_deadlines)
                with self._listening:
                    self._operations = Operations(self._lanes, await self._lanes.new_session())
                    await self._listen(nursery)
                with self._ending:
                    while self._running:
                        await self._idle.wait()
                nursery.cancel_scope.cancel()
            with trio.move_on_after(_FINISH):
                await self._call.finish(self._status, self._why)
        finally:
            self._call.leave()

    def stop(self, why: str) -> None:
        """End the session: what runs has :data:`DRAIN` seconds to be answered."""
        if not self._over:
            self._status, self._why = Status.UNAVAILABLE, why
        self._end()
        self._ending.deadline = min(self._ending.deadline, trio.current_time() + DRAIN)

    def _end(self) -> None:
        self._over = True
        self._listening.cancel()

    def _abandon_soon(self) -> None:
        if self._lanes.replaceable:
            self._ending.deadline = min(self._ending.deadline, trio.current_time() + ABANDON_AFTER)

    async def _listen(self, nursery: trio.Nursery) -> None:
        call, waits = self._call, self._lanes.waits
        while not self._over:
            while len(self._running) >= self._ahead:
                await self._crowd_thinned.wait()
            message = await call.next()
            if message is None:
                return
            arrived = perf_counter_ns()
            try:
                request = decode_served(message)
            except ProtocolError as fault:
                refusal = EndpointError("INVALID_ACTION", str(fault))
                call.send(encode_served_error(read_served_id(message), refusal, perf_counter_ns() - arrived), False)
                self._end()
                return
            operation = Operation(request, arrived)
            if timeout_ms := operation.timeout_ms:
                operation.deadline = trio.current_time() + timeout_ms / 1000
            if waits:
                self._running.add(operation)
                nursery.start_soon(self._in_turn, operation, self._turn_of(operation))
                if operation.deadline < self._alarm.deadline:
                    self._alarm.deadline = operation.deadline
            else:
                await self._carry_out(operation)

    def _turn_of(self, operation: Operation) -> list[trio.Event]:
        """What has to be done before *operation*, which is the last for its lanes from now on."""
        named = operation.named_lanes if self._lanes.side_by_side else ()
        lanes = named if named and all(lane in self._all for lane in named) else self._all
        before = {last: None for lane in lanes if (last := self._last[lane]) is not None and not last.is_set()}
        for lane in lanes:
            self._last[lane] = operation.done
        return list(before)

    async def _in_turn(self, operation: Operation, before: list[trio.Event]) -> None:
        try:
            for earlier in before:
                await earlier.wait()
            if not (self._over or operation.answered):
                await self._carry_out(operation)
        finally:
            operation.done.set()
            if len(self._running) >= self._ahead:
                self._crowd_thinned.set()
                self._crowd_thinned = trio.Event()
            self._running.discard(operation)
            if not self._running:
                self._idle.set()
                self._idle = trio.Event()

    async def _carry_out(self, operation: Operation) -> None:
        if operation.request.arm == "close":
            self._answer(operation, self._operations.close(operation))
            self._end()
            return
        try:
            self._answer(operation, await self._operations.perform(operation))
        except EndpointError as failure:
            self._refuse(operation, failure)
            if not failure.recoverable:
                self._end()
        except (Exception, SystemExit) as crash:
            logger.exception("a request of a client could not be carried out")
            self._refuse(operation, EndpointError("INTERNAL", f"the server failed: {type(crash).__name__}: {crash}"))
            self._end()

    def _refuse(self, operation: Operation, failure: EndpointError) -> None:
        request = operation.request
        self._answer(operation, encode_served_error(request.request_id, failure, perf_counter_ns() - operation.arrived))

    def _answer(self, operation: Operation, message: bytes) -> None:
        if not operation.answered:
            operation.answered = True
            self._call.send(message, len(self._running) > 1)

    async def _watch_deadlines(self) -> None:
        while True:
            with self._alarm:
                await trio.sleep_forever()
            now = trio.current_time()
            waiting = [operation for operation in self._running if not operation.answered]
            for operation in waiting:
                if operation.deadline <= now:
                    self._refuse(operation, operation.too_late())
            due = [operation.deadline for operation in waiting if not operation.answered]
            self._alarm = trio.CancelScope(deadline=min(due, default=math.inf))
