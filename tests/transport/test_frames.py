"""However the bytes are cut, the same messages and the same other frames come out, in order."""

import struct
from collections.abc import Sequence
from itertools import pairwise

import attrs
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, WindowUpdated
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.transport import frames
from rlmesh_trio.transport.frames import (
    MAX_FRAME_SIZE,
    FrameSplitter,
    MessageReader,
    data_frames,
    message_head,
    one_frame,
    window_updates,
)

OURS = 3

Item = tuple[str, bytes]


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + payload


def prefixed(message: bytes) -> bytes:
    return message_head(len(message)) + message


@attrs.define
class Sorted:
    """What a splitter made of its input, in order."""

    items: list[Item] = attrs.field(factory=list[Item])
    credit: int = 0

    def splitter(self) -> FrameSplitter:
        splitter = FrameSplitter(lambda data: self.items.append(("frame", data)))
        splitter.claim(OURS, lambda data: self.items.append(("message", data)), self._add_credit)
        return splitter

    def _add_credit(self, size: int) -> None:
        self.credit += size


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(edges)]


# Anything but plain DATA of our stream: other kinds, other flags, other streams.
FOREIGN = [
    frame(*head, b"whatever"[:size]) for head in ((1, 4, OURS), (0, 8, OURS), (0, 0, 1), (6, 0, 0)) for size in (0, 8)
]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, list[Item]]:
    """The bytes of a connection and what is in them: messages that share and straddle frames, others between them."""
    payload = b"".join(prefixed(bytes(size)) for size in draw(st.lists(st.integers(0, 40), max_size=6)))
    plan = draw(st.lists(st.one_of(st.integers(0, 60), st.sampled_from(FOREIGN)), max_size=12))
    data, expected, begun = b"", list[Item](), b""
    for part in (*plan, len(payload)):
        if isinstance(part, bytes):
            data += part
            expected.append(("frame", part))
            continue
        data += frame(0, 0, OURS, payload[:part])
        begun, payload = begun + payload[:part], payload[part:]
        while len(begun) >= 5 and len(begun) >= (whole := 5 + int.from_bytes(begun[1:5], "big")):
            expected.append(("message", begun[5:whole]))
            begun = begun[whole:]
    return data, expected


@given(conversations(), st.lists(st.integers(min_value=0), max_size=20))
def test_any_cut_gives_the_same(conversation: tuple[bytes, list[Item]], cuts: list[int]) -> None:
    data, expected = conversation
    found = Sorted()
    splitter = found.splitter()
    for piece in pieces(data, cuts):
        splitter.feed(piece)
    assert found.items == expected
    assert splitter.missing == 0


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(min_value=0), max_size=20))
def test_a_payload_in_any_pieces(messages: list[bytes], cuts: list[int]) -> None:
    found: list[bytes] = []
    reader = MessageReader(found.append)
    for piece in pieces(b"".join(map(prefixed, messages)), cuts):
        reader.add(memoryview(piece))
    assert found == messages
    assert reader.idle
    assert reader.missing == 0


def test_every_single_cut_of_one_conversation() -> None:
    message = bytes(range(60))
    data = (
        frame(6, 0, 0, b"12345678")
        + one_frame(OURS, message)
        + data_frames(OURS, memoryview(prefixed(message)), 7)
        + frame(0, 0, 1, b"other")
        + one_frame(OURS, b"")
        + frame(1, 5, OURS, b"trailers")
    )
    whole = Sorted()
    whole.splitter().feed(data)
    kinds = [kind for kind, _ in whole.items]
    assert kinds == ["frame", "message", "message", "frame", "message", "frame"]
    for cut in range(len(data) + 1):
        found = Sorted()
        splitter = found.splitter()
        splitter.feed(data[:cut])
        splitter.feed(data[cut:])
        assert found.items == whole.items
    found = Sorted()
    splitter = found.splitter()
    for byte in data:
        splitter.feed(bytes((byte,)))
    assert found.items == whole.items


def test_it_knows_how_much_is_missing() -> None:
    found = Sorted()
    splitter = found.splitter()
    data = data_frames(OURS, memoryview(prefixed(b"x" * 1000)), 600)
    splitter.feed(data[:4])
    assert splitter.missing
    splitter.feed(data[4:100])
    assert splitter.missing == 1000 - (100 - 9 - 5)
    splitter.feed(data[100:])
    assert splitter.missing == 0


def test_before_a_stream_is_claimed_every_frame_is_passed_on_whole() -> None:
    passed: list[bytes] = []
    splitter = FrameSplitter(passed.append)
    first, second = one_frame(OURS, b"a"), frame(4, 0, 0, b"")
    splitter.feed(first + second[:5])
    assert passed == [first]
    assert splitter.missing
    splitter.feed(second[5:])
    assert passed == [first, second]


def test_credit_is_given_for_all_data_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_CREDIT", 1000)
    found = Sorted()
    splitter = found.splitter()
    for _ in range(50):
        splitter.feed(one_frame(OURS, b"x" * 95))
    assert 4000 <= found.credit <= 5000


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"\x01\0\0\0\x04", "compressed"),
        (b"\0" + (2**28 + 1).to_bytes(4, "big"), "268435457 bytes"),
    ],
)
@pytest.mark.parametrize("cut", [0, 3, 11])
def test_messages_that_are_refused(head: bytes, said: str, cut: int) -> None:
    splitter = Sorted().splitter()
    data = frame(0, 0, OURS, head + b"1234")
    splitter.feed(data[:cut])
    with pytest.raises(ProtocolError, match=said):
        splitter.feed(data[cut:])


def test_what_is_not_http2_is_refused_before_its_end() -> None:
    splitter = FrameSplitter(lambda data: None)
    with pytest.raises(ProtocolError, match="not HTTP/2"):
        splitter.feed(b"HTTP/1.1 400 Bad Request\r\n")


def test_the_largest_frame_passes() -> None:
    passed: list[bytes] = []
    splitter = FrameSplitter(passed.append)
    largest = frame(0, 0, 1, bytes(MAX_FRAME_SIZE))
    splitter.feed(largest)
    assert passed == [largest]


def test_h2_reads_what_is_written() -> None:
    server = H2Connection(H2Configuration(client_side=False))
    client = H2Connection(H2Configuration(client_side=True))
    server.initiate_connection()
    client.initiate_connection()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    client.send_headers(1, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")])
    server.receive_data(client.data_to_send())

    def heard(data: bytes) -> list[Event]:
        return server.receive_data(data)

    (small,) = heard(one_frame(1, b"small"))
    assert isinstance(small, DataReceived)
    assert small.data == prefixed(b"small")
    large = prefixed(bytes(40_000))
    parts = [part for part in heard(data_frames(1, memoryview(large), 16_384)) if isinstance(part, DataReceived)]
    assert b"".join(part.data for part in parts) == large
    grants = [grant for grant in heard(window_updates(1, 70_000)) if isinstance(grant, WindowUpdated)]
    assert [(grant.stream_id, grant.delta) for grant in grants] == [(0, 70_000), (1, 70_000)]
