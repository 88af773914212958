"""Small envs for the local endpoints, importable by name so that worker processes can make them too."""

import os
import signal
import sys
import threading
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Vector = npt.NDArray[np.float32]

ALL_KINDS = spaces.Dict(
    {
        "box": spaces.Box(-1.0, 1.0, (2, 3), np.float64),
        "discrete": spaces.Discrete(4, start=-2),
        "binary": spaces.MultiBinary(3),
        "multi": spaces.MultiDiscrete([2, 5]),
        "nested": spaces.Tuple((spaces.Text(6, min_length=2), spaces.Box(0, 255, (4,), np.uint8))),
    }
)


class Counter(gymnasium.Env[Vector, np.int64]):
    """Observes (steps taken, last action, lane); every episode has ``length`` steps and reward 1 + lane a step."""

    observation_space: spaces.Space[Any] = spaces.Box(-1e6, 1e6, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def __init__(self, length: int = 3, lane: int = 0, truncates: bool = False) -> None:
        self.length, self.lane, self.truncates = length, lane, truncates
        self.resets: list[tuple[int | None, dict[str, Any] | None]] = []
        self.actions: list[Any] = []
        self.closed = 0
        self.thread = threading.get_ident()
        self.threads: set[int] = set()
        self.t = 0

    def observe(self, action: float = -1) -> Vector:
        return np.array([self.t, action, self.lane], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self.threads.add(threading.get_ident())
        self.t = 0
        return self.observe(), {"lane": self.lane}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.threads.add(threading.get_ident())
        self.t += 1
        ended = self.t >= self.length
        infos = {"t": self.t, "pid": os.getpid()}
        return (
            self.observe(float(action)),
            1.0 + self.lane,
            ended and not self.truncates,
            ended and self.truncates,
            infos,
        )

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1


class Script(Counter):
    """A counter whose behaviour is named by the step it is at: ``acts`` maps a step number to what goes wrong there."""

    def __init__(self, acts: dict[int, str], lane: int = 0) -> None:
        super().__init__(length=100, lane=lane)
        self.acts = acts
        self.released = threading.Event()

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = super().step(action)
        match self.acts.get(self.t):
            case "raise":
                raise RuntimeError("toy fault")
            case "nan":
                observation[1] = np.nan
            case "shape":
                observation = observation[:2]
            case "beyond":
                observation[1] = 2e6
            case "infos":
                return observation, reward, terminated, truncated, cast("dict[str, Any]", ["not", "a", "mapping"])
            case "hang":
                self.released.wait(60)
            case "exit":
                sys.exit(3)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "unpicklable":
                infos["lock"] = threading.Lock()
            case _:
                print("stepped")
        return observation, reward, terminated, truncated, infos


class Mirror(gymnasium.Env[Any, Any]):
    """Observes the action it got, over a space of every kind, and scribbles over what it was given."""

    observation_space: spaces.Space[Any] = ALL_KINDS
    action_space: spaces.Space[Any] = ALL_KINDS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        observation = {**action, "box": action["box"].copy()}
        action["box"][:] = 9.0
        return observation, 0.0, False, False, {}


class Clinging(Counter):
    """Will not close."""

    released = threading.Event()

    def close(self) -> None:
        self.released.wait(60)


def picture(number: int) -> npt.NDArray[np.uint8]:
    return (np.arange(300 * 300 * 3, dtype=np.int64) * number % 251).astype(np.uint8).reshape(300, 300, 3)


class Picture(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """Observes a picture of its seed, then of the last action."""

    observation_space: spaces.Space[Any] = spaces.Box(0, 255, (300, 300, 3), np.uint8)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        return picture(seed or 0), {}

    def step(self, action: np.int64) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        return picture(int(action)), 0.0, False, False, {}


def sleeper() -> Counter:
    threading.Event().wait(60)
    return Counter()


def counter(lane: int) -> Counter:
    return Counter(length=3 + lane, lane=lane)


def faulty(lane: int) -> Script:
    acts = [{2: "raise"}, {2: "hang"}, {2: "die"}, {2: "exit"}]
    return Script(acts[lane], lane)


def chatty() -> Script:
    return Script({2: "unpicklable", 3: "beyond"})


def broken() -> Counter:
    raise ValueError("no such simulator\nand more lines")


def not_an_env() -> dict[str, int]:
    return {"an": 1}


def dies() -> Counter:
    os._exit(7)


def vector(count: int = 3, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    """Lane i has episodes of 2 + i steps."""
    return SyncVectorEnv(
        [lambda lane=lane: Counter(length=2 + lane, lane=lane) for lane in range(count)], autoreset_mode=mode
    )


ready_env = Counter()
a_number = 7
