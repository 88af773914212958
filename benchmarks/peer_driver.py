"""The peer's side: run each job of stdin with rlmesh's own driver and say what it took."""

# ruff: noqa: ARG002 - the signatures are the library's

import os
from typing import Any

import attrs
import numpy as np
import rlmesh
import rlmesh.numpy
from numpy.typing import NDArray

from benchmarks.jobs import Job, Sample, answer_lines
from benchmarks.timing import Forwards, Stopwatch

ACTION = np.zeros(2, np.float32)


class IdleModel(rlmesh.numpy.Model[Any, Any]):
    """Decides nothing, as slowly as asked."""

    def __init__(self, forwards: Forwards) -> None:
        self.forwards = forwards
        super().__init__()


class SingleModel(IdleModel):
    def predict(self, observation: Any) -> NDArray[np.float32]:
        self.forwards.think()
        return ACTION


class BatchedModel(IdleModel):
    def predict_batch(self, observations: Any) -> NDArray[np.float32]:
        self.forwards.think()
        return np.zeros((len(observations), 2), np.float32)


class EveryHook(rlmesh.RunHooks):
    """All of the peer's hooks, each doing as little as ours do."""

    def __init__(self) -> None:
        self.seen = 0

    def on_run_start(self, context: Any) -> None:
        self.seen += 1

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.seen += 1

    def on_step(self, event: Any) -> None:
        self.seen += 1

    def on_episode_end(self, result: Any) -> None:
        self.seen += 1

    def on_run_end(self, result: Any) -> None:
        self.seen += 1


def drive(model: IdleModel, job: Job) -> int:
    """Run *job* and return the lane steps taken."""
    if job.mode == "stream":
        return stream(model, job)
    hooks = EveryHook() if job.mode == "hooks" else None
    result = model.run(job.address, episodes=job.episodes, hooks=hooks, max_episode_steps=job.step_cap)
    return result.total_steps


def stream(model: IdleModel, job: Job) -> int:
    """Step by step in the caller's hands: the peer's only way to hand out what happens as it happens."""
    steps = 0
    with model.session(job.address) as session:
        for _ in range(job.episodes):
            observation, _info = session.reset()
            while not session.done:
                observation, *_rest = session.step(session.predict(observation))
                steps += 1
    return steps


def measure(job: Job) -> Sample:
    forwards = Forwards(job.pause)
    model = BatchedModel(forwards) if job.batched else SingleModel(forwards)
    stopwatch = Stopwatch()
    return stopwatch.sample(drive(model, job), forwards)


if __name__ == "__main__":
    os.environ.setdefault("RLMESH_WORKFLOW_EDITION", "")
    answer_lines({}, lambda line: attrs.asdict(measure(Job(**line))))
