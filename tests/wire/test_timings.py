from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.wire.fields import read_varint
from rlmesh_trio.wire.timings import ENV_TIMINGS, EnvTiming, read_timings
from tests.wire.forms import varint
from tests.wire.oracle import descriptor
from tests.wire.views import ENV_REPLY

_NUMBERS = st.integers(0, 2**64 - 1) | st.integers(0, 300) | st.sampled_from([2**7, 2**14, 2**21, 2**63 - 1, 2**63])


def timing(tag: int, number: int, length: int) -> bytes:
    """A timing whose number takes at least *length* bytes."""
    return bytes((tag,)) + varint(number, length)


_TIMING = st.builds(timing, st.sampled_from(tuple(ENV_TIMINGS)), _NUMBERS, st.integers(1, 10))
_PARTS = st.lists(st.lists(_TIMING, max_size=6).map(b"".join), max_size=12)


def one_by_one(data: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    pos = 0
    while pos < len(data):
        tag = data[pos]
        number, pos = read_varint(data, pos + 1)
        found.append((tag, number))
    return found


@given(parts=_PARTS)
def test_many_are_read_as_each_would_be(parts: list[bytes]) -> None:
    tags, numbers = read_timings(parts)
    assert list(zip(tags.tolist(), numbers.tolist(), strict=True)) == one_by_one(b"".join(parts))


def test_nothing_was_timed() -> None:
    for parts in ([], [b""], [b"", b""]):
        tags, numbers = read_timings(parts)
        assert (tags.size, numbers.size) == (0, 0)


def test_bits_beyond_the_64th_are_cut() -> None:
    for number in (b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x7e"):
        assert read_timings([b"\x58" + number])[1].tolist() == [read_varint(number, 0)[0]]


def test_what_an_env_times_is_what_the_schema_says() -> None:
    timed = [field for field in descriptor(ENV_REPLY).fields if field.name.endswith("_ns")]
    names = {field.number << 3: field.name.removesuffix("_ns").removeprefix("endpoint_") for field in timed}
    ours = {tag: metric.removeprefix("endpoint.").replace(".", "_") for tag, metric in ENV_TIMINGS.items()}
    assert ours == names
    assert tuple(ENV_TIMINGS) == tuple(sorted(ENV_TIMINGS))
    assert sorted(ENV_TIMINGS.values()) == sorted(get_args(EnvTiming))
