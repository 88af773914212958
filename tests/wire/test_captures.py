"""Bytes of real servers and clients, each with what it says written beside it."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from rlmesh_trio.wire import strict
from tests.wire.oracle import generated, google, plain_generated, plain_google

CAPTURES = Path(__file__).parent / "captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.json"))

each_capture = pytest.mark.parametrize("name", NAMES)


def load(name: str) -> tuple[dict[str, Any], bytes]:
    return json.loads((CAPTURES / f"{name}.json").read_text()), (CAPTURES / f"{name}.bin").read_bytes()


def test_the_captures_are_here() -> None:
    assert len(NAMES) == 59


@each_capture
def test_our_schema_reads_it_as_it_says(name: str) -> None:
    said, data = load(name)
    message = google(said["message"]).FromString(data)
    assert json_format.MessageToDict(message, preserving_proto_field_name=True) == said["decoded"]
    assert len(data) == said["bytes"]


@each_capture
def test_the_strict_parser_reads_and_writes_it(name: str) -> None:
    said, data = load(name)
    expected = google(said["message"]).FromString(data)
    message = strict.decode(generated(said["message"]), data, what=name)
    assert plain_generated(message) == plain_google(expected)
    assert google(said["message"]).FromString(strict.encode(message)) == expected
