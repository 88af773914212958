"""The lab of one target: sessions, how far plays are kept apart, and what happened in all of them.

A session serves many plays, each of which starts with a full reset. Where sessions were found not to keep plays apart,
each gets a session of its own, or a process. A session that is lost, or left in the middle of an answer, is opened
anew; a target that does not come back is given up.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Literal, TypeVar

import attrs
import trio

from rlmesh_trio.conformance.background import open_background
from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.player import EpisodeIds, improvise, play
from rlmesh_trio.conformance.raw_stream import RawStream, open_raw_stream
from rlmesh_trio.conformance.registry import WAS_RESET, Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Script
from rlmesh_trio.conformance.targets import OpenEnv, Target
from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.endpoints.loading import AnyEnv, env_makers
from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.errors import ConnectError, SessionError

__all__ = ("PATIENCE", "Isolation", "SeenLab", "TargetLab", "TargetLost", "open_lab")

T = TypeVar("T")
Isolation = Literal["shared", "session", "process"]

PATIENCE = 5.0
"""How long a target may take to offer its place again after a session was lost, in seconds."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_LEAST_PATIENCE = 0.5
_HANGS_FORGIVEN = 2
_OPS_ASKED = 10
_UNANSWERED = ("TIMEOUT", "CONNECTION")


class TargetLost(Exception):
    """The target is gone or hung, and could not be brought back."""


class _Session:
    """An open env, held open by a task of its own until ``leave`` is set; ``left`` says that it is closed."""

    def __init__(self, env: OpenEnv) -> None:
        self.env = env
        self.ids = EpisodeIds()
        self.leave = trio.Event()
        self.left = trio.Event()


class TargetLab:
    """One target at work: a ``Lab``. Made by :func:`open_lab`.

    ``isolation`` is how plays are kept apart from now on. ``on_trace`` is called with every trace from the target's
    server. ``other`` is the lab of the run's first target. ``last_script`` is the script played last.
    ``refused_resets`` counts the resets that were answered with an error.
    """

    def __init__(self, target: Target, facts: Facts, nursery: trio.Nursery, *, step_timeout: float) -> None:
        self._target = target
        self._facts = facts
        self._nursery = nursery
        self._step_timeout = step_timeout
        self._session: _Session | None = None
        self._leaving: _Session | None = None
        self._local: dict[int, _Session] = {}
        self._hangs = 0
        self._busy, self._answers = 0.0, 0
        self._last_loss = ""
        self._missing_since: float | None = None
        self._asked = math.inf
        self._climbed: dict[str, float] = {}
        self.isolation: Isolation = "shared"
        self.coverage = Coverage()
        self.refused_resets = 0
        self.last_script: Script | None = None
        self.other: TargetLab | None = None
        self.on_trace: Callable[[Trace], None] = lambda _: None

    @property
    def facts(self) -> Facts:
        """The target."""
        return self._facts

    @property
    def address(self) -> str:
        """Where the target's server is now; empty for an env of this process."""
        return self._target.address

    @property
    def token(self) -> str | None:
        """What the server asks for."""
        return self._target.token

    @property
    def pace(self) -> float:
        """How long the target takes to answer on average, in seconds."""
        return self._busy / max(1, self._answers)

    @property
    def unanswered(self) -> float:
        """For how many seconds the target owes an answer to the last script's op, be it waited for or not."""
        return max(0.0, trio.current_time() - self._asked)

    def target(self, value: float, label: str) -> None:
        """Keep the highest *value* a *label* was given, for the search."""
        self._climbed[label] = max(value, self._climbed.get(label, value))

    def take_climbed(self) -> dict[str, float]:
        """What :meth:`target` was told since the last time."""
        climbed, self._climbed = self._climbed, {}
        return climbed

    async def leave(self) -> None:
        """Close the session in use."""
        if self._session is not None:
            self._abandon()
        if self._leaving is not None:
            await self._leaving.left.wait()
            self._leaving = None
        else:
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def raw_stream(self, *, patience: float = PATIENCE) -> AsyncGenerator[RawStream]:
        """A Join stream of the judge's own; see :func:`~rlmesh_trio.conformance.raw_stream.open_raw_stream`."""
        await self.leave()
        limit = self._step_timeout
        stream: RawStream | None = None
        over = False
        try:
            async with open_raw_stream(self.address, token=self.token, limit=limit, patience=patience) as stream:
                yield stream
            over = True
        finally:
            self._mind_stream(stream, over=over)

    def _mind_stream(self, stream: RawStream | None, *, over: bool) -> None:
        """Keep in mind what was due on a raw stream, or that none was had, when its judge was through or cut short."""
        if stream is None or (stream.ending is not None and stream.ending.how == "refused"):
            self._last_loss = "CONNECTION"
        elif over and stream.answered:
            self._asked = math.inf
        elif not over and stream.silence:
            self._asked = min(self._asked, trio.current_time() - stream.silence)

    async def play(self, script: Script) -> Trace:
        """Play *script* in the session in use, or apart from what came before where that is called for."""
        if self.isolation != "shared":
            return await self.play_fresh(script)
        await self.bring_back()
        return await self._play(script)

    async def play_fresh(self, script: Script) -> Trace:
        """Play *script* in a session of its own, in a process of its own where sessions do not suffice."""
        await self._begin_anew()
        return await self._play(script)

    async def _begin_anew(self) -> None:
        await self.leave()
        if self.isolation == "process":
            await self._restart()
        await self.bring_back()

    async def play_apart(self, script: Script) -> Trace:
        """Play *script* on an env that nothing was played on before, as far as the target can be started again."""
        if not self._target.restartable:
            return await self.play_fresh(script)
        await self._restart()
        await self.bring_back()
        return await self._play(script)

    async def play_local(self, script: Script, *, width: int | None = None) -> Trace:
        """Play *script* on *width* lanes of the env itself in this process; as many as the target has by default."""
        source = self._target.source
        if source is None:
            raise ValueError(f"{self._target.name} cannot be opened in this process")
        lanes = width or script.lanes
        if self.isolation != "shared":
            await self._drop_local(lanes)
        if lanes not in self._local:
            self._local[lanes] = await self._opened(open_local_env(source, lanes=lanes, where="thread"))
        session = self._local[lanes]
        facts = attrs.evolve(self._facts, contract=session.env.contract, subset_step=session.env.subset_step)
        sound = False
        try:
            trace = await play(session.env, script, facts, ids=session.ids, step_timeout=self._step_timeout)
            sound = trace.lost is None
        finally:
            if not sound:
                await self._drop_local(lanes)
        return trace

    async def ask_local(self, ask: Callable[[AnyEnv], T]) -> T:
        """Make the env of one lane in a thread of this process, call *ask* with it there, and close it."""
        source = self._target.source
        if source is None:
            raise ValueError(f"{self._target.name} cannot be opened in this process")
        maker = env_makers(source, 1)[0]

        def asked() -> T:
            env = maker()
            try:
                return ask(env)
            finally:
                if not maker.holds_env:
                    with suppress(Exception):
                        env.close()

        with trio.fail_after(_OPS_ASKED * self._step_timeout):
            return await trio.to_thread.run_sync(asked, abandon_on_cancel=True)

    async def play_other(self, script: Script) -> Trace:
        """Play *script* on the run's first target. Raises :exc:`ConnectError` when that one is lost."""
        if self.other is None:
            raise ValueError(f"{self._target.name} is the only target, or the first")
        try:
            return await self.other.play(script)
        except TargetLost as lost:
            raise ConnectError(f"the other target is gone: {lost}") from lost

    async def bring_back(self) -> None:
        """See to it that there is a session; raises :exc:`TargetLost`."""
        if self._session is None:
            await self.leave()
            self._session = await self._reopened()
            self.coverage.sessions += 1

    async def improvise(self, choose: Callable[[Answer | None], Op | None]) -> Trace:
        """Play what *choose* chooses op by op; see :func:`~rlmesh_trio.conformance.player.improvise`."""
        if self.isolation != "shared":
            await self._begin_anew()
        await self.bring_back()
        return await self._watched(
            lambda session, how: improvise(session.env, choose, self._facts, ids=session.ids, **how)
        )

    async def _play(self, script: Script) -> Trace:
        self.last_script = script
        return await self._watched(lambda session, how: play(session.env, script, self._facts, ids=session.ids, **how))

    async def _watched(self, playing: Callable[[_Session, dict[str, Any]], Awaitable[Trace]]) -> Trace:
        session = self._session
        assert session is not None
        answered = False
        try:
            trace = await playing(session, {"step_timeout": self._step_timeout, "on_ask": self._note_ask})
            answered = True
        finally:
            if not answered:
                # The server may still be at an op that nobody waits for: what follows gets a session of its own.
                self._abandon()
        self._asked = math.inf
        self.last_script = trace.script
        self._busy += sum(answer.seconds for answer in trace.answers)
        self._answers += len(trace.answers)
        self.coverage.note(trace)
        self._note_resets(trace)
        self.on_trace(trace)
        if trace.lost is not None:
            await self._mind_loss(trace, trace.lost)
        else:
            self._hangs, self._last_loss = 0, ""
        return trace

    def _note_resets(self, trace: Trace) -> None:
        resets = [answer.refusal for answer in trace.answers if isinstance(trace.script.ops[answer.op], Reset)]
        if None in resets:
            self._facts.told[WAS_RESET] = True
        self.refused_resets += sum(refusal is not None and refusal.code not in _UNANSWERED for refusal in resets)

    @property
    def lost_connection(self) -> bool:
        """Whether the connection was lost in the last play, and was not opened anew."""
        return self._session is None and self._last_loss == "CONNECTION"

    async def _mind_loss(self, trace: Trace, lost: Refusal) -> None:
        self._last_loss = lost.code
        await self.leave()
        first_op = len(trace.answers) == 1
        self._hangs = self._hangs + 1 if lost.code == "TIMEOUT" and first_op else 0
        if self._hangs < _HANGS_FORGIVEN:
            return
        if not self._target.restartable:
            raise TargetLost(f"{self._target.name} hangs: {lost.message}, {self._hangs} sessions in a row")
        await self._restart()

    def _note_ask(self) -> None:
        self._asked = trio.current_time()

    def _abandon(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.leave.set()
            self._leaving = session

    async def _drop_local(self, lanes: int) -> None:
        session = self._local.pop(lanes, None)
        if session is not None:
            session.leave.set()
            with trio.CancelScope(shield=True):
                await session.left.wait()

    async def _restart(self) -> None:
        await self.leave()
        try:
            await self._target.restart()
        except SessionError as failure:
            raise TargetLost(f"{self._target.name} could not be started again: {failure}") from failure
        self.coverage.restarts += 1
        self._hangs = 0

    async def _reopened(self) -> _Session:
        """A new session, waited for as long as a lost target may take; what was cut short before counts as waited."""
        if self._target.ended:
            await self._restart()
        if self._missing_since is None:
            self._missing_since = trio.current_time()
        until = self._missing_since + PATIENCE
        pause, restarted = _FIRST_PAUSE, False
        while True:
            left = until - trio.current_time()
            try:
                session = await self._opened(self._target.connect(max(_LEAST_PATIENCE, left)))
                break
            except SessionError as failure:
                if left > pause and not self._target.ended:
                    await trio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                if restarted or not self._target.restartable:
                    raise TargetLost(f"{self._target.name} did not come back: {failure}") from failure
            await self._restart()
            restarted, until = True, trio.current_time() + PATIENCE
        self._missing_since = None
        return session

    async def _opened(self, opening: AbstractAsyncContextManager[OpenEnv]) -> _Session:
        return await self._nursery.start(_hold, opening)


async def _hold(opening: AbstractAsyncContextManager[OpenEnv], task_status: trio.TaskStatus[_Session]) -> None:
    """Hold an env open until its session is to be left."""
    session: _Session | None = None
    try:
        async with opening as env:
            session = _Session(env)
            task_status.started(session)
            await session.leave.wait()
    except SessionError:
        if session is None:
            raise
    finally:
        if session is not None:
            session.left.set()


@asynccontextmanager
async def open_lab(target: Target, facts: Facts, *, step_timeout: float) -> AsyncGenerator[TargetLab]:
    """The lab of *target*, which is running. Its sessions are closed at the end of the block."""
    async with open_background() as nursery:
        yield TargetLab(target, facts, nursery, step_timeout=step_timeout)


class SeenLab:
    """A lab that has played one script already, ``seen``, and gives its trace to every judge that asks for it.

    In all else it is *lab*.
    """

    def __init__(self, lab: TargetLab, seen: Trace) -> None:
        self._lab = lab
        self.seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lab, name)

    async def play(self, script: Script) -> Trace:
        """The trace of the script that was played, or that of another one, played now."""
        if script is not self.seen.script:
            return await self._lab.play(script)
        await trio.lowlevel.checkpoint()
        return self.seen
