"""Batches are read by hand, because there is one for nearly every step: as they were written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.recording import Batch, BatchRow, Decision
from rlmesh_trio.recording.decision_codec import decode_decision, encode_decision
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb

NUMBERS = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
BATCHES = st.builds(Batch, st.lists(st.builds(BatchRow, NUMBERS, NUMBERS, NUMBERS, NUMBERS)).map(tuple), TIMES)


@given(BATCHES, TIMES)
def test_a_batch_is_read_as_it_was_written_and_as_the_schema_says(batch: Batch, unix_ns: int) -> None:
    data = encode_decision(Decision(3, unix_ns, batch))
    assert decode_decision(data, 3) == Decision(3, unix_ns, batch)
    message = pb.Decision().parse(data)
    assert (message.unix_ns, message.batch.took_ns) == (unix_ns, batch.took_ns)
    told = message.batch
    assert tuple(map(BatchRow, told.ordinals, told.steps, told.requests, told.frames)) == batch.rows


def test_a_batch_that_is_cut_anywhere_is_refused() -> None:
    data = encode_decision(Decision(3, 300, Batch((BatchRow(1, 200, 0, 1), BatchRow(2, 7, 1, 1)), 70_000)))
    for length in range(10, len(data)):
        with pytest.raises(ProtocolError, match="a message of the channel /decision is malformed"):
            decode_decision(data[:length], 3)
