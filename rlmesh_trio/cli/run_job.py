"""One run from the command line: what was asked, and how it ended."""

import logging
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import click
import trio

from rlmesh_trio.cli.complaints import noted_failure
from rlmesh_trio.cli.exit_status import FAILED, INTERRUPTED, NOT_STARTED
from rlmesh_trio.cli.interruption import Interruption, watch_signals
from rlmesh_trio.cli.places import RECONNECT_LIMIT, limits_of, open_env, open_model
from rlmesh_trio.cli.progress import Progress, draw_progress
from rlmesh_trio.endpoints.local_env import Where
from rlmesh_trio.one_call import Run, RunnableEnv, open_run
from rlmesh_trio.recording.repeatability import why_not_repeatable
from rlmesh_trio.recording.wanted import Record
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.spec import EnvContract, Limits
from rlmesh_trio.transport.address import is_address

__all__ = ("Outcome", "RunJob", "run_job")

logger = logging.getLogger("rlmesh_trio")

_DEFAULT_EPISODES = 10


@attrs.frozen
class RunJob:
    """The options of ``rlmesh-trio run`` that say what to run. Raises :exc:`click.UsageError` when they clash."""

    env: str
    model: str
    token: str | None = attrs.field(repr=False)
    episodes: int | None
    lanes: int | None
    where: Where | None
    seed: int | None
    seeds: tuple[int, ...] | None
    session_id: str
    horizon: int
    prefetch: int
    max_steps: int | None
    max_seconds: float | None
    step_timeout: float | None
    reset_timeout: float | None
    predict_timeout: float | None
    on_env_error: Recovery
    on_timeout: Recovery
    journal: str | None
    resume: str | None
    partial_reset: bool
    close_env: bool
    merge_rows: bool
    record: str | None
    record_level: str
    ignored_leaves: tuple[str, ...]
    ignored_infos: tuple[str, ...]
    tolerances: tuple[str, ...]
    fixed_batch: bool
    seed_every_episode: bool

    def __attrs_post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.seed is not None and self.seeds is not None:
            raise click.UsageError("--seed and --seeds exclude each other: one derives the seeds, the other lists them")
        if self.seeds is not None and self.episodes is not None and len(self.seeds) < self.episodes:
            raise click.UsageError(
                f"--seeds lists {len(self.seeds)} seeds for {self.episodes} episodes: list one for each, or leave "
                "--episodes out"
            )
        if self.on_timeout.action == "retry" and not is_address(self.env):
            raise click.UsageError(
                "--on-timeout retry is for a server: an env of this process cannot be reset while it hangs; use "
                "quarantine, and --lanes"
            )
        if self.where == "inline" and self._bounded:
            raise click.UsageError(
                "--where inline cannot be had with --on-timeout, --step-timeout or --reset-timeout: an env that runs "
                "inline is not left when it hangs; use thread or process"
            )
        if self.record is None:
            unused = {
                "--record-level": self.record_level != "digest",
                "--ignore-leaf": self.ignored_leaves,
                "--ignore-info": self.ignored_infos,
                "--tol": self.tolerances,
            }
            for option in (option for option, given in unused.items() if given):
                raise click.UsageError(f"{option} says what is in a recording: give --record FILE as well")

    @property
    def recording(self) -> Record | None:
        """The recording that is to be written."""
        if self.record is None:
            return None
        return Record(
            self.record, self.record_level, self.ignored_leaves, self.ignored_infos, " ".join(self.tolerances)
        )

    @property
    def asked(self) -> int:
        """How many episodes to run."""
        return self.episodes or len(self.seeds or ()) or _DEFAULT_EPISODES

    @property
    def limits(self) -> Limits:
        """The default limits, but for those given; a server is not waited for as long as in a library."""
        return limits_of(step=self.step_timeout, reset=self.reset_timeout, predict=self.predict_timeout)

    @property
    def lanes_needed(self) -> int | None:
        """As many lanes as were asked for, but none that would have no episode to play."""
        return None if self.lanes is None else min(self.lanes, self.asked)

    @property
    def _bounded(self) -> bool:
        """Whether a limit on steps or resets is given, or matters."""
        return self.step_timeout is not None or self.reset_timeout is not None or self.on_timeout.action != "fail"

    def open_env(self) -> AbstractAsyncContextManager[RunnableEnv]:
        """The env; a limit on its steps or resets that is given, or matters, is also kept when the env runs here."""
        return open_env(
            self.env,
            token=self.token,
            lanes=self.lanes_needed,
            bounded=self._bounded,
            limits=self.limits,
            where=self.where,
        )

    def spec_fields(self) -> dict[str, Any]:
        """What the session's spec takes from the options."""
        return {
            "max_episodes": self.asked,
            "base_seed": self.seed,
            "episode_seeds": self.seeds or (),
            "session_id": self.session_id,
            "max_episode_steps": self.max_steps,
            "max_episode_seconds": self.max_seconds,
            "close_env_on_end": self.close_env,
            "partial_reset": self.partial_reset,
            "on_env_error": self.on_env_error,
            "on_timeout": self.on_timeout,
            "limits": attrs.evolve(self.limits, env_connect_timeout=RECONNECT_LIMIT),
            "seed_every_episode": self.seed_every_episode,
        } | ({"model_component_id": self.model} if is_address(self.model) else {})


@attrs.define
class Outcome:
    """How a run ended. Without a ``run`` nothing was started; ``error`` is what failed it.

    ``env_name`` is what the user called the env, with its own id where that says more; ``lanes`` its width.
    """

    run: Run | None = None
    wall_seconds: float = 0.0
    error: Exception | None = None
    interrupted: bool = False
    env_name: str = ""
    lanes: int = 1

    @property
    def status(self) -> int:
        """The exit status."""
        if self.interrupted:
            return INTERRUPTED
        if self.run is None:
            return NOT_STARTED
        return FAILED if self.error is not None or self.lacks_lines or self.lacks_recording else 0

    @property
    def lacks_lines(self) -> bool:
        """Whether the journal could not be written in full."""
        return self.run is not None and self.run.journal is not None and self.run.journal.failure is not None

    @property
    def lacks_recording(self) -> bool:
        """Whether the recording could not be written in full."""
        return self.run is not None and self.run.recorder is not None and self.run.recorder.failure is not None


async def run_job(job: RunJob, *, show_progress: bool) -> Outcome:
    """Run *job* to its end, or to the first signal's orderly one."""
    env = job.open_env()
    interruption = Interruption()
    progress = Progress(job.env, job.asked) if show_progress else None
    async with trio.open_nursery() as helpers:
        await helpers.start(watch_signals, interruption)
        if progress is not None:
            helpers.start_soon(draw_progress, progress, sys.stderr)
        outcome = await _attempt(job, env, interruption, progress)
        helpers.cancel_scope.cancel(reason="the run is over")
    return outcome


async def _attempt(
    job: RunJob, env: AbstractAsyncContextManager[RunnableEnv], interruption: Interruption, progress: Progress | None
) -> Outcome:
    outcome = Outcome()
    with noted_failure(outcome), interruption.scope:
        async with open_run(
            _noted(env, job.env, outcome, progress),
            open_model(
                job.model,
                bounded=job.predict_timeout is not None,
                merge_rows=job.merge_rows,
                fixed_batch=job.fixed_batch,
                limits=job.limits,
            ),
            execution_horizon=job.horizon,
            prefetch_lead=job.prefetch,
            journal=job.journal,
            resume=job.resume,
            record=job.recording,
            hooks=progress,
            **job.spec_fields(),
        ) as run:
            outcome.run, interruption.session = run, run.session
            if run.recorder is not None:
                for why in why_not_repeatable(run.recorder.header):
                    logger.warning("this run need not repeat: %s", why)
            if progress is not None:
                progress.resume(run.spec.finished)
            started = time.perf_counter()
            try:
                await run.wait()
            finally:
                outcome.wall_seconds = time.perf_counter() - started
    outcome.interrupted = interruption.happened and (outcome.run is None or outcome.error is not None)
    return outcome


@asynccontextmanager
async def _noted(
    env: AbstractAsyncContextManager[RunnableEnv], name: str, outcome: Outcome, progress: Progress | None
) -> AsyncGenerator[RunnableEnv]:
    """*env*, its name and width noted once it is open."""
    async with env as opened:
        own_id = opened.contract.env_id
        outcome.env_name = name if own_id in (name, EnvContract().env_id) else f"{name} ({own_id})"
        outcome.lanes = opened.contract.num_envs
        if progress is not None and not opened.subset_step:
            progress.lanes_per_step = outcome.lanes
        yield opened
