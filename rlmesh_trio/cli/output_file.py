"""Where a report goes: a file that appears whole or not at all, or standard output.

A file that cannot be written is refused when it is named, before anything runs.
"""

import contextlib
import os
import secrets
import shutil
import stat
import sys

__all__ = ("JsonOutput",)


class JsonOutput:
    """One destination. ``-`` is standard output; what is no regular file (a pipe, ``/dev/null``) is written directly.

    Raises :exc:`OSError` when the destination cannot be written.
    """

    def __init__(self, name: str) -> None:
        self.is_stdout = name == "-"
        self._name = self._path = name
        self._replaces = not self.is_stdout and _is_replaceable(name)
        if self._replaces:
            # A link stays a link: what it points to is replaced.
            self._path = os.path.realpath(name)
            os.unlink(self._draft())

    @property
    def file(self) -> str | None:
        """The file that can be read again afterwards, as it was named; ``None`` when it is none."""
        return self._name if self._replaces else None

    def write(self, text: str) -> None:
        """Write *text* as the whole content; raises :exc:`OSError` and then leaves what was there."""
        if self.is_stdout:
            sys.stdout.write(text)
            sys.stdout.flush()
        elif self._replaces:
            self._replace(text)
        else:
            with open(self._path, "w", encoding="utf-8") as stream:
                stream.write(text)

    def _replace(self, text: str) -> None:
        draft = self._draft()
        try:
            with open(draft, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            with contextlib.suppress(FileNotFoundError):
                shutil.copymode(self._path, draft)
            os.replace(draft, self._path)
        except BaseException:
            os.unlink(draft)
            raise

    def _draft(self) -> str:
        """Create an empty draft in the destination's own folder and return its name."""
        folder, name = os.path.split(self._path)
        draft = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        return draft


def _is_replaceable(path: str) -> bool:
    """Whether *path* is a regular file or will be one; raises :exc:`OSError` when it may not be written."""
    if not os.path.basename(path):
        raise IsADirectoryError(None, "it names no file")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(None, "it is a directory")
    if not os.access(path, os.W_OK):
        raise PermissionError(None, "it is write-protected")
    return stat.S_ISREG(mode)
