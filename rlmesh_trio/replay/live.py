"""What is live while a recording is played again, and what every play checks before its first step.

Nothing is reset, and no file is begun, before the live side has proved to be what was recorded.
"""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs

from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.one_call import ResolvableModel, RunnableEnv
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.headers import header_of
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import Header
from rlmesh_trio.replay.contracts import header_differences
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.spec import Limits, SessionSpec

__all__ = (
    "Live",
    "OpenEnv",
    "OpenModel",
    "lanes_in_lockstep",
    "open_recorded_env",
    "ordinals_of",
    "other_width",
    "recorded_lanes",
    "refuse_own_file",
    "replay_header",
)

OpenEnv = Callable[[int | None], AbstractAsyncContextManager[RunnableEnv]]
OpenModel = Callable[[], AbstractAsyncContextManager[ResolvableModel]]


def _nobody() -> None:
    """Listens to nothing."""


@attrs.frozen(eq=False, kw_only=True)
class Live:
    """How the live side is opened, once for each play.

    ``env`` is called with the lanes that are wanted, ``None`` for the env's own width; an env that brings its own
    may have others. ``limits`` are how long each operation may take. ``ended`` is called when an episode of a play is
    over.
    """

    env: OpenEnv | None = None
    model: OpenModel | None = None
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    ended: Callable[[], None] = _nobody

    def env_for(self, what: str) -> OpenEnv:
        """How to open the env; raises :exc:`NotReplayable` when there is none for *what*."""
        if self.env is None:
            raise NotReplayable(f"{what} needs a live env: name one")
        return self.env

    def model_for(self, what: str) -> OpenModel:
        """How to open the model; raises :exc:`NotReplayable` when there is none for *what*."""
        if self.model is None:
            raise NotReplayable(f"{what} needs a live model: name one")
        return self.model


def lanes_in_lockstep(header: Header) -> int:
    """How many lanes of the recorded env moved together; 1 where each was driven by itself."""
    told = header.settings.get("lockstep_lanes")
    if isinstance(told, int):
        return told
    restarts = header.contract.autoreset_mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    return header.contract.num_envs if restarts else 1


def recorded_lanes(header: Header) -> int | None:
    """The lanes to ask a live env for, to have as many as were recorded; a vector brings its own."""
    return None if lanes_in_lockstep(header) > 1 else max(1, header.contract.num_envs)


def ordinals_of(recording: Recording, episodes: Sequence[int] | None) -> list[int]:
    """Which episodes to play, in order; by default all. Raises :exc:`NotReplayable` for one that is not recorded."""
    recorded = sorted(recording.entries)
    if episodes is None:
        return recorded
    for ordinal in episodes:
        if ordinal not in recording.entries:
            there = f"{recorded[0]} to {recorded[-1]}" if recorded else "none"
            raise NotReplayable(f"{recording.path} has no episode {ordinal}; it has {there}")
    return list(dict.fromkeys(episodes))


@asynccontextmanager
async def open_recorded_env(
    recording: Recording,
    open_env: OpenEnv,
    lanes: int | None,
    *,
    same_width: bool,
    force: bool,
) -> AsyncGenerator[RunnableEnv]:
    """Open the env for a play of *recording*.

    Raises :exc:`ContractChanged` when it is not the recorded one, unless *force*, and :exc:`NotReplayable` when it has
    to have the recorded width and has another; besides what opening raises.
    """
    async with open_env(lanes) as env:
        recorded, width = recording.header, env.contract.num_envs
        if same_width and width != recorded.contract.num_envs:
            raise NotReplayable(other_width(recorded, width))
        differences = header_differences(recorded, replay_header(recorded, env))
        if differences and not force:
            raise ContractChanged(differences)
        yield env


def other_width(recorded: Header, width: int) -> str:
    """Why a live env of *width* lanes cannot play a recording whose lanes count."""
    lanes = recorded.contract.num_envs
    return (
        f"it was recorded lane by lane on {lanes} lane{'s' * (lanes != 1)}, and plays on as many only, not on {width}"
    )


def replay_header(recorded: Header, env: RunnableEnv | None = None, model: object = None) -> Header:
    """The header of a play: which run it is of is *recorded*'s, where it runs is what is live."""
    spec = SessionSpec(env_contract=recorded.contract) if env is None else SessionSpec.for_env(env)
    here = header_of(spec, env, model)
    now = attrs.evolve(recorded, model_peer=here.model_peer, machine=here.machine)
    if env is None:
        return now
    return attrs.evolve(
        now,
        contract=here.contract,
        workflow_edition=here.workflow_edition if recorded.workflow_edition else "",
        env_address=here.env_address,
        env_peer=here.env_peer,
    )


def refuse_own_file(recording: Recording, out: str | os.PathLike[str]) -> None:
    """Raise :exc:`RecordingError` when *out* is the recording itself."""
    if os.path.exists(out) and os.path.samefile(out, recording.path):
        raise RecordingError(os.fspath(out), "it is the recording that is to be played; name another file for the play")
