import contextlib
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.errors import ConnectError, HandshakeError, SpaceError
from tests.endpoints import toys
from tests.endpoints.toys import Counter, counter

TOYS = "tests.endpoints.toys"


async def opened(source: object, **options: Any) -> None:
    async with open_local_env(source, **options):
        pass


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("CartPol-v1", r"unknown env 'CartPol-v1'.*did you mean CartPole-v1"),
        ("CartPole-v9", r"unknown env 'CartPole-v9'.*CartPole-v1"),
        ("Nowhere/x-v0", "unknown env 'Nowhere/x-v0'"),
        ("", "unknown env ''"),
        ("Cart Pole", "unknown env 'Cart Pole'"),
        ("no_such_package:Env-v0", "env 'no_such_package:Env-v0' could not be made: ModuleNotFoundError"),
        ("no_such_module:make", "cannot load 'no_such_module:make': no module named 'no_such_module'"),
        (f"{TOYS}:countr", "has no attribute 'countr' .did you mean counter"),
        (f"{TOYS}:Counter.nothing", "has no attribute 'nothing'"),
        (f"{TOYS}:broken", "env factory .*broken.* raised ValueError: no such simulator$"),
        (f"{TOYS}:not_an_env", "env factory .*not_an_env.* returned a dict, not a gymnasium env"),
        (f"{TOYS}:a_number", "is an int, neither a gymnasium env nor a factory"),
        (toys.broken, "env factory broken raised ValueError"),
        (7, "an int is no env"),
        (Counter, None),
        ([], "an empty list has no lanes"),
        ([Counter(), "CartPole-v1"], "entry 1 of the env list is a str"),
        ([toys.vector(1)], "entry 0 of the env list is a SyncVectorEnv"),
    ],
)
async def test_what_cannot_be_opened_is_one_clear_line(source: object, says: str | None) -> None:
    if says is None:
        return await opened(source)
    with pytest.raises(ConnectError, match=says) as caught:
        await opened(source)
    assert "\n" not in str(caught.value)
    return None


async def test_one_env_is_one_lane() -> None:
    with pytest.raises(ConnectError, match="cannot serve 2 lanes"):
        await opened(Counter(), lanes=2)
    with pytest.raises(ConnectError, match="at least one lane, not 0"):
        await opened(counter, lanes=0)
    with pytest.raises(ConnectError, match="2 envs are 2 lanes, not 3"):
        await opened([Counter(), Counter()], lanes=3)
    twice = Counter()
    with pytest.raises(ConnectError, match="the same env twice"):
        await opened([twice, twice])
    with pytest.raises(ConnectError, match="inline, thread, process, not 'cloud'"):
        await opened(Counter(), where="cloud")


async def test_lanes_must_be_alike() -> None:
    def odd(lane: int) -> Counter:
        env = Counter()
        env.action_space = spaces.Discrete(3 + lane)
        return env

    with pytest.raises(HandshakeError, match="lane 1 declares another action_space"):
        await opened(odd, lanes=2)


async def test_what_was_opened_is_closed_when_a_lane_fails() -> None:
    made: list[Counter] = []

    def second_fails(lane: int) -> Counter:
        if lane == 1:
            raise RuntimeError("no room")
        made.append(Counter())
        return made[-1]

    with pytest.raises(ConnectError, match="no room"):
        await opened(second_fails, lanes=3)
    assert [env.closed for env in made] == [1] * len(made)
    assert made


async def test_a_space_without_wire_form_is_named() -> None:
    env = Counter()
    env.observation_space = spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))})
    with pytest.raises(SpaceError, match=r"\$\.a: .*Sequence"):
        await opened(env)


async def test_an_env_that_cannot_say_its_spaces_is_refused() -> None:
    class Shy(DuckEnv):
        @property
        def metadata(self) -> dict[str, Any]:
            raise RuntimeError("ask me later")

    with pytest.raises(ConnectError, match="Shy cannot be described: RuntimeError: ask me later"):
        await opened(Shy())


async def test_envs_are_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_place.py").write_text("from tests.endpoints.toys import Counter as made\nimport gone_missing\n")
    (tmp_path / "my_envs.py").write_text("from tests.endpoints.toys import Counter, ready_env\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry not in ("", ".")])
    await opened("my_envs:Counter")
    await opened("my_envs:ready_env")
    with pytest.raises(ConnectError, match="importing my_place failed with ModuleNotFoundError: No module named 'gone"):
        await opened("my_place:made")


async def test_a_registered_module_prefix_goes_to_gymnasium() -> None:
    cast("Any", gymnasium).register("toys/Counter-v3", entry_point=Counter)
    with contextlib.ExitStack() as stack:
        stack.callback(gymnasium.registry.pop, "toys/Counter-v3")
        async with open_local_env(f"{TOYS}:toys/Counter-v3") as env:
            assert env.contract.env_id == "toys/Counter-v3"


class DuckEnv:
    """Not a gymnasium class, but it quacks."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, _: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        pass


async def test_what_quacks_is_an_env() -> None:
    await opened(DuckEnv())
    await opened(DuckEnv)


class Needy:
    def __init__(self, checkpoint: str, *, device: str = "cpu") -> None: ...

    def predict(self, observation: object) -> int:
        return 0


class Failing:
    def __init__(self) -> None:
        raise FileNotFoundError("weights.bin")

    def predict(self, observation: object) -> int:
        return 0


class Unloadable:
    def load(self) -> None:
        raise FileNotFoundError("weights.bin")

    def predict(self, observation: object) -> int:
        return 0

    def close(self) -> None:
        raise AssertionError("closed without having been loaded")


class Forgetful:
    wants_history = True

    def predict(self, observation: object) -> int:
        return 0


class Chunkless:
    native_chunk = 0

    def predict(self, observation: object) -> int:
        return 0


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("randm", r"unknown policy 'randm' \(did you mean random\?\): use random, zero or module:name"),
        ("nothing_here:p", "no module named 'nothing_here'"),
        (f"{TOYS}:a_number", "is of type int: neither callable nor with any of"),
        (":p", "expected module:name"),
        (object(), "policy object is of type object"),
        (Needy, "policy class Needy cannot be created without checkpoint"),
        (Failing, "policy class Failing raised FileNotFoundError: weights.bin"),
        (Unloadable, "loading policy Unloadable failed: FileNotFoundError: weights.bin"),
        (Forgetful, "wants history, but none of predict has a parameter history"),
        (Chunkless, "native_chunk=0"),
    ],
)
async def test_a_policy_that_cannot_be_had_is_one_clear_line(policy: object, says: str) -> None:
    with pytest.raises(ConnectError, match=says) as caught:
        async with open_local_model(policy):
            pass
    assert "\n" not in str(caught.value)


async def test_a_place_no_policy_runs() -> None:
    with pytest.raises(ConnectError, match="auto, inline, thread, not 'process'"):
        async with open_local_model("zero", where="process"):  # pyright: ignore[reportArgumentType]
            pass
