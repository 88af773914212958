"""The family ``twin``: what a server makes of an env is seen beside the env itself."""

from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.checks import life
from rlmesh_trio.conformance.checks import twin as twin_checks
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.targets import ServedTarget
from tests.conformance.family_runs import found
from tests.conformance.labs import lab_on
from tests.conformance.planted import acct
from tests.conformance.planted import twin as planted
from tests.conformance.planted.seed import EndsByChance, MixedInfos, OddButRight, Walk

REGISTERED = life, twin_checks
CHECK = "twin.served-equals-local"


@pytest.mark.parametrize(
    ("spoil", "verdict", "signature"),
    [
        (planted.rounded, "fail", "obs differs"),
        (planted.narrow_rewards, "fail", "reward differs"),
        (planted.without_infos, "warn", "info.push differs"),
    ],
)
async def test_what_is_changed_on_the_way(spoil: planted.Spoil, verdict: str, signature: str) -> None:
    finding = (await found(planted.ServedTarget(spoil, acct.Telling), "twin", "life", shrink=False))[CHECK]
    assert finding.verdict == verdict
    assert finding.evidence is not None
    assert (finding.evidence.signature, finding.evidence.blame) == (signature, "server")


@pytest.mark.parametrize("env", [Walk, OddButRight, MixedInfos, acct.Telling])
async def test_a_faithful_server_passes(env: type[Walk]) -> None:
    assert await found(planted.ServedTarget(planted.faithful, env), "twin") == {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
async def test_a_vector_is_its_own_twin(mode: AutoresetMode) -> None:
    def vector() -> Any:
        return SyncVectorEnv([EndsByChance] * 3, autoreset_mode=mode)

    assert await found(planted.ServedTarget(planted.faithful, vector, lanes=1), "twin") == {}
    assert set(await found(planted.ServedTarget(planted.narrow_rewards, vector, lanes=1), "twin", "life")) >= {CHECK}


async def test_our_own_server_passes() -> None:
    target = ServedTarget("CartPole-v1", lanes=2)
    async with target.running():
        assert await found(target, "twin", examples=2) == {}


async def test_a_twin_takes_a_factory() -> None:
    async with lab_on(Walk) as lab:
        reason = CHECKS[CHECK].applies(lab.facts)
    assert reason is not None
    assert reason.startswith("needs a factory")
