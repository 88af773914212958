"""What leaves its bounds passes and is warned of once a leaf; what is no value of the space is refused."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.endpoints.conformance import Conformance
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Metadata
from rlmesh_trio.serve import serve_env
from rlmesh_trio.spaces import codec_for, space_from_gymnasium
from tests.interop.wire import env_wire, reset, step

SPACE = space_from_gymnasium(
    spaces.Dict({"say": spaces.Text(3, charset="ab"), "x": spaces.Box(0, 1, (1,), np.float32), "n": spaces.Discrete(2)})
)
INSIDE = {"say": "ab", "x": np.zeros(1, np.float32), "n": 1}


def checked(*members: dict[str, Any]) -> list[Metadata]:
    """The warnings about *members* of one session, each given over the one inside."""
    warnings: list[Metadata] = []
    conformance = Conformance("observation", SPACE, warnings)
    for member in members:
        conformance.check(codec_for(SPACE).pack_rows([INSIDE | member]), 1)
    return warnings


@pytest.mark.parametrize(
    ("member", "path", "detail"),
    [
        ({"say": "abab"}, "$.say", "4 characters, expected 1 to 3"),
        ({"say": ""}, "$.say", "0 characters"),
        ({"say": "aé"}, "$.say", "'é' is not in the charset"),
        ({"x": np.full(1, 2, np.float32)}, "$.x", "above the highest value"),
    ],
)
def test_bounds_are_warned_of_once(member: dict[str, Any], path: str, detail: str) -> None:
    (warning,) = checked({}, member, member, {"say": "baba"} if path == "$.say" else member)
    assert (warning["kind"], warning["path"]) == ("observation", path)
    assert detail in str(warning["detail"])


def test_leaves_are_warned_of_one_by_one() -> None:
    told = checked({"say": "abab"}, {"x": np.full(1, -1, np.float32), "say": "c"})
    assert [warning["path"] for warning in told] == ["$.say", "$.x"]


@pytest.mark.parametrize("member", [{"n": 2}, {"x": np.full(1, np.nan, np.float32)}])
def test_what_is_no_value_is_refused(member: dict[str, Any]) -> None:
    with pytest.raises(SpaceError):
        checked(member)


def test_bytes_that_are_no_text_are_refused() -> None:
    conformance = Conformance("observation", SPACE, [])
    leaves = list(codec_for(SPACE).pack_rows([INSIDE]))
    say = next(place for place, leaf in enumerate(SPACE.leaves) if leaf.kind == "text")
    leaves[say] = b"\1" + bytes(7) + b"\2" + bytes(7) + b"\xff\xfe"
    with pytest.raises(SpaceError, match="not UTF-8"):
        conformance.check(leaves, 1)


class Talks(gymnasium.Env[str, int]):
    """Says more than it declared, in characters of its own."""

    observation_space = spaces.Text(3, charset="ab")
    action_space = cast("Any", spaces.Discrete(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "ab", {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "a longer story", 0.0, False, False, {}


@pytest.mark.parametrize("lanes", [1, 2])
async def test_a_served_text_is_told_once_a_session_and_in_the_next_again(lanes: int) -> None:
    async def warnings(address: str) -> list[int]:
        async with env_wire(address) as wire:
            await wire.ask(reset(*"ab"[:lanes]))
            replies = [await wire.ask(step(*[1] * lanes)) for _ in range(2)]
        return [str(reply.step.infos).count("rlmesh.conformance.warning") for reply in replies]

    async with serve_env(Talks, lanes=lanes) as server:
        assert await warnings(server.address) == [1, 0]
        assert await warnings(server.address) == [1, 0]
