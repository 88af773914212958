"""The one error of recordings."""

from rlmesh_trio.errors import SessionError

__all__ = ("RecordingError",)


class RecordingError(SessionError):
    """A recording that cannot be written, or that cannot be read as one; ``path`` is the file, ``why`` one line."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"recording {self.path}: {self.why}"
