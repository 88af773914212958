"""The streams the program was given: closed, at the end of a pipe nobody reads, or on a full disk.

What cannot be said on standard error is lost, and changes nothing else; what cannot be written to standard output is a
failure, told in one line like every other.
"""

import contextlib
import errno
import io
import os
import sys
from typing import Final, cast

__all__ = ("drop_unsaid", "ensure_streams", "is_unwritable", "tell")

_UNWRITABLE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


def ensure_streams() -> None:
    """Make the standard streams fit to be written to.

    In place of one that was closed there is one then: output refuses what is written, error swallows it. A character
    that the terminal's encoding does not have is escaped.
    """
    for name, access, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            # Left open for ever, so that no socket gets the number of a standard stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, access), mode, encoding="utf-8"))
    output = cast("object", sys.stdout)
    if isinstance(output, io.TextIOWrapper) and output.errors == "strict":
        output.reconfigure(errors="backslashreplace")


def tell(line: str) -> None:
    """Print *line* to standard error, if anybody can hear it."""
    # Not click's echo, which writes past whoever has taken standard error over, as the progress does.
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr)


def is_unwritable(failure: OSError) -> bool:
    """Whether *failure* is that of a stream whose content cannot be put anywhere, and not of a named file."""
    return failure.filename is None and failure.errno in _UNWRITABLE


def drop_unsaid() -> None:
    """Forget what could not be written: on its way out Python would try again, and complain in its own words."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
