"""The toy environments the env peer serves: every value they show follows from lane, step, seed and action."""

import os
import time
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, cast, get_args

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ("TOYS", "Arm", "Counter", "Fault", "FaultKind", "Image", "Kitchen", "Pair", "Point", "Toy")

FaultKind = Literal["none", "raise", "hang", "exit", "nan", "shape", "range"]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)
IMAGE_SHAPE = (84, 84, 3)
ANY_LANE = -1


@attrs.define
class Fault:
    """What goes wrong, at which step of an episode and on which lane; shared by the lanes of one server."""

    kind: FaultKind = "none"
    step: int = 2
    lane: int = ANY_LANE
    once: bool = False
    _spent: bool = attrs.field(default=False, init=False)

    def due(self, step: int, lane: int) -> FaultKind:
        """The fault that hits *lane* at *step*, or ``"none"``."""
        if step != self.step or self.lane not in (ANY_LANE, lane) or (self.once and self._spent):
            return "none"
        self._spent = True
        return self.kind


class Toy(gymnasium.Env[Any, Any]):
    """A fixed-length episode; subclasses say what is seen, what an action does and what it earns."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - gymnasium's own declaration

    def __init__(self, lane: int, length: int, pause: float, fault: Fault, render_mode: str | None) -> None:
        self.lane = lane
        self.length = length
        self.pause = pause
        self.fault = fault
        self.render_mode = render_mode
        self.clock = 0

    def observe(self) -> Any:
        raise NotImplementedError

    def restart(self, seed: int | None) -> None:
        """Forget the last episode."""

    def act(self, action: Any) -> float:
        """Take *action* and return its reward."""
        raise NotImplementedError

    def reset_info(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def step_info(self) -> dict[str, Any]:
        return {}

    def spoil(self, observation: Any, fault: FaultKind) -> Any:
        """The observation with an observation fault in it, for toys that know one."""
        return observation

    @property
    def ends_terminated(self) -> bool:
        return True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.clock = 0
        self.restart(seed)
        return self.observe(), self.reset_info(options or {})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.clock += 1
        if self.pause:
            time.sleep(self.pause)
        fault = self.fault.due(self.clock, self.lane)
        if fault in ("raise", "hang", "exit"):
            break_down(fault)
        reward = self.act(action)
        over = self.clock >= self.length
        terminated = over and self.ends_terminated
        return self.spoil(self.observe(), fault), reward, terminated, over and not terminated, self.step_info()

    def render(self) -> Any:
        """A 4x6 picture whose red channel is the step."""
        picture = np.zeros((4, 6, 3), np.uint8)
        picture[:, :, 0] = self.clock
        return picture


def break_down(fault: str) -> NoReturn:
    if fault == "exit":
        os._exit(17)
    if fault == "hang":
        time.sleep(24 * 3600)
    raise RuntimeError("the toy failed on purpose in a step")


class Counter(Toy):
    """Shows [step, seed, last action], -1 for what is absent; earns 1 + action/10; odd lanes end truncated."""

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def restart(self, seed: int | None) -> None:
        self.seed_seen = -1 if seed is None else seed
        self.last_action = -1

    def reset_info(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if options.get("raise"):
            raise RuntimeError("the toy failed on purpose in a reset")
        return {"lane": self.lane, "options": dict(options)} if options else {"lane": self.lane}

    def observe(self) -> NDArray[np.float32]:
        return np.array([self.clock, self.seed_seen, self.last_action], np.float32)

    def act(self, action: Any) -> float:
        self.last_action = int(action)
        return 1.0 + self.last_action / 10

    def step_info(self) -> dict[str, Any]:
        return {"t": self.clock}

    @property
    def ends_terminated(self) -> bool:
        return self.lane % 2 == 0

    def spoil(self, observation: NDArray[np.float32], fault: FaultKind) -> NDArray[np.float32]:
        if fault == "shape":
            return observation[:-1]
        if fault in ("nan", "range"):
            observation[0] = np.nan if fault == "nan" else 2e6
        return observation


KITCHEN_PAIR = spaces.Tuple(
    (spaces.Discrete(7, start=-3), spaces.Box(np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64))
)
KITCHEN_ALPHA: dict[str, spaces.Space[Any]] = {"bits": spaces.MultiBinary(4), "pair": KITCHEN_PAIR}
KITCHEN_OBSERVATION: dict[str, spaces.Space[Any]] = {
    "alpha": spaces.Dict(KITCHEN_ALPHA),
    "free": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "multi": spaces.MultiDiscrete([3, 5, 9]),
    "say": spaces.Text(max_length=32),
    "zeta": spaces.Box(0, 255, (2, 3), np.uint8),
}


class Kitchen(Toy):
    """Nests every kind of space; the last action and the step show in the leaves; earns the sum of the move."""

    observation_space = spaces.Dict(KITCHEN_OBSERVATION)
    action_space = spaces.Dict({"move": spaces.Box(-1.0, 1.0, (2,), np.float32), "pick": spaces.Discrete(4)})

    def restart(self, seed: int | None) -> None:
        self.move = np.zeros(2, np.float32)
        self.pick = 0

    def observe(self) -> dict[str, Any]:
        step = self.clock
        ramp = np.arange(6, dtype=np.uint8).reshape(2, 3)
        return {
            "alpha": {
                "bits": np.array([1, 0, step % 2, 1], np.int8),
                "pair": (np.int64(step % 7 - 3), np.array([step % 4 / 4, -0.5])),
            },
            "free": self.move.copy(),
            "multi": np.array([step % 3, self.pick, 8]),
            "say": f"lane {self.lane} step {step}",
            "zeta": ramp + np.uint8(step + 10 * self.lane),
        }

    def reset_info(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "arr": np.arange(3),
            "list": [1, "two", 3.0],
            "n": 7,
            "name": "kitchen",
            "nested": {"a": {"b": 1}},
            "none": None,
            "ok": True,
            "raw": b"\x00\x01",
            "x": 0.5,
        }

    def act(self, action: Any) -> float:
        chosen = cast("Mapping[str, Any]", action)
        self.move = np.asarray(chosen["move"], np.float32)
        self.pick = int(chosen["pick"])
        return float(self.move.sum())


class Arm(Toy):
    """A camera whose every cell is the step, and two joints that go where the action says; earns 1."""

    observation_space = spaces.Dict(
        {"cam": spaces.Box(0, 255, (4, 4, 3), np.uint8), "joints": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    )
    action_space = spaces.Box(-10.0, 10.0, (2,), np.float32)

    def restart(self, seed: int | None) -> None:
        self.joints = np.zeros(2, np.float32)

    def observe(self) -> dict[str, Any]:
        return {"cam": np.full((4, 4, 3), self.clock % 256, np.uint8), "joints": self.joints.copy()}

    def act(self, action: Any) -> float:
        self.joints = np.asarray(action, np.float32)
        return 1.0


class Image(Toy):
    """A picture no two of whose neighbours agree, shifted by step and lane; earns 1 + action/10."""

    observation_space = spaces.Box(0, 255, IMAGE_SHAPE, np.uint8)
    action_space = spaces.Discrete(3)

    def observe(self) -> NDArray[np.uint8]:
        return picture(self.clock, self.lane)

    def act(self, action: Any) -> float:
        return 1.0 + int(action) / 10


def picture(step: int, lane: int) -> NDArray[np.uint8]:
    """What :class:`Image` shows at *step* of *lane*: (84, 84, 3) uint8."""
    cells = np.arange(np.prod(IMAGE_SHAPE)).reshape(IMAGE_SHAPE)
    return ((cells + 7 * step + 31 * lane) % 251).astype(np.uint8)


class Point(Toy):
    """One number without an axis, the step; earns 1."""

    observation_space = spaces.Box(-1e6, 1e6, (), np.float32)
    action_space = spaces.Discrete(3)

    def observe(self) -> NDArray[np.float32]:
        return np.array(self.clock, np.float32)

    def act(self, action: Any) -> float:
        return 1.0


class Pair(Point):
    """The step twice, as a Tuple of two numbers; earns 1."""

    observation_space = spaces.Tuple([spaces.Discrete(1000), spaces.Box(-1e6, 1e6, (1,), np.float32)])

    def observe(self) -> Any:
        return self.clock, np.array([self.clock], np.float32)


TOYS: dict[str, type[Toy]] = {
    "counter": Counter,
    "kitchen": Kitchen,
    "arm": Arm,
    "image": Image,
    "point": Point,
    "pair": Pair,
}
