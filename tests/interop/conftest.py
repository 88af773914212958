"""Servers for the interop tests. One that keeps no state between clients is started once and shared."""

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.peers import Peer, start_env_peer, start_model_peer

StartPeer = Callable[..., Peer]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def shared_env() -> Generator[StartPeer]:
    """Call with env peer options for a server that lasts for the whole run: one per set of options."""
    with _shared(start_env_peer) as start:
        yield start


@pytest.fixture(scope="session")
def shared_model() -> Generator[StartPeer]:
    """As ``shared_env``, for model peers; their logs go on from test to test."""
    with _shared(start_model_peer) as start:
        yield start


@contextlib.contextmanager
def _shared(start: Callable[..., contextlib.AbstractContextManager[Peer]]) -> Generator[StartPeer]:
    with contextlib.ExitStack() as running:
        peers: dict[tuple[str, ...], Peer] = {}

        def get(*args: str) -> Peer:
            if args not in peers:
                peers[args] = running.enter_context(start(*args))
            return peers[args]

        yield get
