"""The one error of exports."""

from rlmesh_trio.errors import SessionError

__all__ = ("ExportError",)


class ExportError(SessionError):
    """A recording that cannot be exported as asked; ``path`` is the file concerned, ``why`` one line."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
