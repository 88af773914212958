"""A conversation with a server: moves are made one after another, and each answer is laid beside its request.

The meaning of a move follows from the answers before it:

- before the first move the edition is selected, and before the first step all lanes are reset; so they are before a
  step of a lane whose episode has ended, unless the env restarts it by itself;
- a move that is made ahead does not wait for its answer; at most eight requests are under way;
- after an error that calls itself not recoverable, the server is only asked whether it is still there;
- when the stream has ended, there is nothing more to be said.

When an answer is long in coming, an empty request is sent behind it: a server that answers that one, and then nothing,
has lost the other.
"""

import attrs

from rlmesh_trio.conformance.moves import Move
from rlmesh_trio.conformance.raw_stream import LogEntry, RawStream, Received, Sent
from rlmesh_trio.conformance.registry import WAS_RESET, Facts
from rlmesh_trio.conformance.requests import request_bytes
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.errors import ConnectError

__all__ = ("Conversation", "Exchange", "hold", "needs_server")

_DEPTH = 8
_LONG = 0.25
_LOST = 0.1
_ENDING = 2.0
_OWN_RESTART = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
_PROBE = Move("empty")


@attrs.define(eq=False)
class Exchange:
    """A request, and the answer that was found to be its. ``asked`` is true for what a move of the case asks."""

    move: Move
    sent: Sent
    asked: bool
    answer: Received | None = None

    @property
    def seconds(self) -> float | None:
        """How long the answer took."""
        return None if self.answer is None else self.answer.at - self.sent.at


class Conversation:
    """What was said on *stream*.

    ``exchanges`` are in the order of the requests. ``strays`` are answers to nothing that was open. ``overtaken`` pairs
    each request that was answered too early with the one it overtook. ``fatal`` is the first exchange whose error was
    not recoverable. Without ``probing`` a long wait is a wait.
    """

    def __init__(self, stream: RawStream, facts: Facts, *, probing: bool = True) -> None:
        self.stream = stream
        self.probing = probing
        self.exchanges: list[Exchange] = []
        self.strays: list[Received] = []
        self.overtaken: list[tuple[Exchange, Exchange]] = []
        self.fatal: Exchange | None = None
        self._told = facts.told
        self._contract = facts.contract
        self._options = dict(facts.options) or None
        self._open: list[Exchange] = []
        self._fresh: set[int] = set()
        self._ids = 0

    @property
    def over(self) -> bool:
        """Whether nothing more can be said."""
        return self.stream.ending is not None or self.fatal is not None

    async def make(self, move: Move) -> None:
        """Make *move*, and wait for its answer unless it is made ahead."""
        if len(self._open) >= _DEPTH:
            await self.settle()
        if move.what == "leave":
            await self.stream.leave(move.how)
            return
        if move.what == "step" and not self._open:
            await self._start(move)
        if not self.over:
            self._ask(move, asked=True)
            if not move.ahead:
                await self.settle()

    async def open(self) -> None:
        """Select the edition."""
        self._ask(Move("configure"), asked=False)
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is open, the stream has ended, or it is plain that no answer will come."""
        probe: Exchange | None = None
        while self._open and self.stream.ending is None:
            can_probe = self.probing and probe is None and not self.stream.half_closed
            if can_probe:
                patience = _LONG
            elif probe is None or probe in self._open or any(each.move.lanes for each in self._open):
                patience = self.stream.limit
            else:
                patience = _LOST
            answer = await self.stream.receive(patience)
            if isinstance(answer, Received):
                self._take(answer)
            elif answer is None and not can_probe:
                self._open.clear()
            elif answer is None:
                probe = self._ask(_PROBE, asked=False)

    async def finish(self) -> None:
        """Say that nothing more will come, and hear what does until the server ends the stream."""
        await self.stream.leave("half-close")
        await self.hear_out()

    async def hear_out(self) -> None:
        """Take what comes until the stream has ended, or until nothing has come for long enough."""
        while isinstance(answer := await self.stream.receive(self.stream.limit if self._open else _ENDING), Received):
            self._take(answer)

    async def conclude(self) -> None:
        """Hear what is due. After an error without recovery ask whether the server is still there."""
        await self.settle()
        if self.fatal is not None and self.stream.ending is None:
            probe = self._ask(_PROBE, asked=False)
            while probe.answer is None and isinstance(answer := await self.stream.receive(), Received):
                self._take(answer)

    @property
    def log(self) -> tuple[LogEntry, ...]:
        """What happened, save for the selection of the edition where that went as it should."""
        first = self.exchanges[0] if self.exchanges else None
        if first is None or first.answer is None or first.answer.arm != "configure":
            return tuple(self.stream.log)
        return tuple(entry for entry in self.stream.log if entry is not first.sent and entry is not first.answer)

    async def _start(self, step: Move) -> None:
        lanes = set(step.lanes or range(self._contract.num_envs)) & set(range(self._contract.num_envs))
        if not lanes <= self._fresh:
            self._ask(Move("reset"), asked=False)
            await self.settle()

    def _ask(self, move: Move, *, asked: bool) -> Exchange:
        if not move.same_id or not self._ids:
            self._ids += 1
        request_id = f"r{self._ids}"
        count = len(move.lanes) or self._contract.num_envs
        episode_ids = tuple(f"{request_id}-{lane}" for lane in range(count)) if move.what == "reset" else ()
        data = request_bytes(move, self._contract, self._options, request_id, episode_ids)
        words = str(attrs.evolve(move, ahead=False, same_id=False))
        exchange = Exchange(move, self.stream.send_bytes(data, request_id, what=words), asked)
        self.exchanges.append(exchange)
        self._open.append(exchange)
        return exchange

    def _take(self, answer: Received) -> None:
        due = [each for each in self.exchanges if each.answer is None and each.sent.request_id == answer.request_id]
        # Of two that share an id the one of the answer's kind is meant, where lanes may overtake.
        exchange = next((each for each in due if each.move.what == answer.arm), due[0] if due else None)
        if exchange is None or answer.arm == "unreadable":
            self.strays.append(answer)
            return
        if exchange in self._open:
            if exchange is not self._open[0]:
                self.overtaken.append((exchange, self._open[0]))
            self._open.remove(exchange)
        exchange.answer = answer
        if answer.error is not None and not answer.error.recoverable and self.fatal is None:
            self.fatal = exchange
        self._follow(exchange.move, answer)

    def _follow(self, move: Move, answer: Received) -> None:
        """Keep account of the lanes that a step finds in the middle of an episode."""
        if answer.reply is None:
            return
        lanes = move.lanes or tuple(range(self._contract.num_envs))
        if answer.arm == "reset":
            self._told[WAS_RESET] = True
            self._fresh |= set(lanes)
        elif self._contract.autoreset_mode not in _OWN_RESTART:
            masks = answer.reply.terminated_mask, answer.reply.truncated_mask
            self._fresh -= {lane for mask in masks for lane, ended in zip(lanes, mask, strict=False) if ended}


def needs_server(facts: Facts) -> str | None:
    """Why there is nobody to hold a conversation with, if so."""
    return None if facts.served else "needs a server: this env runs in the kit's own process"


async def hold(stream: RawStream, facts: Facts, moves: tuple[str, ...], *, probing: bool = True) -> Conversation:
    """Make *moves* on *stream*; those made ahead at the end are still open, until the caller concludes or finishes.

    Raises :exc:`~rlmesh_trio.errors.ConnectError` when the server refused the stream.
    """
    if stream.ending is not None:
        raise ConnectError(stream.ending.message)
    conversation = Conversation(stream, facts, probing=probing)
    await conversation.open()
    for move in map(Move.parse, moves):
        if not conversation.over or move.what == "leave":
            await conversation.make(move)
    return conversation
