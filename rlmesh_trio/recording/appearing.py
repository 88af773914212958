"""A recording that appears whole, in place of whatever is there, or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

from rlmesh_trio.observers.line_file import locked_elsewhere
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.records import Header
from rlmesh_trio.recording.writer import RecordingWriter

__all__ = ("appearing",)


@contextmanager
def appearing(
    out: str | os.PathLike[str], header: Header, *, chunk_seconds: float | None = None
) -> Generator[RecordingWriter]:
    """A writer to ``OUT.part``, which becomes *out* in the end, finished or not; if it fails, *out* stays as it is.

    Raises :exc:`RecordingError` when *out* is no regular file, cannot be written or is being written by somebody else.
    """
    named, place = os.fspath(out), os.path.realpath(out)
    part = f"{place}.part"
    try:
        with _kept_from_others(named, place):
            writer = RecordingWriter(part, header, chunk_seconds=chunk_seconds)
            try:
                yield writer
                writer.move(place)
            except BaseException:
                writer.close()
                with suppress(OSError):
                    os.unlink(part)
                raise
    except RecordingError as error:
        if error.path == part:
            raise RecordingError(named, error.why) from error
        raise


@contextmanager
def _kept_from_others(named: str, place: str) -> Generator[None]:
    """Lock what is at *place*, which is *named* so."""
    if not os.path.exists(place):
        yield
        return
    if not os.path.isfile(place):
        raise RecordingError(named, "it cannot be written: it is no regular file")
    try:
        stream = open(place, "rb")  # noqa: SIM115 - closed by the block it opens
    except OSError as error:
        raise RecordingError(named, f"it cannot be replaced: {error.strerror or error}") from error
    with stream:
        if locked_elsewhere(stream):
            raise RecordingError(named, "it is being written by another run")
        yield
