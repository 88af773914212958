"""A batch of values on the wire: a message that repeats one bytes field, once per leaf.

A leaf of more than 4 KiB is read as a view of the message, a smaller one as bytes of its own.
"""

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import Leaf, Leaves
from rlmesh_trio.wire.fields import TRUNCATED, encode_varint, read_uint32, skip_field

__all__ = ("encode_leaves", "read_leaves")

_LARGEST_COPY = 4096


def read_leaves(data: bytes, pos: int, end: int) -> list[Leaf]:
    """The leaves of the space value between *pos* and *end*."""
    leaves: list[Leaf] = []
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag > 127:
            tag, pos = read_uint32(data, pos - 1)
        if tag == 0x0A:
            size = data[pos]
            pos += 1
            if size > 127:
                size, pos = read_uint32(data, pos - 1)
            stop = pos + size
            leaves.append(data[pos:stop] if size <= _LARGEST_COPY else memoryview(data)[pos:stop])
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    return leaves


def encode_leaves(tag: bytes, leaves: Leaves) -> tuple[list[Leaf], int]:
    """The pieces of a space value field, to be joined with what is around it, and their size together."""
    pieces: list[Leaf] = [b""]
    size = 0
    for leaf in leaves:
        length = leaf.nbytes if isinstance(leaf, memoryview) else len(leaf)
        head = b"\x0a" + encode_varint(length)
        pieces += (head, leaf)
        size += len(head) + length
    head = pieces[0] = tag + encode_varint(size)
    return pieces, len(head) + size
