"""The check ``twin.two-servers-agree``: whatever comes after the first target is compared with it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.blame import REPEATABLE
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.terminal import terminal_text
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, Target, WireTarget
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.errors import ConnectError
from rlmesh_trio.serve import serve_env
from tests.conformance.gym_matrix import WIDTH, vector_of
from tests.conformance.planted.seed import (
    Infos,
    MixedInfos,
    OddButRight,
    RandomInfos,
    RandomLeaf,
    Short,
    UnseededFollowup,
    UnseededPush,
    Vector,
    Walk,
)
from tests.peers import start_env_peer

CHECK = "twin.two-servers-agree"
CHECKS = {id: load_checks()[id] for id in (REPEATABLE, CHECK)}


class FarFromHome(Walk):
    """Is pushed harder where it is far from home."""

    def push(self) -> float:
        return super().push() * (2 if self.t > 3 else 1)


class Rounds(Walk):
    """Gives rewards of few digits."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, terminated, truncated, infos = super().step(action)
        return observation, float(np.float16(reward)), terminated, truncated, infos


class Talks(Walk):
    """Says how it was pushed, and is pushed harder in the end."""

    def push(self) -> float:
        return super().push() * (2 if self.t > 3 else 1)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        return (*super().step(action)[:4], {"pushed": self.pushed})


class TalksOnly(Walk):
    """Says how it was pushed."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        return (*super().step(action)[:4], {"pushed": self.pushed})


def here(source: object, lanes: int = 1) -> LocalTarget:
    return LocalTarget(source, lanes=lanes, where="inline")


async def compared(*targets: Target, **settings: Any) -> Outcome:
    chosen = Settings(time=300.0, examples=4, seed=3, only=(CHECK,), shrink_time=60.0, **settings)
    return await run_checks(targets, chosen, checks=CHECKS)


def of_second(outcome: Outcome) -> Finding:
    assert outcome.status in (0, 2), outcome.findings
    return next(finding for finding in outcome.targets[1].findings if finding.check == CHECK)


def lines_of(finding: Finding) -> Sequence[str]:
    assert finding.evidence is not None
    return finding.evidence.lines


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    ("other", "signature", "ops"),
    [
        (FarFromHome, "obs[1] differs", 5),
        (Rounds, "reward differs", 2),
        (Short, "terminated differs", 4),
        (Talks, "obs[1] differs", 5),
        (TalksOnly, "info.pushed differs", 2),
    ],
)
async def test_the_first_difference_is_told_in_the_shortest_script(
    other: type[Walk], signature: str, ops: int, lanes: int
) -> None:
    finding = of_second(await compared(here(Walk, lanes), here(other, lanes)))
    assert finding.verdict == "note"
    assert finding.evidence is not None
    assert finding.evidence.signature.replace("obs differs", "obs[1] differs") == signature
    (script,) = finding.scripts
    assert len(script.ops) == ops
    assert [line.split()[0] for line in lines_of(finding)] == [other.__name__, "Walk"]


@pytest.mark.parametrize("env", [Walk, Short, OddButRight, MixedInfos, UnseededFollowup])
@pytest.mark.parametrize("lanes", [1, 2])
async def test_what_is_the_same_is_no_difference(env: type[Walk], lanes: int) -> None:
    assert of_second(await compared(here(env, lanes), here(env, lanes))).verdict == "pass"


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (RandomInfos, {"ignored_infos": ("luck",)}),
        (RandomLeaf, {"ignored_leaves": ("obs.camera",)}),
    ],
)
async def test_what_need_not_repeat_itself_need_not_agree(env: Any, settings: dict[str, Any]) -> None:
    assert of_second(await compared(here(env), here(env), **settings)).verdict == "pass"


@pytest.mark.parametrize(
    ("first", "second"), [(UnseededPush, Walk), (Walk, UnseededPush), (UnseededPush, UnseededPush)]
)
async def test_chance_is_not_taken_for_a_difference(first: type[Walk], second: type[Walk]) -> None:
    outcome = await compared(here(first), here(second))
    finding = next(finding for finding in outcome.targets[1].findings if finding.check == CHECK)
    assert finding.verdict in ("pass", "blocked")


async def test_a_vector_and_its_autoresets_are_compared() -> None:
    def vector(env: type[Walk], mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
        return SyncVectorEnv([env] * 2, autoreset_mode=mode)

    same = of_second(await compared(here(partial(vector, Short)), here(partial(vector, Short))))
    assert same.verdict == "pass"
    longer = of_second(await compared(here(partial(vector, Short)), here(partial(vector, Walk))))
    assert lines_of(longer)[0].split()[-3:] == ["terminated", "=", "False"]
    waiting = of_second(
        await compared(here(partial(vector, Short)), here(partial(vector, Short, AutoresetMode.DISABLED)))
    )
    assert [line.rpartition("  ")[2] for line in lines_of(waiting)] == [
        "autoreset_mode = DISABLED",
        "autoreset_mode = NEXT_STEP",
    ]


async def test_spaces_that_differ_are_told_and_nothing_is_played() -> None:
    class Wide(Walk):
        observation_space = spaces.Box(-9, 9, (3,), np.float32)

    class Four(Walk):
        action_space = spaces.Discrete(4)

    for other, told in ((Wide, "obs = Box(-9.0, 9.0"), (Four, "action = Discrete(4)")):
        finding = of_second(await compared(here(Walk), here(other)))
        assert (finding.verdict, finding.steps) == ("note", 0)
        assert told in lines_of(finding)[0]
    finding = of_second(await compared(here(Walk, 2), here(Walk, 3)))
    assert [line.rpartition("  ")[2] for line in lines_of(finding)] == ["num_envs = 3", "num_envs = 2"]


class Leaving(LocalTarget):
    """Is gone once *gone* says so."""

    gone = False

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        if self.gone:
            raise ConnectError("nobody there")
        async with super().connect(limit) as env:
            yield env


class Outliving(LocalTarget):
    """When it is played on, after it was looked at, *other* is gone."""

    def __init__(self, source: object, other: Leaving) -> None:
        super().__init__(source, where="inline")
        self._other = other
        self._looked = False

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        self._other.gone, self._looked = self._looked, True
        async with super().connect(limit) as env:
            yield env


async def test_a_first_target_that_is_gone_is_no_fault_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmesh_trio.conformance.lab.PATIENCE", 0.1)
    first = Leaving(Walk, where="inline")
    finding = of_second(await compared(first, Outliving(Walk, first)))
    assert finding.verdict == "note"
    assert "the other target is gone" in lines_of(finding)[0]


async def test_the_first_target_and_the_same_server_again_have_nothing_to_be_compared_with() -> None:
    async with serve_env(Walk) as server:
        outcome = await compared(WireTarget(server.address), WireTarget(server.address))
    first, second = [target.findings[-1] for target in outcome.targets]
    assert first.reason == "needs a target before this one: conform A B compares B with A"
    assert second.reason.startswith("needs another target before this one: it is the same server")


async def test_a_note_of_two_targets_is_shown_in_full() -> None:
    outcome = await compared(here(Walk, 2), here(FarFromHome, 2))
    shown = terminal_text(Material(outcome, times=False))
    assert "NOTE twin.two-servers-agree\n  reset(seeds=[" in shown
    assert "more lines" not in shown
    assert "They serve different envs" in shown


@pytest.mark.interop
async def test_two_real_servers() -> None:
    options = ("--env", "counter", "--kind", "lanes", "--num-envs", "2")
    with start_env_peer(*options) as one, start_env_peer(*options) as two:
        assert of_second(await compared(WireTarget(one.address), WireTarget(two.address))).verdict == "pass"
    with start_env_peer(*options) as one, start_env_peer(*options, "--length", "3") as two:
        finding = of_second(await compared(WireTarget(one.address), WireTarget(two.address)))
    assert finding.evidence is not None
    assert finding.evidence.signature == "terminated differs"
    assert len(finding.scripts[0].ops) == 4


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["single", "lanes", "vector"])
async def test_a_real_server_and_our_own(kind: str) -> None:
    source: Any = {"vector": partial(vector_of, "FrozenLake-v1")}.get(kind, "FrozenLake-v1")
    with start_env_peer("--env", "FrozenLake-v1", "--kind", kind, "--num-envs", str(WIDTH)) as peer:
        async with serve_env(source, lanes=WIDTH if kind == "lanes" else 1) as server:
            outcome = await compared(WireTarget(peer.address), WireTarget(server.address))
    finding = of_second(outcome)
    assert finding.verdict == "pass", finding.evidence
