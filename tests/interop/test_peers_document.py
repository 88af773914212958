"""docs/peers.md is true to itself: its bytes are messages, and the tests it sends the reader to exist."""

import re
from pathlib import Path

import pytest

from rlmesh_trio.wire.pb.rlmesh.env import v1 as env_pb
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model_pb
from rlmesh_trio.wire.strict import decode
from tests.interop import test_env_quirks, test_model_quirks

TEXT = (Path(__file__).parents[2] / "docs" / "peers.md").read_text()
ENV_PART, MODEL_PART = TEXT.split("## Model servers")
PARTS = {
    "env": (ENV_PART, env_pb.JoinRequest, env_pb.JoinResponse),
    "model": (MODEL_PART, model_pb.JoinRequest, model_pb.JoinResponse),
}
UNREADABLE = "0a ff"


@pytest.mark.parametrize("leg", PARTS)
def test_the_bytes_are_messages(leg: str) -> None:
    part, request, response = PARTS[leg]
    shown = re.findall(r"^    ([<>]) ([0-9a-f]{2}(?: [0-9a-f]{2})*)$", part, re.MULTILINE)
    assert len(shown) > 10
    for side, frame in shown:
        if frame != UNREADABLE:
            message = decode(request if side == ">" else response, bytes.fromhex(frame), what=frame)
            assert message.request_id.startswith("r")


def test_every_test_that_is_named_exists_and_every_test_is_named() -> None:
    tests = {name for module in (test_env_quirks, test_model_quirks) for name in vars(module) if name[:5] == "test_"}
    named = [name for name in re.findall(r"`-k\s(\w+)`", TEXT) if name != "NAME"]
    assert len(named) > 20
    for name in named:
        assert any(name in test for test in tests), name
    assert {test for test in tests if not any(name in test for name in named)} == set()
