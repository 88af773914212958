"""The family ``acct``: each bad account fails its check and no other, and good ones pass."""

from collections.abc import Callable
from typing import Any

import pytest

from rlmesh_trio.conformance.verdicts import Finding
from tests.conformance.family_runs import found
from tests.conformance.planted import acct as planted
from tests.conformance.planted import life
from tests.conformance.planted.seed import OddButRight, Walk
from tests.conformance.test_checks_autoreset import FAMILIES, local, verdicts


async def told(alter: Callable[..., Any]) -> dict[str, Finding]:
    findings = await found(planted.BadAccounts(alter), *FAMILIES, examples=1, shrink=False)
    return {id: finding for id, finding in findings.items() if finding.verdict != "note"}


@pytest.mark.parametrize(
    ("alter", "check", "verdict", "signature"),
    [
        (planted.none_of_ends, "acct.once", "fail", "no record"),
        (planted.twice, "acct.once", "fail", "two records of one end"),
        (planted.Late(), "acct.once", "fail", "no record"),
        (planted.Again(), "acct.once", "fail", "one record twice"),
        (planted.other_lane, "acct.once", "fail", "record of another lane"),
        (planted.one_more_step, "acct.steps-return", "fail", "step_count differs"),
        (planted.narrow_sum, "acct.steps-return", "fail", "cumulative_reward differs"),
        (planted.other_cause, "acct.cause-ids-seed", "fail", "terminated differs"),
        (planted.no_id, "acct.cause-ids-seed", "fail", "episode_id differs"),
        (planted.some_seed, "acct.cause-ids-seed", "fail", "seed differs"),
        (planted.rest_of_cut, "acct.interrupted", "warn", "record lost"),
        (planted.last_hundred, "acct.interrupted", "warn", "record lost"),
        (planted.cut_is_done, "acct.interrupted", "warn", "record is wrong"),
        (planted.no_infos, "acct.final-info", "warn", "final_info.push differs"),
    ],
)
async def test_a_bad_account_fails_its_check_alone(
    alter: Callable[..., Any], check: str, verdict: str, signature: str
) -> None:
    findings = await told(alter)
    assert {id: finding.verdict for id, finding in findings.items()} == {check: verdict}
    evidence = findings[check].evidence
    assert evidence is not None
    assert (evidence.signature, evidence.blame) == (signature, "server")


@pytest.mark.parametrize("env", [planted.Telling, Walk, OddButRight, life.OneStep, life.TimedOrDone, life.Refuses])
async def test_good_accounts_pass(env: type[Walk]) -> None:
    assert await verdicts(local(env, 2)) == {}


async def test_a_bad_account_is_shown_by_a_short_script() -> None:
    finding = (await found(planted.BadAccounts(planted.one_more_step, lanes=1), "acct"))["acct.steps-return"]
    assert len(finding.scripts[0].ops) <= 8
