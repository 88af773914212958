"""The messages between an env in this process and its lane in a worker process.

A frame is one picklable *head* (small: what to do, rewards, infos) and the *leaves* beside it, never pickled. On the
pipe it is a fixed header (body length, head length, number of leaves), then the leaf lengths, the head, the leaves.
Both ends are the same installation on the same machine, started one by the other: nothing here is a wire format.
"""

import pickle
import struct
from typing import Any

from rlmesh_trio.messages import Leaf, Leaves

__all__ = ("HEADER_BYTES", "body_length", "decode_frame", "encode_frame")

_HEADER = struct.Struct("<QII")
HEADER_BYTES = _HEADER.size


def encode_frame(head: object, leaves: Leaves = ()) -> list[Leaf]:
    """The pieces of one frame in order, leaves uncopied."""
    pickled = pickle.dumps(head, pickle.HIGHEST_PROTOCOL)
    lengths = [memoryview(leaf).nbytes for leaf in leaves]
    body = 8 * len(lengths) + len(pickled) + sum(lengths)
    front = _HEADER.pack(body, len(pickled), len(lengths)) + struct.pack(f"<{len(lengths)}Q", *lengths) + pickled
    return [front, *leaves]


def body_length(header: Leaf) -> int:
    """How many bytes follow a header of :data:`HEADER_BYTES`."""
    return _HEADER.unpack(header)[0]


def decode_frame(header: Leaf, body: Leaf) -> tuple[Any, Leaves]:
    """The head and the leaves of one frame; the leaves are views into *body*."""
    _, head_length, count = _HEADER.unpack(header)
    view = memoryview(body)
    lengths = struct.unpack_from(f"<{count}Q", view)
    start = 8 * count + head_length
    head = pickle.loads(view[8 * count : start])
    leaves: list[Leaf] = []
    for length in lengths:
        leaves.append(view[start : start + length])
        start += length
    return head, leaves
