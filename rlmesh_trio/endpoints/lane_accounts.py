"""How an env in this process accounts its episodes: who is running, for how long, and what is due to be reported.

A reset over a running episode ends it as truncated; that record waits for the next step of any lane. Under
``NEXT_STEP`` the step after a completion is a *roll*: it begins an episode and counts for none. Under ``SAME_STEP``
that step is already the new episode's first, and tells its id.
"""

import time
from collections.abc import Callable, Sequence

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EpisodeRecord, Metadata
from rlmesh_trio.spec import AutoresetMode

__all__ = ("EpisodeAccounts", "InfosOf", "fanned_infos")

InfosOf = Callable[[int], Metadata]


class EpisodeAccounts:
    """The open episode of every lane; *mode*, an ``AutoresetMode``, says whether finished lanes restart themselves."""

    def __init__(self, lanes: int, mode: int) -> None:
        self._open: list[EpisodeRecord | None] = [None] * lanes
        self._rolling = [False] * lanes
        self._restarts = mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
        self._rolls = mode == AutoresetMode.NEXT_STEP
        self._interrupted: list[EpisodeRecord] = []

    def start(self, lanes: Sequence[int], seeds: Sequence[int], episode_ids: Sequence[str]) -> None:
        """Open an episode on each of *lanes*; ``seeds`` and ``episode_ids`` are aligned to them, or too short."""
        now = time.time_ns()
        for position, lane in enumerate(lanes):
            self._interrupt(lane, now)
            self._rolling[lane] = False
            self._open[lane] = EpisodeRecord(
                episode_id=episode_ids[position] if position < len(episode_ids) else "",
                seed=seeds[position] if position < len(seeds) else None,
                env_index=lane,
                start_timestamp_ns=now,
            )

    def finish(self) -> Sequence[EpisodeRecord]:
        """End all that runs as truncated; returns every record that is still due."""
        now = time.time_ns()
        for lane in range(len(self._open)):
            self._interrupt(lane, now)
            self._open[lane] = None
        due, self._interrupted = self._interrupted, []
        return due

    def _interrupt(self, lane: int, now: int) -> None:
        running = self._open[lane]
        if running is not None:
            running.truncated = True
            running.end_timestamp_ns = now
            self._interrupted.append(running)

    def expect_steppable(self, lanes: Sequence[int]) -> None:
        """Under ``NEXT_STEP`` every lane has an episode or is about to roll; else ``INTERNAL``."""
        if not self._rolls:
            return
        for lane in lanes:
            if self._open[lane] is None and not self._rolling[lane]:
                raise EndpointError("INTERNAL", f"lane {lane} was stepped before it was reset")

    def step(
        self,
        lanes: Sequence[int],
        episode_ids: Sequence[str],
        rewards: Sequence[float],
        terminated: bytes,
        truncated: bytes,
        infos_of: InfosOf,
    ) -> Sequence[EpisodeRecord]:
        """Account one step of *lanes*; the other arguments are aligned to them, ``infos_of`` takes the position.

        Returns the records due: interrupted episodes first, then those this step finished.
        """
        completed: list[EpisodeRecord] = []
        if self._interrupted:
            completed, self._interrupted = self._interrupted, []
        for position, lane in enumerate(lanes):
            if self._rolling[lane]:
                self.start((lane,), (), episode_ids[position : position + 1])
                if self._rolls:
                    continue
            episode = self._open[lane]
            if episode is None:
                continue
            episode.step_count += 1
            episode.cumulative_reward += rewards[position]
            if terminated[position] or truncated[position]:
                episode.terminated = bool(terminated[position])
                episode.truncated = bool(truncated[position])
                episode.end_timestamp_ns = time.time_ns()
                episode.final_info = infos_of(position)
                completed.append(episode)
                self._open[lane] = None
                self._rolling[lane] = self._restarts
        return completed


def fanned_infos(infos: Sequence[Metadata], told: Sequence[bool]) -> Metadata:
    """The infos of several lanes in one: each lane's own as ``final_info``, and which are *told* beside it."""
    return {"final_info": list(infos), "_final_info": list(told)}
