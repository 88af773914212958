"""A run as TensorBoard scalars: what each episode came to, and the telemetry of each window."""

import os
import secrets
import time
from typing import Any, Final

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.events import EpisodeCompleted, SessionEnded, SessionFailed, SessionStarted, TelemetryTaken
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.observers.extras import load_extra

__all__ = ("TensorBoardHooks",)

_FLUSH_SECONDS: Final = 2.0


class TensorBoardHooks(Hooks):
    """Writes an event file into the folder *logdir*, which is made if need be; needs the extra ``tensorboard``.

    By episode index: ``episode/return``, ``length``, ``seconds``, ``success`` (0 or 1, where the env reports it), and
    ``predict_ms`` and ``step_ms`` (means per step). By number of the window: ``telemetry/<op>/<component>/<metric>``
    with ``/avg`` and ``/p95``, in milliseconds, bytes or counts. Each session has a file of its own.

    Raises :exc:`MissingExtra` without the extra, :exc:`InvalidSpec` for a folder that cannot be made. An episode is one
    small buffered write inside the hook; every two seconds at most the file is flushed to the disk.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._files = load_extra("tensorboardX.event_file_writer", extra="tensorboard", wanted_by="TensorBoardHooks")
        self._messages = load_extra("tensorboardX.proto.event_pb2", extra="tensorboard", wanted_by="TensorBoardHooks")
        self.logdir = os.fspath(logdir)
        self._writer: Any = None
        self._windows = 0
        self._flushed = 0.0
        try:
            os.makedirs(self.logdir, exist_ok=True)
        except OSError as error:
            raise InvalidSpec(f"TensorBoard folder {self.logdir} cannot be made: {error.strerror or error}") from error

    async def session_started(self, event: SessionStarted) -> None:  # noqa: ARG002
        """Begin the session's own file."""
        self._close()
        suffix = f".{secrets.token_hex(4)}"
        self._writer = self._files.EventsWriter(os.path.join(self.logdir, "events"), suffix)
        self._windows = 0

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """Write one episode's scalars."""
        scalars = {
            "episode/return": event.cumulative_reward,
            "episode/length": event.step_count,
            "episode/seconds": event.duration_ms / 1000,
            "episode/success": event.success,
            "episode/predict_ms": event.predict_ms,
            "episode/step_ms": event.step_ms,
        }
        self._write(event.episode_index, scalars)

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        """Write one window's rows."""
        if event.snapshot.horizon != "window":
            return
        self._windows += 1
        scalars: dict[str, float | None] = {}
        for row in event.snapshot.rows:
            tag = f"telemetry/{row.op}/{row.component}/{row.metric}"
            scalars |= {f"{tag}/avg": row.avg, f"{tag}/p95": row.p95}
        self._write(self._windows, scalars)

    async def session_ended(self, event: SessionEnded) -> None:  # noqa: ARG002
        """Close the file."""
        self._close()

    async def session_failed(self, event: SessionFailed) -> None:  # noqa: ARG002
        """Close the file."""
        self._close()

    def _write(self, step: int, scalars: dict[str, float | None]) -> None:
        if self._writer is None:
            return
        message = self._messages.Event(wall_time=time.time(), step=step)
        for tag, value in scalars.items():
            if value is not None:
                message.summary.value.add(tag=tag, simple_value=value)
        self._writer.write_event(message)
        if (now := time.monotonic()) - self._flushed >= _FLUSH_SECONDS:
            self._flushed = now
            self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
