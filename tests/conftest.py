"""What all tests share: time and hypothesis settings that do not depend on how busy the machine is."""

import pytest
from hypothesis import settings
from trio.testing import MockClock

settings.register_profile("default", deadline=None)
settings.load_profile("default")


@pytest.fixture
def loopback_clock() -> MockClock:
    """An ``autojump_clock`` for both ends of a socket in one process: what was sent may be on its way for a moment."""
    return MockClock(autojump_threshold=0.02)
