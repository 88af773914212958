"""The error arm, which both legs have in one form: code, message, recoverable, debug text."""

from collections.abc import Mapping

import attrs

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.wire.fields import TRUNCATED, read_uint32, read_varint, skip_field

__all__ = ("ErrorParts", "read_error")


@attrs.define
class ErrorParts:
    """An error as far as it was read."""

    code: int = 0
    message: str = ""
    recoverable: bool = False

    def to_error(self, names: Mapping[int, str]) -> EndpointError:
        """The error to raise; a code that is not in *names* is called ``CODE_<number>``."""
        return EndpointError(names.get(self.code, f"CODE_{self.code}"), self.message, self.recoverable)


def read_error(parts: ErrorParts, data: bytes, pos: int, end: int) -> None:
    """Merge the error message between *pos* and *end* into *parts*."""
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag == 0x08:
            number, pos = read_varint(data, pos)
            number &= 0xFFFF_FFFF
            parts.code = number - (1 << 32) if number >> 31 else number
        elif tag in (0x12, 0x22):
            size, pos = read_uint32(data, pos)
            stop = pos + size
            text = data[pos:stop].decode()
            if tag == 0x12:
                parts.message = text
            pos = stop
        elif tag == 0x18:
            number, pos = read_varint(data, pos)
            parts.recoverable = number != 0
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
