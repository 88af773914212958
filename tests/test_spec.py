import json
import math
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest

from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.messages import MetaValue
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spec import (
    ENV_RESET_OPTIONS_KEY,
    MAX_HISTORY_ROWS,
    MAX_HORIZON,
    MAX_MESSAGE_BYTES,
    TRIAL_INDEX_OPTION,
    WIRE_DTYPES,
    AutoresetMode,
    EnvContract,
    Limits,
    PeerCeiling,
    SessionSpec,
    ValueSpace,
    declares_reset_option,
    reset_options_for,
)
from tests.engine.peer import peer

SPACE = ValueSpace(gymnasium.spaces.Discrete(2), (), b"")
CONTRACT = EnvContract(observation_space=SPACE, action_space=SPACE)
UNKNOWN_MODE = 99


def finished(index: int, seed: int | None = None) -> EpisodeSummary:
    return EpisodeSummary(index, 0, seed, None, 3, 1.0, True, False, 5, None, None, None)


def spec_of(*, mode: int = AutoresetMode.UNSPECIFIED, **fields: Any) -> SessionSpec:
    contract = fields.pop("env_contract", CONTRACT)
    return SessionSpec(env_contract=attrs.evolve(contract, autoreset_mode=mode), **fields)


def refusal(spec: SessionSpec) -> str:
    with pytest.raises(InvalidSpec) as caught:
        spec.validate()
    return caught.value.why


# Each row breaks one rule. They stand in the order in which the rules are looked at.
RULES: list[tuple[dict[str, Any], str]] = [
    ({"session_id": " \t"}, "session_id must not be empty"),
    ({"env_id": ""}, "env_id must not be empty"),
    ({"env_component_id": ""}, "env_component_id must not be empty"),
    ({"model_component_id": "\n"}, "model_component_id must not be empty"),
    ({"num_envs": 0}, "num_envs must be greater than zero"),
    ({"env_contract": EnvContract(action_space=SPACE)}, "missing observation_space"),
    ({"env_contract": EnvContract(observation_space=SPACE)}, "missing action_space"),
    ({"max_episodes": 0}, "max_episodes must be greater than zero when set"),
    ({"max_episode_steps": 0}, "max_episode_steps must be greater than zero when set"),
    ({"max_episode_seconds": 0.0}, "max_episode_seconds must be greater than zero when set"),
    ({"mode": 1, "episode_seeds": (7,)}, "episode_seeds requires an env with autoreset disabled"),
    ({"mode": 1, "trial_index_base": 5}, "trial_index_base requires an env with autoreset disabled"),
    (
        {"mode": 1, "max_episode_steps": 9},
        "max_episode_steps / max_episode_seconds require an env with autoreset disabled",
    ),
    ({"workflow_edition": "2099.01"}, 'cannot drive workflow edition "2099.01"'),
    ({"mode": UNKNOWN_MODE}, "unknown autoreset mode 99 on the wire; this build supports UNSPECIFIED"),
    ({"num_envs": 4, "mode": 3}, "vectorized runtime sessions (num_envs > 1) require NEXT_STEP autoreset"),
    ({"num_envs": 4, "mode": 1, "partial_reset": True}, "partial_reset needs an env with DISABLED autoreset"),
    ({"finished": (finished(1),)}, "finished needs max_episodes"),
    ({"session_id": "\udcff"}, "session_id must be text that UTF-8 can carry"),
    ({"base_seed": 2**63}, "base_seed must fit a signed 64-bit integer"),
    ({"limits": Limits(env_step_timeout=math.nan)}, "limits.env_step_timeout must be a finite number of seconds"),
]


@pytest.mark.parametrize(("broken", "why"), RULES)
def test_each_rule(broken: dict[str, Any], why: str) -> None:
    assert why in refusal(spec_of(**broken))


@pytest.mark.parametrize("earlier", range(len(RULES)))
def test_the_first_rule_that_fails_wins(earlier: int) -> None:
    """Break one rule and, one at a time, each later one that does not concern the same fields."""
    broken, why = RULES[earlier]
    for later_broken, _ in RULES[earlier + 1 :]:
        if not broken.keys() & later_broken.keys():
            assert why in refusal(spec_of(**later_broken, **broken))


def test_the_fields_of_one_rule_are_looked_at_in_order() -> None:
    assert "session_id" in refusal(spec_of(session_id="", env_id="", env_component_id="", model_component_id=""))
    assert "missing observation_space" in refusal(spec_of(env_contract=EnvContract()))
    assert "max_episodes must" in refusal(spec_of(max_episodes=-1, max_episode_steps=-1, max_episode_seconds=-1.0))
    assert "episode_seeds" in refusal(spec_of(mode=1, episode_seeds=(1,), trial_index_base=1, max_episode_steps=1))
    assert "trial_index_base" in refusal(spec_of(mode=1, trial_index_base=1, max_episode_seconds=1.0))


def test_an_unknown_mode_does_not_own_resets_and_so_fails_there_first() -> None:
    assert "episode_seeds requires" in refusal(spec_of(mode=UNKNOWN_MODE, episode_seeds=(1,)))
    assert "cannot drive" in refusal(spec_of(mode=UNKNOWN_MODE, workflow_edition="2099.01"))
    assert "unknown autoreset mode" in refusal(spec_of(mode=UNKNOWN_MODE, num_envs=4))


def test_same_step_is_refused_before_the_width() -> None:
    why = "SAME_STEP autoreset is reserved but not yet supported by the runtime"
    assert refusal(spec_of(mode=AutoresetMode.SAME_STEP)) == why
    assert refusal(spec_of(mode=AutoresetMode.SAME_STEP, num_envs=4)) == why


@pytest.mark.parametrize("field", ["max_episode_steps", "max_episode_seconds"])
def test_either_cap_needs_driver_owned_resets(field: str) -> None:
    assert "max_episode_steps / max_episode_seconds require" in refusal(spec_of(mode=1, **{field: 3}))
    spec_of(mode=3, **{field: 3}).validate()


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.UNSPECIFIED])
def test_a_lockstep_vector_needs_next_step(mode: AutoresetMode) -> None:
    assert "NEXT_STEP" in refusal(spec_of(num_envs=4, mode=mode))
    spec_of(num_envs=4, mode=AutoresetMode.NEXT_STEP).validate()
    spec_of(num_envs=4, mode=mode, subset_step=True).validate()
    spec_of(num_envs=1, mode=mode).validate()


def test_a_trial_base_needs_driver_owned_resets() -> None:
    spec_of(trial_index_base=5).validate()
    assert "trial_index_base requires" in refusal(spec_of(mode=1, trial_index_base=5))
    spec_of(mode=1, trial_index_base=0).validate()


def test_a_base_seed_is_welcome_with_env_owned_resets() -> None:
    spec_of(mode=1, base_seed=-(2**63)).validate()


def test_a_nan_time_cap_passes() -> None:
    spec_of(max_episode_seconds=math.nan).validate()


def test_the_current_edition_and_its_cohorts_validate() -> None:
    spec_of(workflow_edition=CURRENT_EDITION.name).validate()
    spec_of(workflow_edition=f"{CURRENT_EDITION.name}-rc9").validate()


def test_a_refused_edition_is_named_beside_those_this_build_has() -> None:
    why = refusal(spec_of(workflow_edition="2020.01"))
    assert why == 'runtime cannot drive workflow edition "2020.01"; this build implements ["2026.06"]'


def test_a_refusal_says_what_it_is_about() -> None:
    with pytest.raises(InvalidSpec, match=r"^invalid runtime session spec: num_envs must be greater than zero$"):
        spec_of(num_envs=0).validate()


@pytest.mark.parametrize(
    "fields",
    [
        {"base_seed": -(2**63) - 1},
        {"episode_seeds": (1, 2**63)},
        {"trial_index_base": -1},
        {"trial_index_base": 2**64},
        {"env_id": "\ud800"},
        {"seed_route_id": "\ud800"},
        {"limits": Limits(env_reset_timeout=-1)},
        {"limits": Limits(telemetry_window=math.inf)},
    ],
)
def test_what_the_wire_cannot_carry_is_refused(fields: dict[str, Any]) -> None:
    (field,) = fields
    assert refusal(spec_of(**fields)).startswith(field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", 5),
        ("base_seed", np.int64(7)),
        ("base_seed", 1.5),
        ("max_episodes", 2.5),
        ("max_episodes", "3"),
        ("episode_seeds", (1, np.int64(7))),
        ("episode_seeds", (None,)),
        ("episode_seeds", np.arange(3)),
        ("seed_route_id", 5),
        ("seed_route_id", b"route-1"),
        ("finished", None),
        ("finished", finished(1)),
        ("finished", ({"episode_index": 1},)),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    assert refusal(spec_of(**{field: value})).startswith(f"{field} must be ")


def test_the_largest_numbers_the_wire_carries_are_accepted() -> None:
    spec_of(base_seed=2**63 - 1, episode_seeds=(-(2**63),), trial_index_base=2**64 - 1).validate()


def test_an_empty_contract_has_no_spaces() -> None:
    empty = SessionSpec(env_contract=EnvContract())
    assert (empty.env_contract.observation_space, empty.env_contract.action_space) == (None, None)
    assert spec_of().env_contract.observation_space is SPACE


class TestWhatASpecDerives:
    def test_the_step_cap(self) -> None:
        assert spec_of().step_cap == 100_000
        assert spec_of(mode=AutoresetMode.DISABLED).step_cap == 100_000
        assert spec_of(mode=AutoresetMode.NEXT_STEP).step_cap is None
        assert spec_of(max_episode_steps=9).step_cap == 9

    @pytest.mark.parametrize(
        ("mode", "owned"),
        [
            (AutoresetMode.UNSPECIFIED, True),
            (AutoresetMode.DISABLED, True),
            (AutoresetMode.NEXT_STEP, False),
            (AutoresetMode.SAME_STEP, False),
            (UNKNOWN_MODE, False),
        ],
    )
    def test_who_owns_resets(self, mode: int, owned: bool) -> None:
        assert spec_of(mode=mode).driver_owns_resets is owned

    @pytest.mark.parametrize(
        ("num_envs", "subset_step", "lanes"), [(1, False, False), (1, True, False), (4, False, False), (4, True, True)]
    )
    def test_whether_lanes_are_groups(self, num_envs: int, subset_step: bool, lanes: bool) -> None:
        assert spec_of(num_envs=num_envs, subset_step=subset_step).drives_lanes is lanes

    def test_the_edition_row(self) -> None:
        assert spec_of(workflow_edition="2026.06-x").edition is CURRENT_EDITION
        with pytest.raises(InvalidSpec, match=r'cannot drive workflow edition "2099\.01"'):
            _ = spec_of(workflow_edition="2099.01").edition


@attrs.frozen
class OpenEnv:
    contract: EnvContract
    edition: str
    subset_step: bool
    ceiling: PeerCeiling | None


def test_a_spec_for_an_open_env_takes_its_facts_and_ones_own_fields() -> None:
    contract = attrs.evolve(CONTRACT, num_envs=4, autoreset_mode=AutoresetMode.DISABLED)
    ceiling = PeerCeiling("2026.06")
    spec = SessionSpec.for_env(OpenEnv(contract, "2026.06-x", True, ceiling), max_episodes=3)
    assert spec.env_contract is contract
    assert spec.env_ceiling is ceiling
    assert (spec.num_envs, spec.workflow_edition, spec.subset_step, spec.max_episodes) == (4, "2026.06-x", True, 3)
    spec.validate()
    assert SessionSpec.for_env(OpenEnv(contract, "2026.06", True, None), num_envs=2).num_envs == 2


def test_each_spec_made_for_an_env_is_a_route_of_its_own() -> None:
    env = OpenEnv(EnvContract(), "2026.06", True, None)
    first, second = (SessionSpec.for_env(env) for _ in range(2))
    assert len(first.env_id) == 36
    assert first.env_id != second.env_id
    assert SessionSpec.for_env(env, env_id="mine").env_id == "mine"


class TestLimits:
    KEYS: tuple[str, ...] = (
        "envConnectTimeoutMs",
        "modelConnectTimeoutMs",
        "configureRouteTimeoutMs",
        "envResetTimeoutMs",
        "modelPredictTimeoutMs",
        "envStepTimeoutMs",
        "serviceCloseTimeoutMs",
        "telemetryWindowMs",
    )

    @peer(70)
    def test_the_defaults_in_milliseconds(self) -> None:
        values = (60_000, 600_000, 600_000, 300_000, 300_000, 300_000, 5_000, 1_000)
        assert Limits().to_json() == dict(zip(self.KEYS, values, strict=True))

    @peer(71)
    def test_one_to_eight_milliseconds_in_order(self) -> None:
        given = dict(zip(self.KEYS, range(1, 9), strict=True))
        limits = Limits.from_json(given)
        assert attrs.astuple(limits) == tuple(ms / 1000 for ms in range(1, 9))
        assert limits.to_json() == given

    def test_through_json_text_and_back(self) -> None:
        limits = Limits(env_step_timeout=0.25, telemetry_window=0)
        assert Limits.from_json(json.loads(json.dumps(limits.to_json()))) == limits

    def test_absent_keys_keep_their_default(self) -> None:
        assert Limits.from_json({}) == Limits()
        assert Limits.from_json({"envStepTimeoutMs": 5}) == Limits(env_step_timeout=0.005)

    @pytest.mark.parametrize("key", ["envStepTimeout", "env_step_timeout", "EnvStepTimeoutMs", ""])
    def test_unknown_keys_are_refused_and_the_known_ones_named(self, key: str) -> None:
        with pytest.raises(InvalidSpec, match=r"unknown limit .*envStepTimeoutMs"):
            Limits.from_json({key: 1})

    @pytest.mark.parametrize("value", [-1, 1.5, "5", True, None, [1], 2**64])
    def test_a_value_is_a_whole_number_of_milliseconds(self, value: object) -> None:
        with pytest.raises(InvalidSpec, match="envStepTimeoutMs must be a whole number of milliseconds"):
            Limits.from_json({"envStepTimeoutMs": value})


class TestResetOptions:
    @pytest.mark.parametrize(
        ("declared", "expected"),
        [
            (["seed_offset", "trial_index"], True),
            (("trial_index",), True),
            ("trial_index", True),
            (["trial"], False),
            ("trial_index_2", False),
            ([], False),
            (7, False),
            (b"trial_index", False),
            ({"trial_index": True}, False),
            (None, False),
        ],
    )
    def test_declaring_one(self, declared: MetaValue, expected: bool) -> None:
        contract = EnvContract(metadata={"rlmesh.env.v1.reset_options": declared})
        assert declares_reset_option(contract, "trial_index") is expected

    def test_an_empty_contract_declares_none(self) -> None:
        assert not declares_reset_option(EnvContract(), "trial_index")

    def test_trials_travel_as_a_bare_integer_or_a_list_in_lane_order(self) -> None:
        contract = EnvContract(metadata={ENV_RESET_OPTIONS_KEY: TRIAL_INDEX_OPTION})
        assert reset_options_for(contract, "trial_index", (7,)) == {"trial_index": 7}
        assert reset_options_for(contract, "trial_index", (9, 7, 8)) == {"trial_index": [9, 7, 8]}

    def test_no_trials_or_no_declaration_give_no_options(self) -> None:
        contract = EnvContract(metadata={ENV_RESET_OPTIONS_KEY: TRIAL_INDEX_OPTION})
        assert reset_options_for(contract, "trial_index", ()) is None
        assert reset_options_for(contract, "other", (7,)) is None
        assert reset_options_for(EnvContract(), "trial_index", (7,)) is None


def test_the_fixed_names_and_numbers() -> None:
    assert ENV_RESET_OPTIONS_KEY == "rlmesh.env.v1.reset_options"
    assert TRIAL_INDEX_OPTION == "trial_index"
    assert (MAX_HISTORY_ROWS, MAX_HORIZON, MAX_MESSAGE_BYTES) == (1023, 1024, 268_435_456)
    assert [(mode.name, mode.value) for mode in AutoresetMode] == [
        ("UNSPECIFIED", 0),
        ("NEXT_STEP", 1),
        ("SAME_STEP", 2),
        ("DISABLED", 3),
    ]


def test_a_ceiling_admits_all_twelve_dtypes_unless_told_otherwise() -> None:
    ceiling = PeerCeiling(RETAINED_EDITIONS[0].name)
    assert ceiling.dtypes == frozenset(WIRE_DTYPES)
    assert len(WIRE_DTYPES) == len(ceiling.dtypes) == 12
    assert ceiling.max_message_size == 268_435_456


def test_the_defaults_of_a_session() -> None:
    spec = SessionSpec(env_contract=CONTRACT)
    spec.validate()
    assert (spec.session_id, spec.env_component_id, spec.model_component_id) == ("local", "local-env", "local-model")
    assert (spec.workflow_edition, spec.num_envs, spec.max_episodes) == ("2026.06", 1, None)
    assert (spec.env_ceiling, spec.model_ceiling, spec.close_env_on_end) == (None, None, False)
    assert (spec.partial_reset, spec.seed_route_id, spec.finished) == (False, None, ())
