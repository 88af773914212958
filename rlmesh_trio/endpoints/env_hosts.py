"""One gymnasium env behind leaves: what runs wherever the env lives, synchronously.

An env that raises, or returns what is not in its observation space, is ``INTERNAL``; an action that does not fit is
``INVALID_ACTION``, recoverable, and never reaches the env. Box bounds alone are forgiven (see
:mod:`~rlmesh_trio.endpoints.conformance`). Envs own the actions they get and may write into them.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.endpoints.conformance import Conformance
from rlmesh_trio.endpoints.loading import AnyEnv
from rlmesh_trio.endpoints.png import png_bytes
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, SessionError, SpaceError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.spaces import codec_for, contract_from_gymnasium
from rlmesh_trio.spaces.lane_infos import lane_part
from rlmesh_trio.spec import AutoresetMode, EnvContract, ValueSpace

__all__ = ("EnvHost", "HostReply", "ScalarHost", "VectorHost", "host_env", "only_lanes")


class HostReply(NamedTuple):
    """What a reset or a step brought. After a reset ``rewards`` and the masks are empty."""

    observation: Leaves
    rewards: Sequence[float]
    terminated: bytes
    truncated: bytes
    infos: Metadata
    decode_ns: int
    user_ns: int
    encode_ns: int
    lane_skew_ns: int | None = None


class EnvHost(Protocol):
    """An env that takes and gives leaves: one row for a scalar env, a row per lane for a vector.

    ``resets_named_lanes`` says whether a reset may be of some lanes of a vector, by :func:`only_lanes`.
    """

    contract: EnvContract
    resets_named_lanes: bool

    def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset the env, unseeded when *seeds* is empty."""
        ...

    def step(self, action: Leaves) -> HostReply:
        """Step the env with one batched action."""
        ...

    def render(self, lane: int) -> bytes | None:
        """The picture of *lane* as a PNG file; ``None`` when the env has none to show."""
        ...

    def new_session(self) -> None:
        """Forget which warnings were told: somebody else is driving now."""
        ...

    def close(self) -> None:
        """Close the env."""
        ...


def host_env(env: AnyEnv) -> EnvHost:
    """The host of *env*.

    Raises :exc:`SpaceError` for a space without wire form, :exc:`HandshakeError` for an env no session can drive.
    """
    try:
        if isinstance(env, VectorEnv):
            return VectorHost(env, _vector_contract(env))
        return ScalarHost(env, _scalar_contract(env))
    except SessionError:
        raise
    except Exception as failure:
        raise ConnectError(f"the env {type(env).__name__} cannot be described: {_told(failure)}") from failure


def _scalar_contract(env: gymnasium.Env[Any, Any]) -> EnvContract:
    return contract_from_gymnasium(
        env.observation_space,
        env.action_space,
        env_id=_env_id(env),
        metadata=_metadata(env),
        num_envs=1,
        autoreset_mode=AutoresetMode.DISABLED,
        render_mode=getattr(env, "render_mode", None) or "",
    )


def _vector_contract(env: VectorEnv[Any, Any, Any]) -> EnvContract:
    metadata = _metadata(env)
    mode = _autoreset_mode(metadata.get("autoreset_mode", "NEXT_STEP"))
    if env.num_envs == 1 and mode != AutoresetMode.SAME_STEP:
        mode = AutoresetMode.DISABLED
        metadata.pop("autoreset_mode", None)
    return contract_from_gymnasium(
        cast("gymnasium.Space[Any]", cast("Any", env).single_observation_space),
        cast("gymnasium.Space[Any]", cast("Any", env).single_action_space),
        env_id=_env_id(env),
        metadata=metadata,
        num_envs=env.num_envs,
        autoreset_mode=mode,
        render_mode=env.render_mode or "",
    )


def _autoreset_mode(declared: object) -> AutoresetMode:
    name = str(getattr(declared, "name", declared)).upper()
    if name not in (AutoresetMode.NEXT_STEP.name, AutoresetMode.SAME_STEP.name, AutoresetMode.DISABLED.name):
        raise HandshakeError(f"unknown autoreset mode {name} in the vector env's metadata: use NEXT_STEP")
    return AutoresetMode[name]


def _env_id(env: AnyEnv) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else EnvContract().env_id


def _metadata(env: AnyEnv) -> dict[str, Any]:
    return dict(getattr(env, "metadata", None) or {})


class _Host:
    """What scalar and vector envs have in common: the env, its codecs and conformance, and how failures are told."""

    resets_named_lanes = False

    def __init__(self, env: Any, contract: EnvContract) -> None:
        self.contract = contract
        self._env = env
        self._observations = codec_for(cast("ValueSpace", contract.observation_space))
        self._actions = codec_for(cast("ValueSpace", contract.action_space))
        self._warnings: list[Metadata] = []
        self.new_session()

    def new_session(self) -> None:
        warnings, contract = self._warnings, self.contract
        warnings.clear()
        self._check_observation = Conformance(
            "observation", cast("ValueSpace", contract.observation_space), warnings
        ).check
        self._check_action = Conformance("action", cast("ValueSpace", contract.action_space), warnings).check

    def render(self, lane: int) -> bytes | None:
        if not self.contract.render_mode:
            return None
        try:
            picture: Any = self._env.render()
        except Exception as failure:
            raise _failed("render", failure) from failure
        return png_bytes(cast("Any", picture)[lane] if isinstance(picture, tuple) else picture)

    def close(self) -> None:
        try:
            self._env.close()
        except Exception as failure:
            raise _failed("close", failure) from failure

    def _reset_env(self, seed: int | list[int | None] | None, options: Metadata | None) -> tuple[Any, Any]:
        arguments: dict[str, Any] = {}
        if seed is not None:
            arguments["seed"] = seed
        if options is not None:
            arguments["options"] = dict(options)
        try:
            observation, infos = self._env.reset(**arguments)
        except Exception as failure:
            raise _failed("reset", failure) from failure
        return observation, infos

    def _told_infos(self, infos: object) -> Metadata:
        """*infos* with the warnings that are due."""
        if not isinstance(infos, Mapping):
            raise EndpointError("INTERNAL", f"the env's infos are of type {type(infos).__name__}, not a mapping")
        told = cast("Metadata", infos)
        if self._warnings:
            told = {**told, CURRENT_EDITION.conformance_warning_key: tuple(self._warnings)}
            self._warnings.clear()
        return told


class ScalarHost(_Host):
    """A scalar env: one row."""

    def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset the env with the first of *seeds*, unseeded when there is none."""
        started = perf_counter_ns()
        observation, infos = self._reset_env(seeds[0] if seeds else None, options)
        called = perf_counter_ns()
        leaves = self._packed(observation)
        infos = self._told_infos(infos)
        return HostReply(leaves, (), b"", b"", infos, 0, called - started, perf_counter_ns() - called)

    def step(self, action: Leaves) -> HostReply:
        """Step the env with an action of one row."""
        started = perf_counter_ns()
        try:
            self._check_action(action, 1)
            member = self._actions.unpack_row(action, 1, 0)
        except SpaceError as wrong:
            raise _invalid(wrong) from wrong
        decoded = perf_counter_ns()
        try:
            observation, reward, terminated, truncated, infos = self._env.step(member)
            rewards = (float(reward),)
        except Exception as failure:
            raise _failed("step", failure) from failure
        called = perf_counter_ns()
        leaves = self._packed(observation)
        return HostReply(
            leaves,
            rewards,
            b"\x01" if terminated else b"\x00",
            b"\x01" if truncated else b"\x00",
            self._told_infos(infos),
            decoded - started,
            called - decoded,
            perf_counter_ns() - called,
        )

    def _packed(self, observation: Any) -> Leaves:
        try:
            leaves = self._observations.pack_rows((observation,))
            self._check_observation(leaves, 1)
        except SpaceError as wrong:
            raise _strange(wrong) from wrong
        return leaves


class VectorHost(_Host):
    """A gymnasium vector env: a row per lane, infos in gymnasium's vector form. One of width 1 passes for scalar."""

    def __init__(self, env: VectorEnv[Any, Any, Any], contract: EnvContract) -> None:
        super().__init__(env, contract)
        self._rows = contract.num_envs
        self.resets_named_lanes = self._rows > 1 and _takes_reset_mask(env, contract.autoreset_mode)

    def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset all lanes, or those of a mask; a single seed spreads as seed, seed + 1 and so on."""
        started = perf_counter_ns()
        one_seed = len(seeds) == 1 or self._rows == 1
        seed = None if not seeds else seeds[0] if one_seed else list(seeds)
        observation, infos = self._reset_env(seed, options)
        called = perf_counter_ns()
        leaves = self._packed(observation)
        infos = self._row_infos(infos)
        return HostReply(leaves, (), b"", b"", infos, 0, called - started, perf_counter_ns() - called)

    def step(self, action: Leaves) -> HostReply:
        """Step all lanes with an action of a row per lane."""
        started = perf_counter_ns()
        try:
            self._check_action(action, self._rows)
            batch = _owned(self._actions.unpack_batch(action, self._rows))
        except SpaceError as wrong:
            raise _invalid(wrong) from wrong
        decoded = perf_counter_ns()
        try:
            observation, rewards, terminated, truncated, infos = self._env.step(batch)
            rewards = np.asarray(rewards, np.float64).reshape(self._rows).tolist()
            terminated = np.asarray(terminated, np.bool_).reshape(self._rows).tobytes()
            truncated = np.asarray(truncated, np.bool_).reshape(self._rows).tobytes()
        except Exception as failure:
            raise _failed("step", failure) from failure
        called = perf_counter_ns()
        leaves = self._packed(observation)
        infos = self._row_infos(infos)
        return HostReply(
            leaves,
            rewards,
            terminated,
            truncated,
            infos,
            decoded - started,
            called - decoded,
            perf_counter_ns() - called,
        )

    def _row_infos(self, infos: object) -> Metadata:
        told = self._told_infos(infos)
        return lane_part(told, 0, 1) if self._rows == 1 else told

    def _packed(self, observation: Any) -> Leaves:
        try:
            leaves = self._observations.pack_batch(observation, self._rows)
            self._check_observation(leaves, self._rows)
        except SpaceError as wrong:
            raise _strange(wrong) from wrong
        return leaves


def only_lanes(
    lanes: Sequence[int], width: int, seeds: Sequence[int], options: Metadata | None
) -> tuple[Sequence[int | None], Metadata]:
    """The seeds and options with which a vector env of *width* lanes resets only *lanes*; *seeds* are aligned to these.

    That is gymnasium's ``reset_mask``: what such a reset observes has a row for every lane, old ones among them.
    """
    mask = np.zeros(width, np.bool_)
    mask[list(lanes)] = True
    by_lane = dict(zip(lanes, seeds, strict=False))
    masked: dict[str, Any] = {**(options or {}), "reset_mask": mask}
    return [by_lane.get(lane) for lane in range(width)] if seeds else (), masked


def _takes_reset_mask(env: VectorEnv[Any, Any, Any], mode: int) -> bool:
    """Whether a masked reset restarts just the masked lanes of *env*.

    It is how all vectors with ``DISABLED`` autoreset are driven; of those that restart lanes themselves only
    gymnasium's own are known to take a lane that was reset for restarted.
    """
    if mode == AutoresetMode.NEXT_STEP:
        return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
    return mode == AutoresetMode.DISABLED


def _owned(value: Any) -> Any:
    """A batch whose arrays the env may write into."""
    if isinstance(value, np.ndarray):
        return cast("Any", value).copy()
    if isinstance(value, dict):
        return {key: _owned(part) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple([_owned(part) for part in cast("tuple[Any, ...]", value)])
    return value


def _failed(operation: str, failure: Exception) -> EndpointError:
    return EndpointError("INTERNAL", f"{operation} failed: {_told(failure)}")


def _invalid(wrong: SpaceError) -> EndpointError:
    return EndpointError("INVALID_ACTION", str(wrong), True)


def _strange(wrong: SpaceError) -> EndpointError:
    return EndpointError("INTERNAL", f"the env's observation is not in its observation space: {wrong}")


def _told(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"
