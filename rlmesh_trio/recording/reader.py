"""Reads a recording: in order, by tick, or one episode of it."""

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.recording.container import Container, Message, Span
from rlmesh_trio.recording.decision_codec import decode_decision
from rlmesh_trio.recording.digests import Digester
from rlmesh_trio.recording.ledger import Ledger
from rlmesh_trio.recording.message_codec import ForeignVersion, decode_episode, decode_run
from rlmesh_trio.recording.records import Decision, Episode, EpisodeEntry, Footer, Header, Tick
from rlmesh_trio.recording.rows import Row, rows_of
from rlmesh_trio.recording.tick_codec import decode_tick

__all__ = ("Entry", "Recording", "follow", "open_recording")

Entry = Tick | Episode | Decision

_CHUNKS_HELD: Final = 8


def open_recording(path: str | os.PathLike[str], *, by_index: bool = True) -> "Recording":
    """Open a recording, also one that a killed process left.

    Without *by_index* every chunk is looked at first, and what comes behind a broken one is left out. Raises
    :exc:`RecordingError` for a file that is none, or not of a format version this build reads.
    """
    return Recording(Container(path, by_index=by_index))


class Recording:
    """An open recording; a context manager that closes it. Made by :func:`open_recording`.

    ``footer`` is ``None`` in a file without its end, and ``damage`` says what is known to be wrong, empty for nothing.
    Reading raises :exc:`RecordingError` where the file is damaged.
    """

    def __init__(self, container: Container) -> None:
        self.path = container.path
        self.container = container
        self._held: OrderedDict[Span, list[Message]] = OrderedDict()
        self._entries: dict[int, EpisodeEntry] | None = None
        try:
            self.header: Header = self._read_header()
            self.footer: Footer | None = self._read_footer()
        except BaseException:
            container.close()
            raise
        contract = self.header.contract
        self.digester = Digester(contract.observation_space, contract.action_space, self.header.ignored_infos)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.container.close()

    @property
    def damage(self) -> str:
        """What is known to be wrong with the file, without reading all of it."""
        if self.container.damage or self.footer is not None:
            return self.container.damage
        return "it has no footer"

    def _read_header(self) -> Header:
        first = self._messages(self.container.spans[0])
        try:
            header = decode_run(first[0].data) if first and first[0].topic == "/run" else None
        except ForeignVersion as foreign:
            raise self.container.refusal(f"it is of {foreign.why}") from None
        except ProtocolError as error:
            raise self.container.refusal(f"its header cannot be read: {error.why}") from None
        if not isinstance(header, Header):
            raise self.container.refusal("it does not begin with a header")
        return header

    def _read_footer(self) -> Footer | None:
        if self.container.damage:
            return None
        last = self._messages(self.container.spans[-1])[-1]
        found = self._decoded_run(last) if last.topic == "/run" else None
        return found if isinstance(found, Footer) else None

    def _decoded_run(self, message: Message) -> Header | Footer:
        try:
            return decode_run(message.data)
        except ProtocolError as error:
            raise self.container.refusal(f"its footer cannot be read: {error.why}") from None

    def _messages(self, span: Span) -> list[Message]:
        held = self._held
        messages = held.get(span)
        if messages is None:
            messages = held[span] = self.container.messages(span)
            if len(held) > _CHUNKS_HELD:
                held.popitem(last=False)
        else:
            held.move_to_end(span)
        return messages

    def __iter__(self) -> Iterator[Entry]:
        """Everything between header and footer, in the order of recording."""
        return self._between(0, None)

    def _between(self, first: int, last: int | None, topic: str = "") -> Iterator[Entry]:
        """What was recorded at these ticks, of *topic* alone if one is named: nothing else is decoded then."""
        spans = self.container.spans
        for span in spans[bisect_left(spans, first, key=lambda span: span.last) :]:
            if last is not None and span.first > last:
                return
            for message in self._messages(span):
                if message.tick >= first and (last is None or message.tick <= last) and topic in ("", message.topic):
                    entry = self._decoded(message)
                    if entry is not None:
                        yield entry

    def _decoded(self, message: Message) -> Entry | None:
        try:
            match message.topic:
                case "/tick":
                    return decode_tick(message.data)
                case "/episode":
                    return decode_episode(message.data)
                case "/decision":
                    return decode_decision(message.data, message.tick)
                case _:
                    return None
        except ProtocolError as error:
            raise self.container.refusal(f"at tick {message.tick}: {error.why}") from None

    def ticks(self, first: int = 1, last: int | None = None) -> Iterator[Tick]:
        """The ticks of these numbers, *last* included, in order."""
        return (entry for entry in self._between(first, last, "/tick") if isinstance(entry, Tick))

    def decisions(self) -> Iterator[Decision]:
        """The decisions alone, in order: ticks and episodes are not decoded for it."""
        return (entry for entry in self._between(0, None, "/decision") if isinstance(entry, Decision))

    def told_episodes(self) -> Iterator[Episode]:
        """Every attempt at an episode that the file says has ended, in order: ticks are not decoded for it."""
        return (entry for entry in self._between(0, None, "/episode") if isinstance(entry, Episode))

    def episodes(self) -> list[Episode]:
        """Every attempt at an episode, in the order they ended; those under way where a file ends come last."""
        ledger = self.ledger()
        ended: list[Episode] = []
        for entry in self:
            ended += follow(ledger, entry)
        return ended + ledger.finish()

    def episode(self, ordinal: int) -> Episode:
        """The last attempt at the episode of *ordinal*, found without decoding the ticks of a file that has its end.

        Raises :exc:`KeyError` for an ordinal that is not in :attr:`entries`.
        """
        entry = self.entries[ordinal]
        spans = self.container.spans
        for span in spans[bisect_left(spans, entry.last_tick, key=lambda span: span.last) :]:
            for message in self._messages(span):
                if message.topic == "/episode" and message.tick >= entry.last_tick:
                    found = self._decoded(message)
                    if isinstance(found, Episode) and found.entry == entry:
                        return found
        return next(ended for ended in reversed(self.episodes()) if ended.entry == entry)

    def ledger(self) -> Ledger:
        """Fresh books of this recording."""
        return Ledger(self.header, self.digester)

    @property
    def entries(self) -> dict[int, EpisodeEntry]:
        """The last attempt at each episode, by ordinal. A file without footer is read through once for it."""
        if self._entries is None:
            if self.footer is not None:
                found = self.footer.episodes
            else:
                ledger = self.ledger()
                for entry in self:
                    follow(ledger, entry)
                ledger.finish()
                found = ledger.footer().episodes
            self._entries = {entry.ordinal: entry for entry in found}
        return self._entries

    def rows(self, ordinal: int) -> Iterator[Row]:
        """The last attempt at the episode of *ordinal*, as if its lane were alone: the reset first, then each step.

        Raises :exc:`KeyError` for an ordinal that is not in :attr:`entries`.
        """
        entry = self.entries[ordinal]
        for tick in self.ticks(entry.first_tick, entry.last_tick):
            yield from rows_of(tick, entry, self.digester)


def follow(ledger: Ledger, entry: Entry) -> list[Episode]:
    """Take an entry of a recording into *ledger*; the episodes that end with it."""
    if isinstance(entry, Tick):
        return ledger.take(entry)
    if isinstance(entry, Episode):
        return ledger.follow(entry)
    return []
