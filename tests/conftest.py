"""What all tests share: time that does not depend on how busy the machine is, and examples that are the same each time.

``--hypothesis-profile explore`` looks at others each time.
"""

import signal

import pytest
from hypothesis import settings
from trio.testing import MockClock

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("default")

# What a shell starts in the background ignores Ctrl-C, and what that starts does too. Some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def loopback_clock() -> MockClock:
    """An ``autojump_clock`` for both ends of a socket in one process: what was sent may be on its way for a moment."""
    return MockClock(autojump_threshold=0.02)
