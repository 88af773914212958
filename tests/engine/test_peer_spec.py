"""What the public rlmesh runtime promises of specs, options and telemetry arithmetic, before any run."""

import attrs
import numpy as np
import pytest

from rlmesh_trio.editions import CURRENT_EDITION, select_edition
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.messages import MetaValue
from rlmesh_trio.report import TelemetrySnapshot
from rlmesh_trio.spec import (
    ENV_RESET_OPTIONS_KEY,
    TRIAL_INDEX_OPTION,
    AutoresetMode,
    EnvContract,
    SessionSpec,
    declares_reset_option,
    reset_options_for,
)
from rlmesh_trio.telemetry.aggregate import Telemetry
from rlmesh_trio.telemetry.reservoir import Reservoir
from rlmesh_trio.testing.scripted import BYTE_SPACE, ScriptedEnv, ScriptedModel, contract, one, vector_spec
from tests.engine.peer import peer

MS = 1_000_000


def refusal(spec: SessionSpec) -> str:
    with pytest.raises(InvalidSpec) as caught:
        spec.validate()
    return str(caught.value)


@peer(19)
def test_the_arithmetic_of_a_window() -> None:
    telemetry = Telemetry()
    take = telemetry.series("model.predict", "model", "rpc.total")
    for ms in (10, 20, 30, 40):
        take(ms * MS)
    [row] = telemetry.window_snapshot_and_flush().rows
    assert (row.count, row.avg, row.p99) == (4, 25, 40)
    assert row.p50 <= row.p95 <= row.p99
    assert telemetry.window_snapshot_and_flush() == TelemetrySnapshot("window", ())
    [row] = telemetry.session_snapshot().rows
    assert row.count == 4


@peer(20)
def test_a_reservoir_counts_what_it_saw_and_what_it_kept() -> None:
    reservoir = Reservoir(4)
    reservoir.extend(np.array([1.0, 2.0]))
    assert (reservoir.retained.size, reservoir.seen) == (2, 2)


@peer(21)
def test_the_summary_of_a_set() -> None:
    reservoir = Reservoir()
    assert reservoir.summary() is None
    reservoir.extend(np.array([10.0, 20.0, 30.0, 40.0]))
    summary = reservoir.summary()
    assert summary is not None
    assert (summary.avg, summary.p95, summary.p99) == (25, 40, 40)


@peer(63)
def test_a_trial_base_needs_driver_owned_resets() -> None:
    one(trial_index_base=5).validate()
    one(trial_index_base=5, env_contract=contract(AutoresetMode.DISABLED)).validate()
    why = refusal(one(trial_index_base=5, env_contract=contract(AutoresetMode.NEXT_STEP)))
    assert "trial_index_base requires an env with autoreset disabled" in why


@peer(64)
def test_where_an_env_declares_its_reset_options() -> None:
    assert ENV_RESET_OPTIONS_KEY == "rlmesh.env.v1.reset_options"


@peer(65)
def test_the_highest_shared_edition() -> None:
    ours = [CURRENT_EDITION.name]
    assert select_edition([["2099.01", CURRENT_EDITION.name], ours], []) == CURRENT_EDITION.name
    assert select_edition([["2099.01"], ours], []) is None


@peer(66)
def test_an_edition_to_come_is_refused_by_name() -> None:
    why = refusal(one(workflow_edition="2099.01"))
    assert all(part in why for part in ("2099.01", "cannot drive", CURRENT_EDITION.name))
    one(workflow_edition=CURRENT_EDITION.name).validate()
    one(workflow_edition=CURRENT_EDITION.name.partition("-")[0]).validate()


@peer(67)
def test_the_spaces_of_an_empty_and_of_a_filled_contract() -> None:
    empty, filled = EnvContract(), contract()
    assert (empty.observation_space, empty.action_space) == (None, None)
    assert (filled.observation_space, filled.action_space) == (BYTE_SPACE, BYTE_SPACE)


@peer(68)
def test_a_vector_that_restarts_itself_validates() -> None:
    vector_spec(4, None).validate()


@peer(69)
@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.UNSPECIFIED])
def test_a_vector_that_does_not_is_refused(mode: AutoresetMode) -> None:
    assert "NEXT_STEP" in refusal(vector_spec(4, None, env_contract=contract(mode, 4)))


@peer(72)
@pytest.mark.parametrize(
    ("declared", "expected"),
    [(["seed", "trial_index"], True), ("trial_index", True), (["seed"], False), (7, False)],
    ids=["listed", "bare", "not listed", "an integer"],
)
def test_declaring_a_reset_option(declared: MetaValue, expected: bool) -> None:
    assert declares_reset_option(contract(metadata={ENV_RESET_OPTIONS_KEY: declared}), "trial_index") is expected
    assert not declares_reset_option(EnvContract(), "trial_index")


@peer(73)
def test_the_options_for_trials() -> None:
    declaring = contract(metadata={ENV_RESET_OPTIONS_KEY: [TRIAL_INDEX_OPTION]})
    assert reset_options_for(declaring, "trial_index", (7,)) == {"trial_index": 7}
    assert reset_options_for(declaring, "trial_index", (7, 8, 9)) == {"trial_index": [7, 8, 9]}


@peer(74)
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            one(env_contract=attrs.evolve(contract(), autoreset_mode=99)),
            "unknown autoreset mode 99 on the wire; this build supports UNSPECIFIED",
        ),
        (
            vector_spec(2, None, env_contract=contract(AutoresetMode.DISABLED, 2)),
            "vectorized runtime sessions (num_envs > 1) require NEXT_STEP autoreset",
        ),
        (
            one(workflow_edition="2020.01"),
            'runtime cannot drive workflow edition "2020.01"; this build implements',
        ),
    ],
    ids=["mode", "vector", "edition"],
)
async def test_what_a_refusal_begins_with(spec: SessionSpec, why: str) -> None:
    env = ScriptedEnv(1)
    with pytest.raises(InvalidSpec) as caught:
        await run_session(spec, env, ScriptedModel())
    assert str(caught.value).startswith(f"invalid runtime session spec: {why}")
    assert env.resets == []
