"""Simulated worlds: an env, a model, a network, a session and what goes wrong in it, all from one integer seed.

``World.from_seed(1234).run()`` plays one in virtual time and gives its :class:`~rlmesh_trio.testing.world_run.Outcome`;
the same seed always plays the same, task step for task step. ``violations(outcome)`` of
:mod:`rlmesh_trio.testing.world_checks` says which promise was broken, if any was.
"""

from typing import Any, Final, Self

import attrs
import numpy as np
from gymnasium import spaces

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.messages import Metadata
from rlmesh_trio.spec import (
    ENV_RESET_OPTIONS_KEY,
    TRIAL_INDEX_OPTION,
    AutoresetMode,
    LeafSpec,
    Limits,
    PeerCeiling,
    SessionSpec,
    ValueSpace,
)
from rlmesh_trio.testing.scripted import contract
from rlmesh_trio.testing.world_draw import Draw
from rlmesh_trio.testing.world_expected import finished_earlier, is_determined
from rlmesh_trio.testing.world_plan import (
    SLOW,
    Cancellation,
    EnvPlan,
    ModelPlan,
    NetworkPlan,
    SessionPlan,
    Trouble,
)
from rlmesh_trio.testing.world_run import Outcome, run_world
from rlmesh_trio.testing.world_toy import ACTION_BYTES, OBSERVATION_BYTES

__all__ = ("World",)


def _bytes_space(size: int) -> ValueSpace:
    return ValueSpace(spaces.Box(0, 255, (size,), np.uint8), (LeafSpec("$", "box", "uint8", (size,)),), b"")


_SPACES: Final[dict[str, Any]] = {
    "observation_space": _bytes_space(OBSERVATION_BYTES),
    "action_space": _bytes_space(ACTION_BYTES),
}
_CEILING: Final = PeerCeiling(CURRENT_EDITION.name)


@attrs.frozen(kw_only=True)
class World:
    """One world. Its ``repr`` recreates it; change a part of it with :func:`attrs.evolve`.

    ``schedule`` is the seed of the order in which tasks take turns, and ``seed`` that of every other choice made while
    it runs (delays). What a seed means may change with any version of this package.
    """

    seed: int = 0
    schedule: int = 0
    env: EnvPlan = attrs.field(factory=EnvPlan)
    model: ModelPlan = attrs.field(factory=ModelPlan)
    network: NetworkPlan = attrs.field(factory=NetworkPlan)
    session: SessionPlan = attrs.field(factory=SessionPlan)
    troubles: tuple[Trouble, ...] = ()
    cancellation: Cancellation | None = None

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        """The world of *seed*: four in ten are calm, in the others something goes wrong, or they are cancelled."""
        draw = Draw(seed)
        env = draw.env()
        model = draw.model(history=env.kind != "vector" or env.autoreset == "NEXT_STEP")
        mood = draw.one(*["calm"] * 4, *["trouble"] * 3, *["cancelled"] * 2, "both")
        troubled = mood in ("trouble", "both")
        recovers = draw.up_to(10) <= (7 if troubled else 2)
        session = draw.session(env, recovers=recovers)
        endless = session.budget is None or (env.longest is None and session.step_cap is None)
        world = cls(
            seed=seed,
            schedule=draw.random.getrandbits(32),
            env=env,
            model=model,
            network=draw.network(lossy=troubled, recovers=recovers),
            session=session,
            troubles=draw.troubles(env, recovers=recovers) if troubled else (),
            cancellation=draw.cancellation(endless=endless) if endless or mood in ("cancelled", "both") else None,
        )
        if draw.up_to(4) == 1 and world.may_seed_every:
            session = attrs.evolve(session, seed_every=True)
            world = attrs.evolve(world, session=session)
        if endless or not world.can_go_on:
            return world
        return attrs.evolve(world, session=attrs.evolve(session, finished=draw.finished(session.budget or 0)))

    @property
    def owns_resets(self) -> bool:
        """Whether the engine sends every reset."""
        return self.env.autoreset != "NEXT_STEP" or self.session.seed_every

    @property
    def drives_lanes(self) -> bool:
        """Whether each lane is a group of its own."""
        return self.env.kind == "lanes" and self.env.lanes > 1

    @property
    def resets_named_lanes(self) -> bool:
        """Whether the engine resets just the finished lanes of a vector."""
        return self.env.kind == "vector" and self.env.lanes > 1 and self.owns_resets

    @property
    def groups(self) -> int:
        """How many lane groups there are."""
        return self.env.lanes if self.drives_lanes else 1

    @property
    def seeds_by_slot(self) -> bool:
        """Whether the engine seeds every episode, each by its slot alone."""
        session = self.session
        if session.episode_seeds or not self.owns_resets:
            return session.budget is not None and len(session.episode_seeds) >= session.budget
        return session.base_seed is not None and (session.seed_every or not self.resets_named_lanes)

    @property
    def may_seed_every(self) -> bool:
        """Whether a session may be told to reset every episode with a seed of its own."""
        lockstep = self.env.kind == "vector" and self.env.lanes > 1
        is_seeded = self.session.base_seed is not None or bool(self.session.episode_seeds)
        return is_seeded and not (lockstep and self.model.history)

    @property
    def can_go_on(self) -> bool:
        """Whether a session may be told of episodes that were played earlier."""
        session = self.session
        if session.budget is None or not is_determined(self):
            return False
        return session.base_seed is None or bool(session.episode_seeds) or self.seeds_by_slot

    @property
    def spec(self) -> SessionSpec:
        """What the session is told."""
        env, session = self.env, self.session
        ceiling = _CEILING if session.ceilings else None
        metadata: Metadata = {ENV_RESET_OPTIONS_KEY: [TRIAL_INDEX_OPTION]} if env.declares_trials else {}
        return SessionSpec(
            env_contract=contract(AutoresetMode[env.autoreset], env.lanes, metadata=metadata, **_SPACES),
            session_id="world",
            env_id="toy",
            env_component_id="toy-env",
            model_component_id="toy-model",
            num_envs=env.lanes,
            subset_step=env.kind == "lanes",
            partial_reset=self.resets_named_lanes and not session.seed_every,
            seed_every_episode=session.seed_every,
            base_seed=session.base_seed,
            episode_seeds=session.episode_seeds,
            max_episodes=session.budget,
            trial_index_base=session.trial_base,
            max_episode_steps=session.step_cap,
            max_episode_seconds=session.time_cap,
            close_env_on_end=session.close_env,
            on_env_error=session.on_env_error,
            on_timeout=session.on_timeout,
            finished=finished_earlier(self),
            limits=Limits(
                env_connect_timeout=session.connect_limit,
                env_reset_timeout=session.reset_limit,
                env_step_timeout=session.step_limit,
                model_predict_timeout=session.predict_limit,
                service_close_timeout=session.close_limit,
                telemetry_window=session.window,
            ),
            env_ceiling=ceiling,
            model_ceiling=ceiling,
        )

    @property
    def patience(self) -> float:
        """Virtual seconds in which the session must have ended, with every operation as late as it may be."""
        session = self.session
        ending = 6 * session.close_limit
        if self.cancellation is not None and self.cancellation.at is not None:
            return self.cancellation.at + ending
        longest = min(self.env.longest or 1000, session.step_cap or 1000)
        steps = ((session.budget or 100) + 2 * self.env.lanes) * (longest + 2)
        notices = 6 * (session.hook.longest + session.reader.longest) + SLOW
        operation = session.reset_limit + session.step_limit + 2 * session.predict_limit
        lost = session.connect_limit * (1 + len(self.network.env_lost_at) + 20 * bool(self.troubles))
        plays = 1 + self.env.lanes + max(session.on_env_error.attempts, session.on_timeout.attempts)
        return plays * (steps * (operation + notices) + 5.0 * (session.budget or 100)) + lost + ending

    def run(self) -> Outcome:
        """Play the world to its end, in virtual time. Not to be called while trio or a :func:`seeded_schedule` runs."""
        return run_world(self)
