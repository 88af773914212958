"""A file system with room for so many bytes, and more once somebody makes some."""

from io import FileIO
from typing import Any

__all__ = ("FullDisk",)


class FullDisk(FileIO):
    """Takes ``room`` bytes and no more, as a full disk does: the last write of them is cut short."""

    room = 0

    def write(self, data: Any, /) -> int:
        taken = min(len(data), FullDisk.room)
        if not taken:
            raise OSError(28, "No space left on device")
        FullDisk.room -= taken
        return super().write(bytes(data[:taken])) or 0
