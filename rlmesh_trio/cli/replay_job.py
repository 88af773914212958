"""One recording played again from the command line: what was asked, and how it ended."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import attrs
import click
import trio

from rlmesh_trio.cli.complaints import noted_failure
from rlmesh_trio.cli.exit_status import FAILED, INTERRUPTED, NOT_STARTED
from rlmesh_trio.cli.interruption import Interruption, watch_signals
from rlmesh_trio.cli.places import limits_of, open_env, open_model
from rlmesh_trio.cli.progress import draw_progress
from rlmesh_trio.cli.replay_progress import ReplayProgress
from rlmesh_trio.one_call import RunnableEnv
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.replay.judging import Judgement, Wanted, judge, mode_of
from rlmesh_trio.replay.live import Live, OpenEnv
from rlmesh_trio.replay.plays import Plays
from rlmesh_trio.replay.tolerance import parse_tolerance
from rlmesh_trio.spec import Limits
from rlmesh_trio.transport.address import is_address

__all__ = ("Outcome", "ReplayJob", "replay_job")


@attrs.frozen(kw_only=True)
class ReplayJob:
    """The options of ``rlmesh-trio replay FILE``. Raises :exc:`click.UsageError` when they clash."""

    env: str | None
    model: str | None
    token: str | None = attrs.field(repr=False)
    episodes: tuple[int, ...]
    until: int | None
    level: str | None
    lanes: int | None
    runs: int
    blame: bool
    bisect: bool
    tolerances: tuple[str, ...]
    ignored: tuple[str, ...]
    stats: bool
    force: bool
    record: str | None
    merge_rows: bool
    fixed_batch: bool
    step_timeout: float | None
    reset_timeout: float | None
    predict_timeout: float | None

    def __attrs_post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.until is not None and (self.env is None or self.model is not None):
            raise click.UsageError("--until is for recorded actions in a live ENV: leave --model out")
        if self.blame and (self.env is None or self.model is None):
            raise click.UsageError("--blame needs ENV and --model M: it plays each of them with the other recorded")
        if self.stats and (self.tolerances or self.ignored or self.until is not None):
            raise click.UsageError("--stats compares no values: leave --tol, --ignore and --until out")
        if self.lanes is not None and (self.env is None or is_address(self.env)):
            raise click.UsageError("--lanes is for an ENV that is started here: a server has its own width")
        if self.model is None and (self.merge_rows or self.fixed_batch):
            raise click.UsageError("--merge-rows and --fixed-batch say how a model is asked: give --model M as well")
        if self.record is not None and os.path.lexists(self.record):
            raise click.UsageError(f"--record: {self.record} is there already, name another file")

    @property
    def limits(self) -> Limits:
        """The default limits, but for those given; a server is not waited for as long as in a library."""
        return limits_of(step=self.step_timeout, reset=self.reset_timeout, predict=self.predict_timeout)

    @property
    def wanted(self) -> Wanted:
        """What is to be found out."""
        return Wanted(
            episodes=self.episodes or None,
            until=self.until,
            runs=self.runs,
            blame=self.blame,
            bisect=self.bisect,
            returns=self.stats,
        )

    def live(self, ended: Callable[[], None]) -> Live:
        """What is live; *ended* is called after each episode."""
        model = None
        if self.model is not None:
            model = partial(
                open_model,
                self.model,
                bounded=self.predict_timeout is not None,
                merge_rows=self.merge_rows,
                fixed_batch=self.fixed_batch,
                limits=self.limits,
            )
        return Live(env=self._open_env(), model=model, limits=self.limits, ended=ended)

    def _open_env(self) -> OpenEnv | None:
        name = self.env
        if name is None:
            return None
        bounded = self.step_timeout is not None or self.reset_timeout is not None

        def opened(wanted: int | None) -> AbstractAsyncContextManager[RunnableEnv]:
            lanes = None if is_address(name) else wanted or self.lanes
            return open_env(name, token=self.token, lanes=lanes, bounded=bounded, limits=self.limits)

        return opened

    def plays(self, recording: Recording, live: Live, folder: str) -> Plays:
        """The plays of *recording* with what is *live*."""
        return Plays(
            recording=recording,
            live=live,
            folder=folder,
            keep=self.record,
            tolerance=parse_tolerance(self.tolerances) if self.tolerances else None,
            ignored=self.ignored,
            level=self.level,
            lanes=self.lanes,
            force=self.force,
        )


@attrs.define
class Outcome:
    """How it ended: what was found out, and ``error``, which kept it from its end."""

    judgement: Judgement
    error: Exception | None = None
    interrupted: bool = False

    @property
    def status(self) -> int:
        """The exit status: 0 equal, 1 a difference, 2 nothing was compared, 130 interrupted."""
        found = self.judgement
        if self.interrupted:
            return INTERRUPTED
        if found.returns is not None:
            if not found.returns.pairs:
                return NOT_STARTED
            return FAILED if found.returns.differs else 0
        if found.comparison is None or not (found.comparison.compared or found.comparison.contract):
            return NOT_STARTED
        is_random = found.model is not None and found.model.verdict == "random"
        return FAILED if self.error is not None or not found.comparison.equal or is_random else 0


async def replay_job(job: ReplayJob, recording: Recording, *, show_progress: bool) -> Outcome:
    """Play *recording* as *job* says, to the end or to the first signal's orderly one."""
    progress = ReplayProgress(len(job.episodes) or len(recording.entries))
    live = job.live(progress.ended)
    outcome = Outcome(Judgement(mode=mode_of(live)))
    interruption = Interruption()
    async with trio.open_nursery() as helpers:
        await helpers.start(watch_signals, interruption)
        if show_progress:
            helpers.start_soon(draw_progress, progress, sys.stderr)
        with tempfile.TemporaryDirectory(prefix="rlmesh-trio-replay-") as folder:
            interruption.folder = folder
            plays = job.plays(recording, live, folder)
            # What an env or a policy prints does not belong between what is found.
            with noted_failure(outcome), interruption.scope, contextlib.redirect_stdout(sys.stderr):
                await judge(plays, job.wanted, outcome.judgement, entering=progress.enter)
            outcome.interrupted = interruption.happened
            if plays.interrupted is not None and outcome.judgement.played is None:
                outcome.judgement.take(plays.interrupted)
        helpers.cancel_scope.cancel(reason="all is played")
    played = outcome.judgement.played
    if outcome.error is None and played is not None:
        outcome.error = played.failure
    return outcome
