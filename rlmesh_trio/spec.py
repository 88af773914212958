"""What a session is told: the spec and its limits, and the validation that comes first.

The names of the env's contract can be had from here too: a spec is made of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, cast

import attrs
import uuid_utils

from rlmesh_trio.contract import (
    ENV_RESET_OPTIONS_KEY,
    MAX_MESSAGE_BYTES,
    TRIAL_INDEX_OPTION,
    WIRE_DTYPES,
    AutoresetMode,
    EnvContract,
    LeafSpec,
    PeerCeiling,
    ValueSpace,
    declares_reset_option,
    reset_options_for,
)
from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS, Edition, find_edition
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import EpisodeSummary

__all__ = (
    "ENV_RESET_OPTIONS_KEY",
    "MAX_HISTORY_ROWS",
    "MAX_HORIZON",
    "MAX_MESSAGE_BYTES",
    "TRIAL_INDEX_OPTION",
    "WIRE_DTYPES",
    "AutoresetMode",
    "DescribedEnv",
    "EnvContract",
    "LeafSpec",
    "Limits",
    "PeerCeiling",
    "SessionSpec",
    "ValueSpace",
    "check_horizon",
    "declares_reset_option",
    "reset_options_for",
)

MAX_HISTORY_ROWS = 1023
MAX_HORIZON = 1024

_TEXT_FIELDS = ("session_id", "env_id", "env_component_id", "model_component_id")
_WHOLE_FIELDS = ("num_envs", "base_seed", "max_episodes", "trial_index_base", "max_episode_steps")

_LIMIT_KEYS = {
    "envConnectTimeoutMs": "env_connect_timeout",
    "modelConnectTimeoutMs": "model_connect_timeout",
    "configureRouteTimeoutMs": "configure_route_timeout",
    "envResetTimeoutMs": "env_reset_timeout",
    "modelPredictTimeoutMs": "model_predict_timeout",
    "envStepTimeoutMs": "env_step_timeout",
    "serviceCloseTimeoutMs": "service_close_timeout",
    "telemetryWindowMs": "telemetry_window",
}


@attrs.frozen
class Limits:
    """How long each operation may take, in seconds. ``telemetry_window`` 0 means no live telemetry."""

    env_connect_timeout: float = 60.0
    model_connect_timeout: float = 600.0
    configure_route_timeout: float = 600.0
    env_reset_timeout: float = 300.0
    model_predict_timeout: float = 300.0
    env_step_timeout: float = 300.0
    service_close_timeout: float = 5.0
    telemetry_window: float = 1.0

    def to_json(self) -> dict[str, int]:
        """The eight camelCase keys in whole milliseconds."""
        return {key: round(getattr(self, name) * 1000) for key, name in _LIMIT_KEYS.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Read :meth:`to_json`'s form; absent keys keep their default, unknown keys raise :exc:`InvalidSpec`."""
        given: dict[str, float] = {}
        for key, value in values.items():
            name = _LIMIT_KEYS.get(key)
            if name is None:
                raise InvalidSpec(f"unknown limit {key!r}; the keys are {', '.join(_LIMIT_KEYS)}")
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
                raise InvalidSpec(f"limit {key} must be a whole number of milliseconds, not {value!r}")
            given[name] = value / 1000
        return cls(**given)


class DescribedEnv(Protocol):
    """An open env that can say what a session needs to know about it.

    A lockstep vector env whose reset may name lanes says so besides, by a true ``resets_named_lanes``.
    """

    @property
    def contract(self) -> EnvContract:
        """The declared spaces, width and autoreset mode."""
        ...

    @property
    def edition(self) -> str:
        """The edition agreed with the env."""
        ...

    @property
    def subset_step(self) -> bool:
        """Whether reset and step may name lanes."""
        ...

    @property
    def ceiling(self) -> PeerCeiling | None:
        """The most this peer takes; ``None`` for an env in this process, which is never checked."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class SessionSpec:
    """One env session paired with one model session, and how far to run it.

    ``episode_seeds`` (by slot) wins over ``base_seed``. ``max_episodes`` bounds episode *starts*; ``None`` runs until
    cancelled. ``partial_reset`` drives a ``DISABLED`` lockstep vector by resetting just the lanes that finished.
    ``seed_every_episode`` has the engine reset a lane as soon as its episode ends, also where the env would restart it
    by itself, so that every episode has the seed of its slot; it needs ``base_seed`` or ``episode_seeds``, and of a
    lockstep vector that it resets lanes by name. Lanes that the engine resets one by one have such seeds anyway.
    ``seed_route_id`` is mixed into derived seeds, also when it is empty; ``None`` leaves it out. ``finished`` are
    episodes of an earlier run of this spec: their slots are not played again, and they come first in the report,
    whose totals include them (their ``step_count`` each in ``total_steps``). ``on_env_error`` and ``on_timeout`` say
    what follows an env operation that failed or outlived its limit; every other failure ends the session.
    :meth:`validate` raises :exc:`InvalidSpec`; the engine calls it first.
    """

    env_contract: EnvContract
    session_id: str = "local"
    env_id: str = "env"
    env_component_id: str = "local-env"
    model_component_id: str = "local-model"
    workflow_edition: str = CURRENT_EDITION.name
    num_envs: int = 1
    base_seed: int | None = None
    episode_seeds: tuple[int, ...] = ()
    max_episodes: int | None = None
    trial_index_base: int | None = None
    max_episode_steps: int | None = None
    max_episode_seconds: float | None = None
    close_env_on_end: bool = False
    limits: Limits = Limits()
    subset_step: bool = False
    env_ceiling: PeerCeiling | None = None
    model_ceiling: PeerCeiling | None = None
    partial_reset: bool = False
    seed_every_episode: bool = False
    seed_route_id: str | None = None
    finished: tuple[EpisodeSummary, ...] = ()
    on_env_error: Recovery = Recovery()  # noqa: RUF009 - frozen
    on_timeout: Recovery = Recovery()  # noqa: RUF009 - frozen

    @classmethod
    def for_env(cls, env: DescribedEnv, **fields: Any) -> Self:
        """A spec for an open *env*: contract, width, edition, lanes and ceiling are its own, *fields* the rest.

        ``env_id`` is a fresh UUIDv7 unless given: a model server keeps its routes apart by that id alone.

        Raises :exc:`InvalidSpec` when ``partial_reset`` or ``seed_every_episode`` is asked of an env that cannot reset
        single lanes.
        """
        if not (env.subset_step or getattr(env, "resets_named_lanes", False)):
            if fields.get("partial_reset"):
                raise InvalidSpec(
                    "partial_reset needs an env that resets lanes by name: this one resets all of them at once. "
                    "A gymnasium vector env in this process can, when it is made with AutoresetMode.DISABLED"
                )
            if fields.get("seed_every_episode") and env.contract.num_envs > 1:
                raise InvalidSpec(
                    "seed_every_episode needs an env that resets lanes by name: this one resets all of them at once. "
                    "Lanes can, and so can gymnasium's SyncVectorEnv and AsyncVectorEnv, in this process or served by "
                    "rlmesh-trio"
                )
        facts: dict[str, Any] = {
            "env_id": str(uuid_utils.uuid7()),
            "env_contract": env.contract,
            "num_envs": env.contract.num_envs,
            "workflow_edition": env.edition,
            "subset_step": env.subset_step,
            "env_ceiling": env.ceiling,
        }
        return cls(**(facts | fields))

    @property
    def edition(self) -> Edition:
        """The defaults row of the spec's edition (validated specs only)."""
        edition = find_edition(self.workflow_edition)
        if edition is None:
            raise InvalidSpec(_unknown_edition(self.workflow_edition))
        return edition

    @property
    def driver_owns_resets(self) -> bool:
        """Whether the engine sends every reset, or the env restarts its lanes by itself."""
        edition = find_edition(self.workflow_edition) or CURRENT_EDITION
        return self.seed_every_episode or self.env_contract.autoreset_mode in edition.driver_owned_modes

    @property
    def resets_ended_lanes(self) -> bool:
        """Whether the engine resets the lanes of a lockstep vector that ended, while the others play on."""
        return self.partial_reset or (self.seed_every_episode and self.num_envs > 1 and not self.subset_step)

    @property
    def drives_lanes(self) -> bool:
        """Whether each lane is a group of its own."""
        return self.subset_step and self.num_envs > 1

    @property
    def seeds_by_slot(self) -> bool:
        """Whether a derived seed depends on the episode's slot alone, and not on lane and time as in a vector."""
        return self.subset_step or self.num_envs == 1 or self.seed_every_episode

    @property
    def step_cap(self) -> int | None:
        """Steps after which an episode is truncated: the explicit cap, else the edition's under driver-owned resets."""
        if self.max_episode_steps is not None:
            return self.max_episode_steps
        return self.edition.default_step_cap if self.driver_owns_resets else None

    def validate(self) -> tuple[ValueSpace, ValueSpace]:
        """Raise :exc:`InvalidSpec` for the first rule this spec breaks; else the observation and the action space."""
        self._validate_types()
        for field in _TEXT_FIELDS:
            if not getattr(self, field).strip():
                raise InvalidSpec(f"{field} must not be empty")
        if self.num_envs < 1:
            raise InvalidSpec("num_envs must be greater than zero")
        observation_space, action_space = self.env_contract.observation_space, self.env_contract.action_space
        if observation_space is None:
            raise InvalidSpec("env contract is missing observation_space")
        if action_space is None:
            raise InvalidSpec("env contract is missing action_space")
        for field in ("max_episodes", "max_episode_steps", "max_episode_seconds"):
            value = getattr(self, field)
            if value is not None and value <= 0:
                raise InvalidSpec(f"{field} must be greater than zero when set")
        self._validate_reset_ownership()
        if find_edition(self.workflow_edition) is None:
            raise InvalidSpec(_unknown_edition(self.workflow_edition))
        self._validate_autoreset()
        self._validate_finished()
        self._validate_wire_form()
        return observation_space, action_space

    def _validate_types(self) -> None:
        for field in _TEXT_FIELDS:
            if not isinstance(value := getattr(self, field), str):
                raise InvalidSpec(f"{field} must be text, not {value!r}")
        seeds = cast("object", self.episode_seeds)
        if not isinstance(seeds, (tuple, list)):
            raise InvalidSpec(f"episode_seeds must be a tuple of ints, not {seeds!r}")
        numbers = [(field, getattr(self, field)) for field in _WHOLE_FIELDS]
        for field, value in [*numbers, *(("episode_seeds", seed) for seed in cast("Sequence[object]", seeds))]:
            if not isinstance(value, int) and (value is not None or field == "episode_seeds"):
                raise InvalidSpec(f"{field} must be of type int, not {value!r}")
        route_id, finished = cast("object", self.seed_route_id), cast("object", self.finished)
        if route_id is not None and not isinstance(route_id, str):
            raise InvalidSpec(f"seed_route_id must be text, not {route_id!r}")
        episodes = cast("Sequence[object]", finished) if isinstance(finished, (tuple, list)) else (None,)
        if not all(isinstance(episode, EpisodeSummary) for episode in episodes):
            raise InvalidSpec("finished must be a tuple of EpisodeSummary, as the episodes of a report are")
        for field in ("on_env_error", "on_timeout"):
            if not isinstance(value := getattr(self, field), Recovery):
                raise InvalidSpec(f"{field} must be a Recovery (Recovery.parse reads text), not {value!r}")

    def _validate_reset_ownership(self) -> None:
        if self.driver_owns_resets:
            return
        if self.episode_seeds:
            raise InvalidSpec("episode_seeds requires an env with autoreset disabled, or seed_every_episode")
        if self.trial_index_base:
            raise InvalidSpec("trial_index_base requires an env with autoreset disabled, or seed_every_episode")
        if self.max_episode_steps is not None or self.max_episode_seconds is not None:
            raise InvalidSpec(
                "max_episode_steps / max_episode_seconds require an env with autoreset disabled, or seed_every_episode"
            )

    def _validate_autoreset(self) -> None:
        mode = self.env_contract.autoreset_mode
        if mode not in tuple(AutoresetMode):
            raise InvalidSpec(
                f"unknown autoreset mode {mode} on the wire; this build supports UNSPECIFIED, NEXT_STEP and DISABLED"
            )
        if mode == AutoresetMode.SAME_STEP:
            raise InvalidSpec("SAME_STEP autoreset is reserved but not yet supported by the runtime")
        if self.seed_every_episode:
            self._validate_seed_every_episode()
        if self.partial_reset:
            self._validate_partial_reset()
        elif (
            not self.seed_every_episode
            and self.num_envs > 1
            and not self.subset_step
            and mode != AutoresetMode.NEXT_STEP
        ):
            raise InvalidSpec(
                "vectorized runtime sessions (num_envs > 1) require NEXT_STEP autoreset, or partial_reset where the "
                "env can reset single lanes"
            )

    def _validate_seed_every_episode(self) -> None:
        if self.base_seed is None and not self.episode_seeds:
            raise InvalidSpec("seed_every_episode needs base_seed or episode_seeds")
        if self.resets_ended_lanes and self.env_contract.autoreset_mode == AutoresetMode.UNSPECIFIED:
            raise InvalidSpec(
                "seed_every_episode needs a vector env with NEXT_STEP or DISABLED autoreset; this one declares none"
            )

    def _validate_partial_reset(self) -> None:
        mode = AutoresetMode(self.env_contract.autoreset_mode)
        if mode != AutoresetMode.DISABLED:
            raise InvalidSpec(
                f"partial_reset needs an env with DISABLED autoreset; this one declares {mode.name}. A gymnasium "
                "vector env has it when it is made with AutoresetMode.DISABLED"
            )
        if self.num_envs == 1:
            raise InvalidSpec("partial_reset needs a vector env; a single lane is reset whole anyway")
        if self.subset_step:
            raise InvalidSpec("partial_reset is for vector envs in lockstep; these lanes are reset one by one anyway")

    def _validate_finished(self) -> None:
        if not self.finished:
            return
        if self.max_episodes is None:
            raise InvalidSpec("finished needs max_episodes: without a budget no episode is missing")
        known: set[int] = set()
        for index in (episode.episode_index for episode in self.finished):
            if not 1 <= index <= self.max_episodes:
                raise InvalidSpec(f"finished holds episode {index}; max_episodes asks for 1 to {self.max_episodes}")
            if index in known:
                raise InvalidSpec(f"finished holds episode {index} twice")
            known.add(index)
        if self.base_seed is None or self.episode_seeds:
            return
        if not self.driver_owns_resets:
            raise InvalidSpec(
                "finished does not go with base_seed on an env that restarts its lanes itself: it would play the same "
                "first episodes again; seed_every_episode gives each its own"
            )
        if not self.seeds_by_slot:
            raise InvalidSpec(
                "finished does not go with base_seed on a lockstep vector: its seeds depend on when a lane was reset; "
                "give episode_seeds, or ask for seed_every_episode"
            )

    def _validate_wire_form(self) -> None:
        for field in (*_TEXT_FIELDS, "seed_route_id"):
            value = getattr(self, field) or ""
            if value.encode(errors="replace").decode() != value:
                raise InvalidSpec(f"{field} must be text that UTF-8 can carry, not {value!r}")
        seeds = [("base_seed", self.base_seed)] + [("episode_seeds", seed) for seed in self.episode_seeds]
        for field, seed in seeds:
            if seed is not None and not -(2**63) <= seed < 2**63:
                raise InvalidSpec(f"{field} must fit a signed 64-bit integer, not {seed}")
        if self.trial_index_base is not None and not 0 <= self.trial_index_base < 2**64:
            raise InvalidSpec(f"trial_index_base must fit an unsigned 64-bit integer, not {self.trial_index_base}")
        for field in _LIMIT_KEYS.values():
            seconds = getattr(self.limits, field)
            if not 0 <= seconds * 1000 < 2**64:
                raise InvalidSpec(f"limits.{field} must be a finite number of seconds, 0 or more, not {seconds!r}")


def check_horizon(execution_horizon: int) -> None:
    """Raise :exc:`InvalidSpec` for a horizon that no chunk can have."""
    if not 1 <= execution_horizon <= MAX_HORIZON:
        raise InvalidSpec(f"execution_horizon must be from 1 to {MAX_HORIZON}, not {execution_horizon}")


def _unknown_edition(name: str) -> str:
    retained = ", ".join(f'"{edition.name}"' for edition in RETAINED_EDITIONS)
    return f'runtime cannot drive workflow edition "{name}"; this build implements [{retained}]'
