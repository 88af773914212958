"""Envs and servers with one fault each of the family ``space``, and odd ones without a fault."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.contract import AutoresetMode, EnvContract
from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.spaces import codec_for, contract_from_gymnasium
from tests.conformance.scripted_env import Counting, ScriptedEnv, contract_of, ok

Infos = dict[str, Any]
Stepped = tuple[Any, float, bool, bool, Infos]


class Slide(gymnasium.Env[Any, Any]):
    """Slides along a line that ends at -4 and 4; observes place, half place and step."""

    observation_space: spaces.Space[Any] = spaces.Box(
        np.array([-4, -2, 0], np.float32), np.array([4, 2, np.inf], np.float32)
    )
    action_space: spaces.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)
    length = 1000

    def __init__(self) -> None:
        self.place = 0.0
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        self.place, self.t = 0.0, 0
        return self.observe(), {}

    def step(self, action: Any) -> Stepped:
        self.t += 1
        self.place = self.move(float(np.asarray(action).ravel()[0]))
        return self.observe(), 0.0, self.t >= self.length, False, {}

    def move(self, push: float) -> float:
        return float(np.clip(self.place + push, -4, 4))

    def observe(self) -> Any:
        return np.array([self.place, self.place / 2, self.t], np.float32)


class WrongShape(Slide):
    """Observes one number too many from the second step on."""

    def observe(self) -> Any:
        return np.append(super().observe(), np.float32(0)) if self.t > 1 else super().observe()


class KeyMissing(Slide):
    """Forgets a key at the end of the line."""

    observation_space = spaces.Dict({"place": spaces.Box(-4, 4, (1,), np.float32), "t": spaces.Discrete(2000)})

    def observe(self) -> Any:
        seen = {"place": np.array([self.place], np.float32), "t": self.t}
        return seen if abs(self.place) < 2 else {"t": self.t}


class Overshoots(Slide):
    """Goes on behind the end of the line, if nobody turns back."""

    def move(self, push: float) -> float:
        return self.place + push


class CountsTooFar(Slide):
    """Counts its steps in a Discrete that is too small for them."""

    observation_space = spaces.Dict({"t": spaces.Discrete(3), "place": spaces.Box(-4, 4, (1,), np.float32)})

    def observe(self) -> Any:
        return {"t": self.t, "place": np.array([self.place], np.float32)}


class TalksTooMuch(Slide):
    """Says a word more each step, and three at most are admitted."""

    observation_space = spaces.Text(3, charset="ab")

    def observe(self) -> Any:
        return "a" * (1 + self.t)


class NanAtTheEnd(Slide):
    """Divides by what is left of the line."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observe(self) -> Any:
        left = 4 - abs(self.place)
        return np.array([self.place, np.nan if left < 2 else 1 / left], np.float32)


class RaisesOnBound(Slide):
    """Takes the ends of its action space for outside of it."""

    def move(self, push: float) -> float:
        if abs(push) == 1:
            raise ValueError("not so hard")
        return super().move(push)


class RaisesInAState(Slide):
    """Fails wherever the line ends."""

    def move(self, push: float) -> float:
        place = super().move(push)
        return {True: place}[abs(place) < 4]


class RaisesOnLargeSeeds(Slide):
    """Cannot be seeded with more than 32 bits."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        np.random.RandomState(seed)  # pyright: ignore[reportUnknownMemberType]
        return super().reset(seed=seed, options=options)


FLAT = spaces.Dict(
    {
        "bits": spaces.MultiBinary(3),
        "count": spaces.Discrete(4, start=-1),
        "free": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "many": spaces.MultiDiscrete([2, 3]),
        "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 255, (2, 2), np.uint8)]),
        "say": spaces.Text(5, charset="abc"),
    }
)


class OddButRight(gymnasium.Env[Any, Any]):
    """Every kind of leaf on its bounds, no chance, both flags at once, and nonsense behind the end."""

    observation_space = FLAT
    action_space = FLAT
    length = 3

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> Stepped:
        assert action in self.action_space
        self.t += 1
        over = self.t >= self.length
        if self.t > self.length:
            raise RuntimeError("the episode is over")
        return self.observe(), 0.0, over, over, {"late": 1} if over else {}

    def observe(self) -> Any:
        low = self.t % 2 == 0
        return {
            "bits": np.full(3, not low, np.int8),
            "count": np.int64(-1 if low else 2),
            "free": np.array([-np.inf, np.inf] if low else [0, -0.0]),
            "many": np.array([0, 0] if low else [1, 2]),
            "pair": (int(not low), np.full((2, 2), 0 if low else 255, np.uint8)),
            "say": "a" if low else "ccccc",
        }


class OneStep(Slide):
    """Is over with the first step, and observes nonsense when asked again."""

    length = 1

    def observe(self) -> Any:
        return np.full(3, np.nan, np.float32) if self.t > 1 else super().observe()


class Forbidding(Slide):
    """Allows one of its three actions at a time, another one each step, and raises for the others."""

    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        return super().reset(seed=seed)[0], {"action_mask": self.mask()}

    def mask(self) -> Any:
        mask = np.zeros(3, np.int8)
        mask[self.t % 3] = 1
        return mask

    def step(self, action: Any) -> Stepped:
        if not self.mask()[action]:
            raise ValueError(f"{action} is forbidden")
        observation, reward, terminated, truncated, _ = super().step(0.0)
        return observation, reward, terminated, truncated, {"action_mask": self.mask()}


class Served(ScriptedEnv):
    """A server of one counting lane that checks actions; *fault* says what it does instead of refusing one.

    ``takes``: it steps. ``internal``: it gives ``INTERNAL``. ``late``: it gives ``TIMEOUT``. ``fatal``: it gives an
    ``INVALID_ACTION`` that ends the session. ``steps first``: it refuses what it has done.
    """

    def __init__(self, fault: str = "") -> None:
        super().__init__(self._never, contract_of(), subset_step=True)
        assert self.contract.action_space is not None
        self._codec = codec_for(self.contract.action_space)
        self.fault = fault
        self.steps = 0

    async def _never(self, request: ResetRequest | StepTarget) -> EnvReply:
        raise AssertionError(request)

    async def reset(self, request: ResetRequest) -> EnvReply:
        self.steps = 0
        return EnvReply(self._seen(), {})

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        try:
            self._codec.check_members(action, 1)
        except SpaceError as wrong:
            self.steps += self.fault == "steps first"
            if self.fault != "takes":
                code = {"internal": "INTERNAL", "late": "TIMEOUT"}.get(self.fault, "INVALID_ACTION")
                raise EndpointError(code, str(wrong), self.fault not in ("internal", "fatal")) from wrong
        self.steps += 1
        return EnvReply(self._seen(), {}, (1.0,), bytes(1), bytes(1))

    def _seen(self) -> Leaves:
        return [np.array([min(self.steps, 9), 0], np.float32).tobytes()]


class Garbled(Served):
    """A server that checks actions, but spoils its own answers to steps."""

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        reply = await super().step(action, target)
        match self.fault:
            case "short":
                reply.observation = [b"\0" * 7]
            case "two leaves":
                reply.observation = [*self._seen(), b""]
            case "two rewards":
                reply.rewards = (1.0, 1.0)
            case _:
                reply.truncated_mask = bytes(3)
        return reply


def declaring(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> EnvContract:
    """The contract of one lane with these spaces."""
    return contract_from_gymnasium(
        observations,
        actions,
        env_id="Declared-v0",
        metadata={},
        num_envs=1,
        autoreset_mode=AutoresetMode.DISABLED,
        render_mode="",
    )


class Silent(ScriptedEnv):
    """A server that refuses NaN, and takes everything else; it *warns* of it, or its env *raises*, or neither."""

    def __init__(self, *, warns: bool = False, raises: bool = False) -> None:
        contract = declaring(Counting.observation_space, spaces.Box(-1, 1, (2,), np.float32))
        super().__init__(self._answer, contract, subset_step=True)
        self.warns, self.raises = warns, raises

    async def _answer(self, request: ResetRequest | StepTarget) -> EnvReply:
        return ok(steps=isinstance(request, StepTarget))

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        values = np.frombuffer(action[0], np.float32)
        if np.isnan(values).any():
            raise EndpointError("INVALID_ACTION", "NaN", True)
        reply = await super().step(action, target)
        if abs(values).max() > 1:
            if self.raises:
                raise EndpointError("INTERNAL", "step failed: AssertionError: out of range")
            if self.warns:
                reply.infos = {"rlmesh.conformance.warning": [{"kind": "action", "path": "/", "detail": "too large"}]}
        return reply


class Sends(ScriptedEnv):
    """A server that observes *leaf* whatever happens, and checks nothing."""

    def __init__(self, observations: spaces.Space[Any], leaf: bytes) -> None:
        super().__init__(self._answer, declaring(observations, spaces.MultiBinary(2)), subset_step=True)
        self.leaf = leaf

    async def _answer(self, request: ResetRequest | StepTarget) -> EnvReply:
        reply = ok(steps=isinstance(request, StepTarget))
        reply.observation = [self.leaf]
        return reply
