"""Asking a live env under deadlines, each request and its answer on their way to the recording of the play.

An env that fails, or does not answer in time (code ``TIMEOUT``), has given an answer as well: the recording holds it,
and the play goes on. Only a connection that is gone ends it.
"""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.errors import EndpointError, EnvRpcError, SessionError, format_duration
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.spec import Limits

__all__ = ("Begins", "RecordedEnv")

Begins = Callable[[EnvReply], Sequence[int]]
"""By lane of a step, the ordinal of the episode that begins with its reply, 0 for none."""


class RecordedEnv:
    """*env*, its answers recorded by *writer*. Both operations return the reply, or ``None`` when it failed.

    Both raise :exc:`EnvRpcError` when the connection is lost, and :exc:`RecordingError` when the recording cannot be
    written.
    """

    def __init__(self, env: Env, writer: RecordingWriter, limits: Limits) -> None:
        self._env = env
        self._writer = writer
        self._reset_limit = limits.env_reset_timeout
        self._step_limit = limits.env_step_timeout

    async def reset(self, request: ResetRequest, begins: Sequence[int]) -> EnvReply | None:
        """Reset; *begins* has by lane of the request the ordinal of the episode that begins, 0 for none."""
        request = attrs.evolve(request, timeout_ms=_milliseconds(self._reset_limit))
        answer = await _answer(lambda: self._env.reset(request), self._reset_limit)
        self._writer.record_reset(request, answer, begins)
        return _reply(answer, "env.reset", 0)

    async def step(
        self,
        action: Leaves,
        lanes: tuple[int, ...],
        episode_ids: tuple[str, ...],
        step: int,
        begins: Begins | None = None,
    ) -> EnvReply | None:
        """Step *lanes*, all if it is empty; *begins* tells from the reply which episodes begin with it, by lane."""
        target = StepTarget(_milliseconds(self._step_limit), lanes, episode_ids)
        answer = await _answer(lambda: self._env.step(action, target), self._step_limit)
        restarted = begins(answer) if begins is not None and isinstance(answer, EnvReply) else ()
        self._writer.record_step(action, answer, target, restarted)
        return _reply(answer, "env.step", step)


async def _answer(call: Callable[[], Awaitable[EnvReply]], limit: float) -> EnvReply | EndpointError:
    try:
        with trio.move_on_after(limit):
            return await call()
    except EndpointError as error:
        return error
    except SessionError as error:
        return EndpointError("INTERNAL", str(error))
    except Exception as error:
        return EndpointError("INTERNAL", f"{type(error).__name__}: {error}")
    return EndpointError("TIMEOUT", f"no answer within {format_duration(limit)}", recoverable=True)


def _reply(answer: EnvReply | EndpointError, operation: str, step: int) -> EnvReply | None:
    if isinstance(answer, EnvReply):
        return answer
    if answer.code == "CONNECTION":
        raise EnvRpcError(operation, step, answer.message, answer.recoverable, answer.code) from answer
    return None


def _milliseconds(seconds: float) -> int:
    """A limit as requests carry it, never rounded down to "no limit"."""
    return max(1, round(seconds * 1000))
