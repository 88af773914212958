"""The wire checks on a scripted server: each of its faults fails one check and no other, and none fails none."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.conformance.raw_stream import open_raw_stream
from rlmesh_trio.conformance.registry import CHECKS, Facts
from tests.conformance.broken_server import FAULTS, ODD, ScriptedServer, scripted_server
from tests.conformance.wire_labs import WIRE_CHECKS, facts_at, failing, judged_by_wire, lab_at, search_at, searched

SLOW = {"ignores timeout_ms": 0.4}


NOT_IN_AN_EXAMPLE = {
    "takes broken texts": ("step !text-bytes:1",),
    "keeps a reset stream's place": ("step", "leave reset"),
    "sends 4 MiB at most": ("step padding=1",),
}
WIDE = {"sends 4 MiB at most": 1 << 20}


def server_with(fault: str) -> ScriptedServer:
    return ScriptedServer(fault, step_seconds=SLOW.get(fault, 0.0), cells=WIDE.get(fault, 2))


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in NOT_IN_AN_EXAMPLE])
async def test_each_fault_fails_one_check_and_no_other(fault: str, loopback_clock: MockClock) -> None:
    found = await failing(server_with(fault))
    assert list(found) == [FAULTS[fault]], found


@pytest.mark.parametrize("fault", NOT_IN_AN_EXAMPLE)
async def test_a_fault_that_takes_a_case_of_its_own(fault: str, loopback_clock: MockClock) -> None:
    assert await judged_by_wire(FAULTS[fault], server_with(fault), NOT_IN_AN_EXAMPLE[fault]) is not None


SMALL = {
    "answers twice": ("step",),
    "out of order": ("step ahead", "step"),
    "loses an answer": ("step",),
    "cuts the stream": ("render",),
    "takes named lanes": ("step @0",),
    "renders two lanes": ("render @0,1",),
    "takes broken texts": ("step !text-bytes:1",),
    "unreadable ends with OK": ("step !message-cut:1",),
    "recoverable and ends": ("empty",),
    "second client takes over": ("leave half-close",),
    "close is answered twice": ("close ahead",),
    "takes 4 MiB at most": ("step padding=4",),
}


@pytest.mark.parametrize("fault", SMALL)
async def test_what_shows_a_fault_is_as_small_as_can_be(fault: str, loopback_clock: MockClock) -> None:
    broken = await searched(FAULTS[fault], server_with(fault))
    assert broken is not None
    assert broken.case == SMALL[fault]


CORRECT = {
    "vector": ScriptedServer(),
    "lanes": ScriptedServer(lanes=True, width=3),
    "single": ScriptedServer(width=1, lanes=True),
    "ends when asked": ScriptedServer(may_end=True),
}


@pytest.mark.parametrize("kind", CORRECT)
async def test_a_correct_server_fails_nothing(kind: str, loopback_clock: MockClock) -> None:
    assert await failing(CORRECT[kind]) == {}


@pytest.mark.parametrize("oddity", ODD)
async def test_an_odd_server_that_is_correct_fails_nothing(oddity: str, loopback_clock: MockClock) -> None:
    assert await failing(ScriptedServer(oddity, lanes=oddity == "lanes overtake")) == {}


@pytest.mark.parametrize("kind", ["vector", "lanes"])
async def test_nothing_is_found_on_a_correct_server(kind: str, loopback_clock: MockClock) -> None:
    async with scripted_server(attrs.evolve(CORRECT[kind])) as address, lab_at(address) as lab:
        for check in WIRE_CHECKS:
            if check not in ("wire.shutdown", "wire.large"):
                assert await search_at(lab, check, examples=6) is None, check


async def test_large_answers_of_a_correct_server_pass(loopback_clock: MockClock) -> None:
    assert await judged_by_wire("wire.large", ScriptedServer(cells=1 << 20), ("step padding=1",)) is None


async def test_a_server_that_takes_its_time_fails_nothing(loopback_clock: MockClock) -> None:
    slow = ScriptedServer(step_seconds=0.3)
    for check in ("wire.one-answer", "wire.deadline", "wire.survives", "wire.second-client", "wire.close"):
        assert await judged_by_wire(check, slow) is None, check


async def test_a_lab_knows_what_was_due_when_a_judge_was_cut_short(loopback_clock: MockClock) -> None:
    async with scripted_server(ScriptedServer(step_seconds=9.0)) as address, lab_at(address, step_timeout=9.0) as lab:
        assert lab.unanswered == 0
        with trio.move_on_after(0.3):
            await CHECKS["wire.one-answer"].judge(lab, ("step",))
        assert lab.unanswered > 0


async def test_a_lab_knows_that_no_stream_was_had(loopback_clock: MockClock) -> None:
    async with scripted_server(ScriptedServer()) as address, open_raw_stream(address, token=None, limit=1.0) as first:
        facts = await facts_at_other()
        async with lab_at(address, facts=facts) as lab:
            assert not lab.lost_connection
            with trio.move_on_after(0.2):
                await CHECKS["wire.one-answer"].judge(lab, ("step",))
            assert lab.lost_connection
        assert first.ending is None


async def facts_at_other() -> Facts:
    """The facts of a server like the one that has no place."""
    async with scripted_server(ScriptedServer()) as address:
        return await facts_at(address)
