"""Which specs may ask for partial resets, and which may go on from finished episodes."""

from typing import Any

import attrs
import pytest

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.spec import AutoresetMode, SessionSpec
from tests.test_spec import CONTRACT, UNKNOWN_MODE, OpenEnv, finished, refusal, spec_of


@attrs.frozen
class NamingEnv(OpenEnv):
    resets_named_lanes: bool


class TestPartialReset:
    def test_a_disabled_vector_in_lockstep(self) -> None:
        spec_of(num_envs=4, mode=AutoresetMode.DISABLED, partial_reset=True).validate()

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"num_envs": 4, "mode": 1}, "DISABLED autoreset; this one declares NEXT_STEP"),
            ({"num_envs": 4, "mode": 0}, "DISABLED autoreset; this one declares UNSPECIFIED"),
            ({"num_envs": 1, "mode": 1}, "DISABLED autoreset; this one declares NEXT_STEP"),
            ({"num_envs": 1, "mode": 3}, "partial_reset needs a vector env; a single lane is reset whole anyway"),
            ({"num_envs": 1, "mode": 3, "subset_step": True}, "partial_reset needs a vector env"),
            ({"num_envs": 4, "mode": 3, "subset_step": True}, "these lanes are reset one by one anyway"),
            ({"num_envs": 4, "mode": UNKNOWN_MODE}, "unknown autoreset mode"),
            ({"num_envs": 4, "mode": 2}, "SAME_STEP autoreset is reserved"),
        ],
    )
    def test_on_anything_else(self, fields: dict[str, Any], why: str) -> None:
        assert why in refusal(spec_of(partial_reset=True, **fields))

    @pytest.mark.parametrize(("subset_step", "named", "able"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (0, None, 0)])
    def test_an_open_env_must_be_able_to(self, subset_step: bool, named: bool | None, able: bool) -> None:
        disabled = attrs.evolve(CONTRACT, num_envs=4, autoreset_mode=AutoresetMode.DISABLED)
        env = OpenEnv(disabled, "2026.06", bool(subset_step), None)
        if named is not None:
            env = NamingEnv(disabled, "2026.06", bool(subset_step), None, bool(named))
        assert not SessionSpec.for_env(env, partial_reset=False).partial_reset
        if able:
            assert SessionSpec.for_env(env, partial_reset=True).partial_reset
        else:
            with pytest.raises(InvalidSpec, match="partial_reset needs an env that resets lanes by name"):
                SessionSpec.for_env(env, partial_reset=True)


class TestSeedEveryEpisode:
    @pytest.mark.parametrize(
        ("fields", "partly"),
        [
            ({"num_envs": 4, "mode": 1}, True),
            ({"num_envs": 4, "mode": 3}, True),
            ({"num_envs": 4, "mode": 3, "partial_reset": True}, True),
            ({"num_envs": 4, "mode": 1, "subset_step": True}, False),
            ({"num_envs": 4, "mode": 3, "subset_step": True}, False),
            ({"num_envs": 1, "mode": 1}, False),
            ({"num_envs": 1, "mode": 0}, False),
            ({"num_envs": 1, "mode": 3}, False),
        ],
    )
    def test_the_engine_owns_the_resets_and_seeds_go_by_slot(self, fields: dict[str, Any], partly: bool) -> None:
        spec = spec_of(
            seed_every_episode=True, base_seed=1, max_episodes=2, max_episode_steps=9, finished=(finished(2),), **fields
        )
        spec.validate()
        assert (spec.driver_owns_resets, spec.seeds_by_slot, spec.resets_ended_lanes) == (True, True, partly)
        spec_of(seed_every_episode=True, episode_seeds=(4, 5), trial_index_base=1, **fields).validate()

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"num_envs": 4, "mode": 1}, "seed_every_episode needs base_seed or episode_seeds"),
            ({"num_envs": 4, "mode": 0, "base_seed": 1}, "NEXT_STEP or DISABLED autoreset; this one declares none"),
            ({"num_envs": 4, "mode": 2, "base_seed": 1}, "SAME_STEP autoreset is reserved"),
            ({"num_envs": 4, "mode": UNKNOWN_MODE, "base_seed": 1}, "unknown autoreset mode"),
            ({"num_envs": 4, "mode": 1, "base_seed": 1, "partial_reset": True}, "this one declares NEXT_STEP"),
        ],
    )
    def test_what_it_does_not_go_with(self, fields: dict[str, Any], why: str) -> None:
        assert why in refusal(spec_of(seed_every_episode=True, **fields))

    @pytest.mark.parametrize(
        ("lanes", "subset_step", "named", "able"),
        [(4, False, False, False), (4, False, True, True), (4, True, False, True), (1, False, False, True)],
    )
    def test_an_open_vector_must_reset_lanes_by_name(
        self, lanes: int, subset_step: bool, named: bool, able: bool
    ) -> None:
        contract = attrs.evolve(CONTRACT, num_envs=lanes, autoreset_mode=AutoresetMode.NEXT_STEP)
        env = NamingEnv(contract, "2026.06", subset_step, None, named)
        assert not SessionSpec.for_env(env).seed_every_episode
        if able:
            SessionSpec.for_env(env, seed_every_episode=True, base_seed=1).validate()
        else:
            with pytest.raises(InvalidSpec, match="seed_every_episode needs an env that resets lanes by name"):
                SessionSpec.for_env(env, seed_every_episode=True, base_seed=1)


class TestFinished:
    @pytest.mark.parametrize(
        ("fields", "indices", "why"),
        [
            ({}, (0,), "finished holds episode 0; max_episodes asks for 1 to 5"),
            ({}, (5, 6), "finished holds episode 6; max_episodes asks for 1 to 5"),
            ({}, (2, 1, 2), "finished holds episode 2 twice"),
            ({"mode": 1, "base_seed": 1}, (1,), "base_seed on an env that restarts its lanes itself"),
            ({"mode": 1, "base_seed": 1, "num_envs": 4}, (1,), "base_seed on an env that restarts its lanes itself"),
            ({"base_seed": 1, "num_envs": 4, "mode": 3, "partial_reset": True}, (1,), "base_seed on a lockstep vector"),
        ],
    )
    def test_what_cannot_go_on(self, fields: dict[str, Any], indices: tuple[int, ...], why: str) -> None:
        assert why in refusal(spec_of(max_episodes=5, finished=tuple(map(finished, indices)), **fields))

    @pytest.mark.parametrize(
        "fields",
        [
            {"base_seed": 1},
            {"mode": 1},
            {"mode": 1, "num_envs": 4},
            {"base_seed": 1, "num_envs": 4, "mode": 3, "subset_step": True},
            {"base_seed": 1, "num_envs": 4, "mode": 3, "partial_reset": True, "episode_seeds": (1, 2)},
        ],
    )
    def test_what_can(self, fields: dict[str, Any]) -> None:
        spec_of(max_episodes=2, finished=(finished(2), finished(1)), **fields).validate()
