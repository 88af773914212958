"""Drive env servers with rlmesh's own clients and driver, and print what was seen as JSON, a line for each server.

``python -m tests.serve.real_client (one|many) ADDRESS …``: one env, or several of them.
"""

import json
import os
import sys
from typing import Any, cast

import numpy as np

os.environ.setdefault("RLMESH_WORKFLOW_EDITION", "")

import rlmesh.numpy

EPISODES = 6


class Rows(rlmesh.numpy.Model[Any, Any]):
    """Does the same in every lane."""

    def predict_batch(self, observations: Any) -> Any:
        return np.ones(len(observations), np.int64)


class Same(rlmesh.numpy.Model[Any, Any]):
    """Does the same at every step."""

    def predict(self, observation: Any) -> Any:
        return MOVE


MOVE = {"move": np.array([0.5, -0.5], np.float32), "pick": 2}


def plain(value: Any) -> Any:
    """*value* as JSON has it, without the ids that differ at each run."""
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {key: plain(part) for key, part in sorted(parts.items()) if key != "episode_ids"}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in cast("list[Any]", value)]
    if isinstance(value, (np.ndarray, np.generic)):
        return cast("Any", value).tolist()
    return value.hex() if isinstance(value, bytes) else value


def one(address: str) -> list[Any]:
    """One env, step by step, then by the driver."""
    env: Any = rlmesh.numpy.RemoteEnv(address)
    seen: list[Any] = [str(env.observation_space), str(env.action_space), env.reset(seed=3)]
    for _ in range(4):
        seen.append(env.step(MOVE))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset(seed=4, options={"hint": 3}))
    seen.append(env.render())
    env.close()
    result = Same().run(address, episodes=EPISODES)
    return [*seen, len(result.episodes), result.mean_reward, result.total_steps]


def many(address: str) -> list[Any]:
    """A vector or lanes, step by step, then by the driver."""
    env: Any = rlmesh.numpy.RemoteVectorEnv(address)
    rows = env.num_envs
    seen: list[Any] = [rows, env.reset(seed=list(range(rows)))]
    seen += [env.step(np.ones(rows, np.int64)) for _ in range(5)]
    env.close()
    result = Rows().run(address, episodes=EPISODES)
    return [*seen, len(result.episodes), result.mean_reward, result.total_steps]


if __name__ == "__main__":
    for kind, address in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(json.dumps(plain(one(address) if kind == "one" else many(address))))
