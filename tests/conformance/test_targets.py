import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from rlmesh_trio.conformance import serving_process
from rlmesh_trio.conformance.facts import facts_of, package_of, unreadable_facts
from rlmesh_trio.conformance.lab import open_lab
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, ServedTarget, WireTarget, target_for
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import ConnectError
from tests.conformance.scripted_env import Counting

COUNTING = "tests.conformance.scripted_env:Counting"


def raising() -> Any:
    raise FileNotFoundError("no floor\nto walk on")


def talking() -> Any:
    print("made")
    return Counting()


def dying() -> Any:
    os._exit(3)


@pytest.fixture
def one_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second one to take turns with: to start one takes long."""
    monkeypatch.setattr(serving_process, "_NESTS", 1)


def test_what_a_target_is_follows_from_its_name() -> None:
    wire = target_for("127.0.0.1:5555", token="secret")
    assert isinstance(wire, WireTarget)
    assert (wire.name, wire.kind, wire.token, wire.source) == ("127.0.0.1:5555", "wire", "secret", None)
    served = target_for("CartPole-v1", lanes=4)
    assert isinstance(served, ServedTarget)
    assert (served.name, served.kind, served.source) == ("CartPole-v1", "factory", "CartPole-v1")
    assert isinstance(target_for(COUNTING), ServedTarget)
    local = target_for(Counting)
    assert isinstance(local, LocalTarget)
    assert (local.name, local.kind) == ("Counting", "local")
    assert target_for(local) is local


@pytest.mark.parametrize(
    ("named", "lanes", "why"),
    [("tcp://127.0.0.1", None, "bad address"), ("127.0.0.1:5555", 4, "lanes are for an env started here")],
)
def test_what_is_no_target_is_refused_in_one_line(named: str, lanes: int | None, why: str) -> None:
    with pytest.raises(ConnectError, match=why) as refusal:
        target_for(named, lanes=lanes)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("one_interpreter")
async def test_an_env_is_served_by_a_process_that_can_be_killed_and_started_again() -> None:
    target = ServedTarget(COUNTING, lanes=2)
    async with target.running():
        first = target.address
        async with target.connect(5.0) as env:
            assert env.contract.num_envs == 2
            assert env.subset_step
            assert package_of(env)[0] == "rlmesh_trio"
            facts = facts_of(target, env, Settings(max_steps=9))
        assert (facts.factory, facts.local, facts.served, facts.limit) == (True, True, True, 9)
        assert not target.ended
        await target.restart()
        assert target.address != first
        async with target.connect(5.0) as env:
            assert env.contract.num_envs == 2
    assert target.ended


@pytest.mark.usefixtures("one_interpreter")
async def test_a_factory_that_is_no_name_goes_to_the_process_as_well(tmp_path: Path) -> None:
    marker = tmp_path / "made"

    def make() -> Counting:
        marker.touch()
        return Counting()

    target = ServedTarget(make)
    async with target.running(), target.connect(5.0):
        assert marker.exists()
    assert target.name.endswith("make")


@pytest.mark.usefixtures("one_interpreter")
@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (f"{__name__}:raising", "FileNotFoundError: no floor"),
        (f"{__name__}:dying", "the process to serve the env ended at once: no word"),
        (f"{__name__}:missing", "has no attribute 'missing'"),
        ("NoSuchEnv-v0", "NoSuchEnv"),
    ],
)
async def test_an_env_that_cannot_be_served_is_told_in_one_line(factory: str, why: str) -> None:
    with pytest.raises(ConnectError) as refusal:
        async with ServedTarget(factory).running():
            raise AssertionError
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("one_interpreter")
async def test_what_the_process_writes_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    target = ServedTarget(f"{__name__}:talking")
    async with target.running():
        await target.restart()
        assert "made" in target.stderr, "the process before has said all it had to say"


async def test_the_process_ends_with_its_parent() -> None:
    program = f"""
import trio
from rlmesh_trio.conformance.targets import ServedTarget

async def main():
    async with ServedTarget({COUNTING!r}).running():
        await trio.sleep_forever()

trio.run(main)
"""
    async with trio.open_nursery() as nursery:
        run: Any = partial(trio.run_process, [sys.executable, "-c", program], check=False, start_new_session=True)
        parent: trio.Process = await nursery.start(run)
        await until(lambda: len(descendants(parent.pid)) == 2)
        serving = descendants(parent.pid)
        parent.kill()
        await until(lambda: not any(map(lives, serving)))


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20.0):
        while not condition():  # noqa: ASYNC110 - another process's doing
            await trio.sleep(0.02)


async def test_processes_take_turns_and_draw_differently() -> None:
    target = ServedTarget(f"{__name__}:Drawing")
    script = Script(1, (Reset((3,)),))
    async with target.running():
        async with target.connect(5.0) as env:
            facts = facts_of(target, env, Settings())
        async with open_lab(target, facts, step_timeout=5.0) as lab:
            drawn = [(await lab.play_apart(script)).answers[0].raw_leaves[0] for _ in range(4)]
    assert len({row[:4] for row in drawn}) == 4, "what nobody seeds"
    assert len({row[4:] for row in drawn}) == 2, "the hashes of two interpreters"


class Drawing(Counting):
    """Observes what hangs on no seed."""

    def observed(self) -> Any:
        return np.array([np.random.random() * 9, hash("a") % 9001 / 1000], np.float32)


async def test_facts_of_an_env_of_this_process() -> None:
    target = LocalTarget("CartPole-v1", where="inline")
    async with target.running(), target.connect(1.0) as env:
        facts = facts_of(target, env, Settings(nondeterministic=True, ignored_leaves=("obs.a",), ulps=3))
        assert package_of(env) == ("", "")
    assert (facts.factory, facts.local, facts.served) == (False, True, False)
    assert facts.limit == 500, "what gymnasium's registry says"
    assert facts.capabilities == {"subset_step"}
    assert (facts.nondeterministic, facts.ignored_leaves, facts.ulps) == (True, frozenset({"obs.a"}), 3)


def test_a_server_whose_contract_cannot_be_read_has_no_spaces() -> None:
    facts = unreadable_facts(WireTarget("127.0.0.1:5555"), Settings())
    assert facts.contract.observation_space is None
    assert isinstance(facts.contract, EnvContract)
    assert facts.served


@pytest.mark.usefixtures("one_interpreter")
async def test_a_played_script_is_the_same_here_and_there() -> None:
    script = Script(1, (Reset((3,)), Step(((b"\x01" + bytes(7),),))))
    target = ServedTarget(COUNTING)
    async with target.running():
        async with target.connect(5.0) as env:
            facts = facts_of(target, env, Settings())
        async with open_lab(target, facts, step_timeout=5.0) as lab:
            served, local = await lab.play(script), await lab.play_local(script)
    assert [answer.raw_leaves for answer in served.answers] == [answer.raw_leaves for answer in local.answers]
    assert len(served.answers) == 2
