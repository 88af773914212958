"""What a session is told: the spec, its limits, the env's contract, and the validation that comes first."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, Self, cast

import attrs
import gymnasium

from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS, Edition, find_edition
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.messages import Metadata, MetaValue

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

ENV_RESET_OPTIONS_KEY = "rlmesh.env.v1.reset_options"
TRIAL_INDEX_OPTION = CURRENT_EDITION.trial_index_option
MAX_HISTORY_ROWS = 1023
MAX_HORIZON = 1024
MAX_MESSAGE_BYTES = 256 * 1024 * 1024

WIRE_DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
)


class AutoresetMode(IntEnum):
    """Who restarts a finished lane, with the wire's numbers."""

    UNSPECIFIED = 0
    NEXT_STEP = 1
    SAME_STEP = 2
    DISABLED = 3


@attrs.frozen
class LeafSpec:
    """One fundamental leaf of a space: its ``$``-rooted path, kind, wire dtype name and per-row shape."""

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


@attrs.frozen(eq=False)
class ValueSpace:
    """A space and its wire layout, which travel together because gymnasium cannot say everything the wire says.

    ``space`` is a gymnasium space of one row; ``leaves`` are in wire order; ``encoded`` is the wire's space message.
    """

    space: gymnasium.Space[Any]
    leaves: tuple[LeafSpec, ...]
    encoded: bytes


@attrs.frozen(eq=False)
class EnvContract:
    """What an env declares. The spaces are those of one lane, also for a vector env.

    ``encoded_spec`` is the wire's env spec as it came, relayed to a model unchanged.
    """

    env_id: str = "UnknownEnv-v1"
    observation_space: ValueSpace | None = None
    action_space: ValueSpace | None = None
    metadata: Metadata = attrs.field(factory=dict[str, MetaValue])
    num_envs: int = 1
    autoreset_mode: int = AutoresetMode.UNSPECIFIED
    render_mode: str = ""
    encoded_spec: bytes = b""
    encoded_size: int = 0


@attrs.frozen
class PeerCeiling:
    """The most a peer takes: dtypes by wire name, capabilities, and bytes in one message."""

    edition: str
    dtypes: frozenset[str] = frozenset(WIRE_DTYPES)
    capabilities: Mapping[str, str] = attrs.field(factory=dict[str, str])
    max_message_size: int = MAX_MESSAGE_BYTES


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
    """An open env that can say what a session needs to know about it."""

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
    cancelled. :meth:`validate` raises :exc:`InvalidSpec`; the engine calls it first.
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

    @classmethod
    def for_env(cls, env: DescribedEnv, **fields: Any) -> Self:
        """A spec for an open *env*: contract, width, edition, lanes and ceiling are its own, *fields* the rest."""
        facts: dict[str, Any] = {
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
        return self.env_contract.autoreset_mode in edition.driver_owned_modes

    @property
    def drives_lanes(self) -> bool:
        """Whether each lane is a group of its own."""
        return self.subset_step and self.num_envs > 1

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

    def _validate_reset_ownership(self) -> None:
        if self.driver_owns_resets:
            return
        if self.episode_seeds:
            raise InvalidSpec("episode_seeds requires an env with autoreset disabled")
        if self.trial_index_base:
            raise InvalidSpec("trial_index_base requires an env with autoreset disabled")
        if self.max_episode_steps is not None or self.max_episode_seconds is not None:
            raise InvalidSpec("max_episode_steps / max_episode_seconds require an env with autoreset disabled")

    def _validate_autoreset(self) -> None:
        mode = self.env_contract.autoreset_mode
        if mode not in tuple(AutoresetMode):
            raise InvalidSpec(
                f"unknown autoreset mode {mode} on the wire; this build supports UNSPECIFIED, NEXT_STEP and DISABLED"
            )
        if mode == AutoresetMode.SAME_STEP:
            raise InvalidSpec("SAME_STEP autoreset is reserved but not yet supported by the runtime")
        if self.num_envs > 1 and not self.subset_step and mode != AutoresetMode.NEXT_STEP:
            raise InvalidSpec("vectorized runtime sessions (num_envs > 1) require NEXT_STEP autoreset")

    def _validate_wire_form(self) -> None:
        for field in _TEXT_FIELDS:
            value = getattr(self, field)
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


def declares_reset_option(contract: EnvContract, key: str) -> bool:
    """Whether the env's metadata lists *key* among its reset options, as a list of texts or as one bare text."""
    declared = contract.metadata.get(ENV_RESET_OPTIONS_KEY)
    if isinstance(declared, str):
        return declared == key
    if isinstance(declared, bytes) or not isinstance(declared, (list, tuple)):
        return False
    return key in declared


def reset_options_for(contract: EnvContract, key: str, trials: tuple[int, ...]) -> Metadata | None:
    """The reset options that carry *trials* to a declaring env: one bare integer, or a list in lane order."""
    if not trials or not declares_reset_option(contract, key):
        return None
    return {key: trials[0] if len(trials) == 1 else list(trials)}
