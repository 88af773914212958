"""Our side: run each job of stdin with the engine, through its public API, and say what it took.

The policy runs where such a one belongs: inline when it answers at once, in a thread when it blocks.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import numpy as np
import trio
from numpy.typing import NDArray

from benchmarks.jobs import Job, Mode, Sample, answer_lines
from benchmarks.listeners import EveryHook
from benchmarks.schedulers import make_scheduler
from benchmarks.timing import Forwards, Stopwatch
from rlmesh_trio import Hooks, Report, Session, SessionSpec, connect_env, open_local_model, open_session, run_session
from rlmesh_trio.observers import HookGroup, JournalHooks
from rlmesh_trio.recording import Recorder, header_of


async def measure(job: Job) -> Sample:
    forwards = Forwards(job.pause)

    def policy(observations: NDArray[Any]) -> NDArray[np.float32]:
        forwards.think()
        return np.zeros((len(observations), 2), np.float32)

    async with open_local_model(policy, where="thread" if job.pause else "inline") as model:
        stopwatch = Stopwatch()
        async with connect_env(job.address) as env:
            spec = SessionSpec.for_env(env, max_episodes=job.episodes)
            await model.resolve(spec)
            if job.mode == "stream":
                async with open_session(spec, env, model) as session:
                    report = await follow(session)
            elif job.mode.startswith("record "):
                with TemporaryDirectory() as folder:
                    recorder = Recorder(Path(folder, "run.mcap"), header_of(spec, env, model), job.mode.split()[1])
                    with recorder:
                        report = await run_session(
                            spec, recorder.wrap(env), recorder.wrap_model(model), hooks=recorder.hooks
                        )
            else:
                scheduler = make_scheduler(job.scheduler, spec.num_envs)
                with listening(job.mode, spec) as hooks:
                    report = await run_session(spec, env, model, hooks=hooks, scheduler=scheduler)
        return stopwatch.sample(sum(episode.step_count for episode in report.episodes), forwards)


@contextmanager
def listening(mode: Mode, spec: SessionSpec) -> Generator[Hooks | None]:
    """Who listens in *mode*: nobody, everything, or everything and a journal."""
    match mode:
        case "hooks":
            yield EveryHook()
        case "journal":
            with TemporaryDirectory() as folder, JournalHooks(Path(folder, "run.jsonl"), spec) as journal:
                yield HookGroup(journal, EveryHook())
        case _:
            yield None


async def follow(session: Session) -> Report:
    seen = 0
    async for _event in session.events():
        seen += 1
    return session.report


if __name__ == "__main__":
    answer_lines({}, lambda line: attrs.asdict(trio.run(measure, Job(**line))))
