"""A group's plan: the state table of one lane group as a machine, played against the buffer; and worked ledgers."""

from enum import Enum, auto

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlmesh_trio.engine.chunks import ChunkBuffer, PredictState
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import EpisodeInfo, Leaves, PredictRequest
from rlmesh_trio.spec import MAX_HISTORY_ROWS

NONE, WANTED, FLYING, STALE, BANKED = PredictState


def observed(number: int, episode: int = 0) -> PredictRequest:
    return PredictRequest("s", "e", f"r-{number}", [bytes([number % 256])], (EpisodeInfo(f"ep-{episode}", None),))


def frames(chunk: int, length: int) -> list[Leaves]:
    return [[f"{chunk}.{number}".encode()] for number in range(length)]


class Phase(Enum):
    """Where the group's task stands."""

    READY = auto()
    STEPPING = auto()
    RESETTING = auto()
    IDLE = auto()


class GroupMachine(RuleBasedStateMachine):
    """One lane group as a state table. Rules are named by the row of the table they play."""

    @initialize(lead=st.integers(0, 3), history=st.booleans(), driver_owned=st.booleans())
    def r2_cold_start(self, lead: int, history: bool, driver_owned: bool) -> None:
        self.lead, self.history, self.driver_owned = lead, history, driver_owned
        self.buffer = ChunkBuffer(lead=lead, history=history)
        self.buffer.begin_reset()
        self.phase = Phase.RESETTING
        self.predict = NONE
        self.queue: list[Leaves] = []
        self.bank: list[Leaves] = []
        self.chunks = 0
        self.counter = 0
        self.episode = 0
        self.rolling = False
        self.observations = 0
        self.newest: PredictRequest | None = None
        self.newest_sent = False
        self.posted: PredictRequest | None = None
        self.left: list[int] = []
        self.kept: list[int] = []

    def wants(self, request: PredictRequest | None) -> None:
        """The table says a predict is wanted now."""
        assert request is self.newest
        assert request is not None
        self.predict, self.posted = WANTED, request

    def observe(self) -> None:
        request = observed(self.observations, self.episode)
        self.observations += 1
        due = self.predict is NONE and not self.queue
        self.newest, self.newest_sent = request, False
        if self.history:
            self.kept.append(self.counter)
        self.phase = Phase.READY
        got = self.buffer.observe(request)
        if due:
            self.wants(got)
        else:
            assert got is None

    def can_replan(self) -> bool:
        return self.newest is not None and (not self.history or not self.newest_sent)

    @precondition(lambda self: self.phase is Phase.RESETTING)
    @rule()
    def r3_r4_reset_done(self) -> None:
        self.episode += 1
        self.observe()

    def land(self, length: int) -> None:
        self.chunks += 1
        chunk = frames(self.chunks, length)
        self.buffer.land(chunk)
        if self.predict is STALE:
            self.predict = NONE
        elif self.queue:
            self.bank, self.predict = chunk, BANKED
        else:
            self.queue, self.predict = list(chunk), NONE

    @precondition(lambda self: self.predict in (FLYING, STALE))
    @rule(length=st.integers(1, 4))
    def p2_to_p6_predict_lands(self, length: int) -> None:
        replans = self.predict is STALE and self.phase is Phase.READY and not self.queue
        self.land(length)
        if replans:
            if self.can_replan():
                self.wants(self.buffer.replan())
            else:
                assert self.buffer.replan() is None

    @precondition(lambda self: self.predict is WANTED)
    @rule()
    def p1_chosen_by_the_plan(self) -> None:
        assert self.posted is not None
        rows = [row.step for row in self.posted.history]
        if self.history:
            assert [*rows, self.posted.step] == self.kept[: len(rows) + 1]
            self.left += self.kept[: len(rows) + 1]
            del self.kept[: len(rows) + 1]
            assert self.posted.step == self.left[-1]
        else:
            assert (rows, self.posted.step) == ([], None)
        if self.posted is self.newest:
            self.newest_sent = True
        self.buffer.sent()
        self.predict = FLYING

    @precondition(lambda self: self.phase is Phase.READY and not self.queue and self.predict is not BANKED)
    @rule()
    def d4_nothing_to_play(self) -> None:
        assert self.buffer.take() is None
        assert self.predict in (WANTED, FLYING, STALE)

    @precondition(lambda self: self.phase is Phase.READY and (self.queue or self.predict is BANKED))
    @rule()
    def d1_d2_d3_a_frame_is_taken(self) -> None:
        if not self.queue:
            self.queue, self.bank, self.predict = self.bank, [], NONE
        assert self.buffer.take() == self.queue.pop(0)
        prefetch = self.buffer.prefetch()
        if self.predict is NONE and self.lead and len(self.queue) <= self.lead and self.can_replan():
            self.wants(prefetch)
        else:
            assert prefetch is None
        self.phase = Phase.STEPPING

    def stepped(self) -> None:
        self.counter += 1
        self.buffer.counter += 1
        if self.rolling:
            self.rolling = False
            self.episode += 1
            self.buffer.withdraw()
            if self.predict is WANTED:
                self.predict = NONE

    @precondition(lambda self: self.phase is Phase.STEPPING)
    @rule()
    def s1_s2_s8_a_step_that_ends_nothing(self) -> None:
        self.stepped()
        self.observe()

    def ended(self) -> None:
        assert self.buffer.drop_plan() == len(self.queue)
        self.queue, self.bank = [], []
        self.predict = STALE if self.predict in (FLYING, STALE) else NONE

    @precondition(lambda self: self.phase is Phase.STEPPING and self.driver_owned)
    @rule()
    def s5_an_end_then_a_reset(self) -> None:
        self.stepped()
        self.ended()
        self.buffer.begin_reset()
        self.kept = []
        self.newest = None
        self.phase = Phase.RESETTING

    @precondition(lambda self: self.phase is Phase.STEPPING and not self.driver_owned and not self.rolling)
    @rule()
    def s6_s7_an_end_the_env_restarts_from(self) -> None:
        self.stepped()
        self.ended()
        self.rolling = True
        self.observe()

    @precondition(lambda self: self.phase is Phase.STEPPING)
    @rule()
    def s4_the_budget_says_stop(self) -> None:
        self.stepped()
        self.ended()
        self.phase = Phase.IDLE

    @precondition(lambda self: self.phase is Phase.IDLE and self.predict is NONE)
    @rule()
    def r1_a_finished_group_has_no_plan(self) -> None:
        assert self.buffer.take() is None

    @invariant()
    def the_buffer_agrees(self) -> None:
        assert self.buffer.state is self.predict

    @invariant()
    def observations_leave_once_and_in_order(self) -> None:
        assert self.left == sorted(set(self.left))

    @invariant()
    def a_ready_group_can_go_on(self) -> None:
        if self.phase is Phase.READY:
            assert self.queue or self.predict is not NONE


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTheStateTable = GroupMachine.TestCase


Ledger = list[tuple[list[int], int | None]]

LEDGERS: list[tuple[int, Ledger]] = [
    (0, [([], 0), ([1, 2, 3], 4), ([5, 6, 7], 8)]),
    (1, [([], 0), ([1], 2), ([3, 4, 5], 6)]),
    (2, [([], 0), ([], 1), ([2, 3, 4], 5)]),
]


class Player:
    """Plays chunks of *horizon* frames whose predict lands at once, and writes the ledger down."""

    def __init__(self, horizon: int, lead: int, *, history: bool = True) -> None:
        self.horizon = horizon
        self.buffer = ChunkBuffer(lead=lead, history=history)
        self.ledger: Ledger = []

    def predict(self, request: PredictRequest | None) -> None:
        if request is not None:
            self.ledger.append(([row.step for row in request.history], request.step))
            self.buffer.sent()
            self.buffer.land(frames(len(self.ledger), self.horizon))

    def play(self, steps: int) -> Ledger:
        self.predict(self.buffer.observe(observed(0)))
        for number in range(1, steps + 1):
            assert self.buffer.take() is not None
            self.predict(self.buffer.prefetch())
            self.buffer.counter += 1
            if number < steps:
                self.predict(self.buffer.observe(observed(number)))
        return self.ledger


class TestHistory:
    @pytest.mark.parametrize(("lead", "ledger"), LEDGERS)
    def test_the_ledger_of_a_nine_step_episode_in_chunks_of_four(self, lead: int, ledger: Ledger) -> None:
        assert Player(4, lead).play(9) == ledger

    def test_a_lead_as_long_as_the_chunk_waits_for_the_next_observation(self) -> None:
        assert Player(4, 4).play(3) == [([], 0), ([], 1)]

    def test_without_history_the_newest_request_is_sent_again_as_it_was(self) -> None:
        player = Player(2, 2, history=False)
        request = observed(0)
        player.predict(player.buffer.observe(request))
        assert player.buffer.take() is not None
        assert player.buffer.prefetch() is request
        assert (request.request_id, request.history, request.step) == ("r-0", (), None)

    def test_rows_hold_the_episode_of_their_moment(self) -> None:
        buffer = ChunkBuffer(lead=0, history=True)
        assert buffer.observe(observed(0, 1)) is not None
        buffer.sent()
        buffer.counter = 1
        assert buffer.observe(observed(1, 1)) is None
        buffer.counter = 2
        assert buffer.observe(observed(2, 2)) is None
        buffer.drop_plan()
        buffer.land(frames(1, 1))
        request = buffer.replan()
        assert request is not None
        assert [(row.step, row.observation, row.episode_info[0].episode_id) for row in request.history] == [
            (1, [b"\x01"], "ep-1")
        ]
        assert (request.step, request.episode_info[0].episode_id) == (2, "ep-2")

    def test_what_a_request_carries_is_not_lost_when_the_request_is(self) -> None:
        """A prefetch is asked for, and before it is sent the episode ends: its rows ride the terminal predict."""
        buffer = ChunkBuffer(lead=1, history=True)
        assert buffer.observe(observed(0)) is not None
        buffer.sent()
        buffer.land(frames(1, 4))
        for number in (1, 2):
            assert buffer.take() is not None
            assert buffer.prefetch() is None
            buffer.counter = number
            assert buffer.observe(observed(number)) is None
        assert buffer.take() is not None
        assert buffer.prefetch() is not None
        buffer.counter = 3
        buffer.drop_plan()
        terminal = observed(3)
        assert buffer.observe(terminal) is terminal
        assert [row.step for row in terminal.history] == [1, 2]
        assert terminal.step == 3

    def test_a_backlog_has_an_end(self) -> None:
        buffer = ChunkBuffer(lead=0, history=True)
        assert buffer.observe(observed(0)) is not None
        for buffer.counter in range(1, MAX_HISTORY_ROWS + 1):
            assert buffer.observe(observed(buffer.counter)) is None
        buffer.counter += 1
        with pytest.raises(ProtocolError, match="buffered 1023 observation-history rows without a predict"):
            buffer.observe(observed(buffer.counter))

    def test_a_reset_clears_it(self) -> None:
        buffer = ChunkBuffer(lead=0, history=True)
        assert buffer.observe(observed(0)) is not None
        buffer.sent()
        buffer.counter = 1
        assert buffer.observe(observed(1)) is None
        buffer.drop_plan()
        buffer.begin_reset()
        buffer.land(frames(1, 4))
        assert buffer.take() is None
        assert buffer.replan() is None
        fresh = observed(2, 1)
        assert buffer.observe(fresh) is fresh
        assert (fresh.history, fresh.step) == ((), 1)
