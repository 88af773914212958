"""Writes a recording: an MCAP file that holds what was recorded up to its last whole chunk, however the process ends.

Nothing in the file comes from a clock, save what decisions say: the same records make the same bytes, unless chunks are
also closed by time.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from math import inf
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeGuard

import attrs

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.observers.line_file import locked_elsewhere
from rlmesh_trio.recording.decision_codec import encode_batch, encode_decision
from rlmesh_trio.recording.digests import Digester, ordered_spec
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.ledger import Ledger
from rlmesh_trio.recording.mcap_file import McapFile
from rlmesh_trio.recording.message_codec import encode_episode, encode_footer, encode_header
from rlmesh_trio.recording.records import (
    CHANNELS,
    PROFILE,
    Batch,
    Decision,
    EndKind,
    Episode,
    Footer,
    Header,
    Mishap,
    Tick,
    parse_level,
)
from rlmesh_trio.recording.tick_codec import encode_plain_step, encode_tick
from rlmesh_trio.report import EpisodeSummary

__all__ = ("RecordingWriter",)

_CHUNK_BYTES: Final = 256 * 1024
_CHUNK_TICKS: Final = 512


def _kept_as_it_is(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


class RecordingWriter:
    """Writes the recording of *header* to *path*, over whatever is there; a context manager that finishes it.

    *level* is ``digest`` (actions, digests, rewards, flags), ``full`` (observations, infos and episode records too) or
    ``ring=K`` (of an episode that ends in an error its last K observations). What was recorded goes to the disk in
    chunks: a chunk ends after 256 KiB, before the tick that follows *chunk_ticks* ticks, and with *chunk_seconds*
    before the first tick so long after the last chunk's end.

    Every call is short and waits for nothing but the disk. The file is locked until it is closed. Raises
    :exc:`RecordingError` when it cannot be written, or another writer has it open, :exc:`InvalidSpec` for a level that
    is none, and ``MissingExtra`` without the extra ``mcap``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Header,
        level: str | None = None,
        *,
        chunk_ticks: int = _CHUNK_TICKS,
        chunk_seconds: float | None = None,
    ) -> None:
        if level is not None:
            name, ring = parse_level(level)
            header = attrs.evolve(header, level=name, ring=ring)
        self.path = os.fspath(path)
        self.header = header
        contract = header.contract
        self._lanes = tuple(range(max(1, contract.num_envs)))
        self._digester = Digester(contract.observation_space, contract.action_space, header.ignored_infos)
        self._ledger = Ledger(header, self._digester)
        self._full = header.level == "full"
        self._digests_only = header.level == "digest"
        self._chunk_ticks = chunk_ticks
        self._chunk_seconds = inf if chunk_seconds is None else chunk_seconds
        self._unflushed = 0
        self._flush_due = time.monotonic() + self._chunk_seconds
        load_extra("zstandard", extra="mcap", wanted_by="a recording")
        try:
            self._file: BinaryIO = open(self.path, "wb", opener=_kept_as_it_is)  # noqa: SIM115 - closed by close
        except OSError as error:
            raise self._refusal(error) from error
        if locked_elsewhere(self._file):
            self.close()
            raise RecordingError(self.path, "it is being written by another run")
        try:
            if os.fstat(self._file.fileno()).st_size:
                self._file.truncate()
            self._mcap = McapFile(self._file, profile=PROFILE, library="rlmesh_trio", chunk_bytes=_CHUNK_BYTES)
            self._channels = self._begin()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._refusal(error) from error
            raise

    def _begin(self) -> dict[str, int]:
        mcap = self._mcap
        schemas = files("rlmesh_trio.recording") / "schemas"
        channels: dict[str, int] = {}
        for topic, message in CHANNELS.items():
            described = (schemas / f"{message}.binpb").read_bytes()
            channels[topic] = mcap.add_channel(topic, f"{PROFILE}.{message}", described)
        header = encode_header(self.header, self._digester.digest(ordered_spec(self.header.contract)))
        mcap.add(channels["/run"], 0, header)
        mcap.flush()
        return channels

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, RecordingError):
            self.close()
        elif not self._file.closed:
            self.finish()

    @property
    def ticks(self) -> int:
        """How many ticks were recorded."""
        return self._ledger.ticks

    def ordinal_on(self, lane: int) -> int:
        """The ordinal of the episode under way on *lane*; 0 when there is none that counts."""
        return self._ledger.ordinal_on(lane)

    def record_reset(
        self,
        request: ResetRequest,
        answer: EnvReply | EndpointError | None,
        begins: Sequence[int] = (),
    ) -> None:
        """Record one reset and its *answer*, ``None`` if it never came.

        *begins* has the ordinal of the episode that begins on each lane, 0 for one that does not count.
        """
        tick = Tick(
            number=self._ledger.ticks + 1,
            lanes=request.env_indices or self._lanes,
            begins=tuple(begins) if any(begins) else (),
            reset=request,
        )
        self._record(tick, answer)

    def record_step(
        self,
        action: Leaves,
        answer: EnvReply | EndpointError | None,
        target: StepTarget | None = None,
        begins: Sequence[int] = (),
    ) -> None:
        """Record one step of the lanes *target* names, of all without one, and its *answer*.

        *begins* is for lanes that restart by themselves: by lane the ordinal of the episode whose first observation the
        answer holds, else 0. Under ``NEXT_STEP`` that is the step after an end, and its action belongs to no episode.
        """
        lanes = (target.env_indices if target is not None else ()) or self._lanes
        if self._digests_only and len(lanes) == len(action) == 1 and not begins and _is_plain(answer):
            leaf = action[0]
            if isinstance(leaf, bytes):
                self._record_plain(leaf, answer, lanes[0])
                return
        ledger = self._ledger
        if len(lanes) == 1:
            ordinal = ledger.ordinal_on(lanes[0])
            episodes = (ordinal,) if ordinal else ()
        else:
            episodes = tuple(map(ledger.ordinal_on, lanes))
            episodes = episodes if any(episodes) else ()
        begun = tuple(begins) if begins and any(begins) else ()
        self._record(
            Tick(number=ledger.ticks + 1, lanes=lanes, episodes=episodes, begins=begun, action=action, target=target),
            answer,
        )

    def _record_plain(self, action: bytes, answer: EnvReply, lane: int) -> None:
        """The step that comes most often: what :meth:`_record` does, without a tick."""
        ledger, digester = self._ledger, self._digester
        observed, infos = digester.observation_rows(answer.observation, 1), digester.info_rows(answer.infos, 1)
        reward, number = answer.rewards[0], ledger.ticks + 1
        self._begin_tick()
        ordinal = ledger.take_plain(number, lane, reward, digester.digest(action), observed, infos)
        self._add("/tick", encode_plain_step(number, lane, ordinal, action, reward, observed, infos))

    def _record(self, tick: Tick, answer: EnvReply | EndpointError | None) -> None:
        if isinstance(answer, EnvReply):
            tick.reply = answer
            rows, digester = len(tick.lanes), self._digester
            tick.observation_digests = digester.observation_rows(answer.observation, rows)
            tick.info_digests = digester.info_rows(answer.infos, rows)
        else:
            tick.error = answer
        if ended := self._write(tick):
            self._episodes(ended)

    def record_end(self, lane: int, ordinal: int, end: EndKind) -> None:
        """Record that the driver ended an episode: nothing, if it has ended."""
        self._episodes(self._ledger.end(lane, ordinal, end))

    def record_decision(self, unix_ns: int, what: Batch | Mishap | EpisodeSummary) -> None:
        """Record something equal runs may do differently."""
        decision = Decision(self._ledger.ticks, unix_ns, what)
        self._add("/decision", encode_decision(decision))

    def record_batch(
        self,
        unix_ns: int,
        took_ns: int,
        ordinals: Sequence[int],
        steps: Sequence[int],
        widths: tuple[int, ...],
        frames: tuple[int, ...],
    ) -> None:
        """Record one call to the model: a :class:`Batch`, by row its ordinal and step, by request its rows and frames.

        *frames* may be shorter: what was not answered has none.
        """
        self._add("/decision", encode_batch(unix_ns, took_ns, ordinals, steps, widths, frames))

    def copy(self, entries: Iterable[Tick | Episode | Decision]) -> None:
        """Record what was recorded before, the first tick being the next in number. Recording can go on after it.

        Digests are taken as they are. Ends of episodes that the ticks amount to and no entry tells of are added.
        """
        untold: list[Episode] = []
        for entry in entries:
            match entry:
                case Tick():
                    self._episodes(untold)
                    untold = self._write(entry)
                case Episode():
                    untold = [each for each in untold if (each.ordinal, each.attempt) != (entry.ordinal, entry.attempt)]
                    self._ledger.follow(entry)
                    self._episodes((entry,))
                case Decision():
                    self._add("/decision", encode_decision(entry))
        self._episodes(untold)

    def _write(self, tick: Tick) -> list[Episode]:
        """Write *tick*; the episodes it ends, still to be written."""
        encoded = encode_tick(tick, full=self._full)
        self._begin_tick()
        ended = self._ledger.take(tick)
        self._add("/tick", encoded)
        return ended

    def _begin_tick(self) -> None:
        """End the chunk if that is due: not after a tick, since what ends with it belongs into its chunk."""
        if self._unflushed >= self._chunk_ticks or time.monotonic() >= self._flush_due:
            self.flush()
        self._unflushed += 1

    def _episodes(self, ended: Sequence[Episode]) -> None:
        for episode in ended:
            self._add("/episode", encode_episode(episode))

    def _add(self, topic: str, data: bytes) -> None:
        try:
            self._mcap.add(self._channels[topic], self._ledger.ticks, data)
        except OSError as error:
            raise self._refusal(error) from error

    def flush(self) -> None:
        """End the chunk: what was recorded so far survives the process."""
        self._unflushed = 0
        self._flush_due = time.monotonic() + self._chunk_seconds
        try:
            self._mcap.flush()
        except OSError as error:
            raise self._refusal(error) from error

    def break_off(self) -> None:
        """End the episodes under way: nobody goes on with these attempts."""
        self._episodes(self._ledger.finish())

    def move(self, path: str) -> None:
        """Put the file, what was recorded so far being on the disk, in place of whatever is at *path*."""
        try:
            if not self._file.closed:
                self.flush()
                os.fsync(self._file.fileno())
            os.replace(self.path, path)
        except OSError as error:
            raise self._refusal(error) from error
        self.path = path

    def finish(self) -> Footer:
        """End the episodes still under way, write the roots and the index, and close the file."""
        self.break_off()
        footer = self._ledger.footer()
        try:
            self._add("/run", encode_footer(footer))
            self._mcap.finish()
            self._file.close()
        except OSError as error:
            raise self._refusal(error) from error
        finally:
            self.close()
        return footer

    def close(self) -> None:
        """Close the file as it is, as if the process were killed, whether it can still be written or not."""
        with suppress(OSError):
            self._file.close()

    def _refusal(self, error: OSError) -> RecordingError:
        return RecordingError(self.path, f"it cannot be written: {error.strerror or error}")


def _is_plain(answer: EnvReply | EndpointError | None) -> TypeGuard[EnvReply]:
    """Whether it answers the step of one row whose episode goes on."""
    return (
        type(answer) is EnvReply
        and answer.terminated_mask == b"\0" == answer.truncated_mask
        and len(answer.rewards) == 1
        and not answer.completed
    )
