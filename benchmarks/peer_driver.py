"""The peer's side: run each job of stdin with rlmesh's own driver and say what it took."""

# ruff: noqa: ARG002 - the signatures are the library's

import os
import resource
import time
from typing import Any

import attrs
import numpy as np
import rlmesh
import rlmesh.numpy
from numpy.typing import NDArray

from benchmarks.jobs import Job, Sample, answer_lines

ACTION = np.zeros(2, np.float32)


class Timed(rlmesh.numpy.Model[Any, Any]):
    """A model that decides nothing, as slowly as asked."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.forwards = 0
        self.forward_seconds = 0.0
        super().__init__()

    def think(self) -> None:
        self.forwards += 1
        if self.pause:
            before = time.perf_counter()
            time.sleep(self.pause)
            self.forward_seconds += time.perf_counter() - before


class SingleModel(Timed):
    def predict(self, observation: Any) -> NDArray[np.float32]:
        self.think()
        return ACTION


class BatchedModel(Timed):
    def predict_batch(self, observations: Any) -> NDArray[np.float32]:
        self.think()
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


def drive(model: Timed, job: Job) -> int:
    """Run *job* and return the lane steps taken."""
    if job.mode == "stream":
        return stream(model, job)
    hooks = EveryHook() if job.mode == "hooks" else None
    result = model.run(job.address, episodes=job.episodes, hooks=hooks, max_episode_steps=job.step_cap)
    return result.total_steps


def stream(model: Timed, job: Job) -> int:
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
    model = BatchedModel(job.pause) if job.batched else SingleModel(job.pause)
    cpu = cpu_seconds()
    before = time.perf_counter()
    steps = drive(model, job)
    seconds = time.perf_counter() - before
    return Sample(steps, seconds, cpu_seconds() - cpu, model.forwards, model.forward_seconds)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    os.environ.setdefault("RLMESH_WORKFLOW_EDITION", "")
    answer_lines({}, lambda line: attrs.asdict(measure(Job(**line))))
