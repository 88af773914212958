"""Where an export goes: a file or folder that appears whole or not at all.

It is written beside its destination under a hidden name, and renamed in the end. What a killed process leaves has that
name still, and is never taken for an export.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Generator

from rlmesh_trio.export.errors import ExportError

__all__ = ("appearing_file", "appearing_folder")


@contextlib.contextmanager
def appearing_file(out: str | os.PathLike[str], source: str | os.PathLike[str], *, force: bool) -> Generator[str]:
    """The name to write what will be the file *out* to; with *force* it replaces a file.

    Raises :exc:`ExportError` when *out* is there and not to be replaced, when it is the recording *source* itself, and
    when it cannot be written.
    """
    path = os.path.realpath(out)
    if os.path.exists(path):
        if os.path.samefile(path, source):
            raise ExportError(os.fspath(out), "it is the recording itself; name another file")
        if os.path.isdir(path):
            raise ExportError(os.fspath(out), "it is a folder, and this format is one file")
        if not os.path.isfile(path):
            raise ExportError(os.fspath(out), "it is no regular file")
        if not force:
            raise ExportError(os.fspath(out), "it is there already; --force replaces it")
    with _draft_of(out, path) as draft:
        yield draft
        os.replace(draft, path)


@contextlib.contextmanager
def appearing_folder(out: str | os.PathLike[str], *, mark: str, force: bool) -> Generator[str]:
    """An empty folder that becomes *out* in the end; with *force* it replaces an earlier export.

    An earlier export is a folder with the file *mark* in it: no other is removed, unless it is empty. Raises
    :exc:`ExportError` when *out* is there and not to be replaced, and when it cannot be written.
    """
    path = os.path.realpath(out)
    is_there = os.path.exists(path)
    if is_there and not (os.path.isdir(path) and not os.listdir(path)):
        if not os.path.isdir(path):
            raise ExportError(os.fspath(out), "it is a file, and this format is a folder")
        if not force:
            raise ExportError(os.fspath(out), "it is there already; --force replaces it")
        if not os.path.exists(os.path.join(path, mark)):
            raise ExportError(os.fspath(out), f"it is not replaced: without {mark} it is no earlier export")
    with _draft_of(out, path) as draft:
        os.mkdir(draft)
        yield draft
        if is_there:
            gone = f"{draft}.old"
            os.rename(path, gone)
            os.rename(draft, path)
            shutil.rmtree(gone)
        else:
            os.rename(draft, path)


@contextlib.contextmanager
def _draft_of(out: str | os.PathLike[str], path: str) -> Generator[str]:
    """A name beside *path*; what is there under it in the end is removed."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        yield draft
    except OSError as error:
        raise ExportError(os.fspath(out), f"it cannot be written: {error.strerror or error}") from error
    finally:
        if os.path.isdir(draft):
            shutil.rmtree(draft, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(draft)
