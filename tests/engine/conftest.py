"""The virtual clock of these tests has an end, so that a deadlock is a failed test and not a hang."""

import pytest
import trio
import trio.testing

END_OF_TIME = 20_000.0


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    clock = trio.testing.MockClock(autojump_threshold=0)

    def jump_to_next_deadline() -> None:
        ahead = trio.lowlevel.current_statistics().seconds_to_next_deadline
        assert clock.current_time() + ahead < END_OF_TIME, "the tasks wait for each other"
        if ahead > 0:
            clock.jump(ahead)

    monkeypatch.setattr(clock, "_autojump", jump_to_next_deadline)
    return clock
