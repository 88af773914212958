"""The helpers that start real peers: each failure is told, nothing is left behind."""

import os
from pathlib import Path

import pytest

from tests.peers import start_env_peer, start_model_peer


def test_a_peer_that_refuses_to_start_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match="ended with status 1 before it was ready") as caught,
        start_env_peer("--kind", "vector", "--autoreset", "same_step"),
    ):
        pass
    assert "SAME_STEP" in caught.value.__notes__[0]


def test_a_peer_is_reaped_when_the_body_fails() -> None:
    with pytest.raises(ZeroDivisionError), start_env_peer() as peer:
        raise ZeroDivisionError
    assert peer.process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.kill(peer.process.pid, 0)


def test_a_peer_serves_on_a_unix_socket(tmp_path: Path) -> None:
    with start_env_peer("--unix", str(tmp_path / "env.sock")) as peer:
        assert peer.address == f"unix://{tmp_path}/env.sock"


def test_a_model_peer_stops_politely_and_logs_its_close() -> None:
    with start_model_peer("--kind", "chunk") as peer:
        assert peer.stop() == 0
        assert peer.events("close") == [{"event": "close"}]
        assert peer.events("forward") == []
