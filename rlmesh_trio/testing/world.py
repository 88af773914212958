"""Simulated worlds: an env, a model, a network, a session and what goes wrong in it, all from one integer seed.

``World.from_seed(1234).run()`` plays one in virtual time and gives its :class:`~rlmesh_trio.testing.world_run.Outcome`;
the same seed always plays the same, task step for task step. ``violations(outcome)`` of
:mod:`rlmesh_trio.testing.world_checks` says which promise was broken, if any was.
"""

import random
from typing import Any, Final, Self, TypeVar

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
from rlmesh_trio.testing.world_plan import (
    KINDS,
    SLOW,
    Autoreset,
    Cancellation,
    Delays,
    EnvKind,
    EnvPlan,
    ModelPlan,
    NetworkPlan,
    SchedulerName,
    SessionPlan,
    Trouble,
)
from rlmesh_trio.testing.world_run import Outcome, run_world
from rlmesh_trio.testing.world_toy import ACTION_BYTES, OBSERVATION_BYTES

__all__ = ("World",)

T = TypeVar("T")


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
        draw = _Draw(seed)
        env = draw.env()
        model = draw.model(history=env.kind != "vector" or env.autoreset == "NEXT_STEP")
        session = draw.session(env)
        mood = draw.one(*["calm"] * 4, *["trouble"] * 3, *["cancelled"] * 2, "both")
        endless = session.budget is None or (env.longest is None and session.step_cap is None)
        return cls(
            seed=seed,
            schedule=draw.random.getrandbits(32),
            env=env,
            model=model,
            network=draw.network(lossy=mood in ("trouble", "both")),
            session=session,
            troubles=draw.troubles() if mood in ("trouble", "both") else (),
            cancellation=draw.cancellation(endless=endless) if endless or mood in ("cancelled", "both") else None,
        )

    @property
    def owns_resets(self) -> bool:
        """Whether the engine sends every reset."""
        return self.env.autoreset != "NEXT_STEP"

    @property
    def drives_lanes(self) -> bool:
        """Whether each lane is a group of its own."""
        return self.env.kind == "lanes" and self.env.lanes > 1

    @property
    def resets_named_lanes(self) -> bool:
        """Whether the engine resets just the finished lanes of a vector."""
        return self.env.kind == "vector" and self.env.lanes > 1 and self.owns_resets

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
            partial_reset=self.resets_named_lanes,
            base_seed=session.base_seed,
            episode_seeds=session.episode_seeds,
            max_episodes=session.budget,
            trial_index_base=session.trial_base,
            max_episode_steps=session.step_cap,
            max_episode_seconds=session.time_cap,
            close_env_on_end=session.close_env,
            limits=Limits(
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
        return steps * (operation + notices) + ending

    def run(self) -> Outcome:
        """Play the world to its end, in virtual time. Not to be called while trio or a :func:`seeded_schedule` runs."""
        return run_world(self)


class _Draw:
    """The choices of one seed, in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *options: T) -> T:
        return self.random.choice(options)

    def up_to(self, most: int, least: int = 1) -> int:
        return self.random.randint(least, most)

    def delays(self) -> Delays:
        return self.one(
            Delays(),
            Delays(),
            Delays((0.0, 0.25)),
            Delays((0.5,)),
            Delays((0.0, 0.25, 0.5, 1.0)),
            Delays((0.0,), jitter=1.0),
            Delays((0.25, 0.5), jitter=0.25),
        )

    def env(self) -> EnvPlan:
        kind: EnvKind = self.one("single", "lanes", "lanes", "lanes", "vector")
        autoreset: Autoreset = self.one("UNSPECIFIED", "DISABLED", "DISABLED", "NEXT_STEP")
        if kind == "vector":
            autoreset = self.one("NEXT_STEP", "DISABLED")
        return EnvPlan(
            kind=kind,
            lanes=1 if kind == "single" else self.one(1, 2, 2, 3, 3, 4),
            autoreset=autoreset,
            longest=None if self.up_to(15) == 1 else self.up_to(6),
            salt=self.random.getrandbits(32),
            reset=self.delays(),
            step=self.delays(),
            echoes=autoreset != "NEXT_STEP" and self.one(True, False),
            declares_trials=self.one(True, False),
        )

    def model(self, *, history: bool) -> ModelPlan:
        return ModelPlan(
            chunk=self.one(1, 1, 2, 3, 4),
            varied=self.one(True, False),
            fuses=self.one(True, False),
            history=self.up_to(4) == 1 and history,
            salt=self.random.getrandbits(32),
            predict=self.delays(),
        )

    def network(self, *, lossy: bool) -> NetworkPlan:
        lost = self.one(None, None, "env", "model") if lossy else None
        near = self.one(True, True, False)
        return NetworkPlan(
            env=Delays() if near else self.one(Delays((0.125,)), Delays((0.0,), jitter=0.5)),
            model=Delays() if near else self.one(Delays((0.125,)), Delays((0.0,), jitter=0.5)),
            env_lost_at=self.up_to(20) if lost == "env" else None,
            model_lost_at=self.up_to(12) if lost == "model" else None,
        )

    def session(self, env: EnvPlan) -> SessionPlan:
        owns_resets = env.autoreset != "NEXT_STEP"
        budget = None if self.up_to(20) == 1 else self.up_to(7)
        seeding = self.one("base", "base", "none", *(["listed", "listed in part"] if owns_resets else []))
        listed = {"listed": budget or 40, "listed in part": self.up_to(3)}.get(seeding, 0)
        scheduler: SchedulerName = self.one(
            *("eager", "eager", "eager", "eager"), *("lowest", "together", "never", "unruly", "full", "adaptive")
        )
        return SessionPlan(
            budget=budget,
            step_cap=self.one(None, None, 1, 3) if owns_resets else None,
            time_cap=self.one(*[None] * 8, 1.5) if owns_resets else None,
            base_seed=self.random.getrandbits(63) if seeding == "base" else None,
            episode_seeds=tuple(self.random.getrandbits(31) for _ in range(listed)),
            trial_base=self.one(None, 5) if owns_resets else None,
            prefetch_lead=self.one(0, 0, 0, 1, 2, 3),
            window=self.one(0.0, 0.0, 0.5),
            close_env=self.one(True, True, False),
            ceilings=self.up_to(4) == 1,
            scheduler=scheduler,
            listening=self.one("hooks", "hooks", "hooks", "stream", "both", "nobody"),
            transforms=self.up_to(4) == 1,
            hook=self.one(*[Delays()] * 4, Delays((0.0, 0.25)), Delays((0.0,), jitter=0.25)),
            reader=self.one(Delays(), Delays((0.0, 0.25)), Delays((3.0,))),
            reader_stays=self.one(None, None, self.up_to(20)),
        )

    def troubles(self) -> tuple[Trouble, ...]:
        peers = ("reset", "step", "step", "close", "predict", "predict", "predict_group", "evict", "release")
        planted: list[Trouble] = []
        for _ in range(self.one(1, 1, 1, 2)):
            part = self.one(*peers, *peers, *KINDS)
            first_only = part in ("close", "release", "session_started", "session_ended", "session_failed")
            call = 1 if first_only else self.up_to(self.one(1, 3, 12))
            code = self.one("INTERNAL", "UNAVAILABLE", "CONNECTION")
            planted.append(Trouble(part, self.one(*KINDS[part]), call, code))
        return tuple(planted)

    def cancellation(self, *, endless: bool) -> Cancellation:
        outside = self.one(True, False)
        if endless or self.one(True, False):  # Where nothing takes time, an endless session never sees a later moment.
            return Cancellation(step=self.up_to(self.one(10, 100, 300)), outside=outside)
        at = self.one(0.0, 0.25, 0.5, 1.0, 2.0, 4.0) + self.one(0.0, 0.0, self.random.random())
        return Cancellation(at=at, outside=outside)
