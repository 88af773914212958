"""A policy in this process, asked as one fused model: all requests of a group are one call.

A request that does not decode has its own error and leaves the batch. What the policy returns is checked before
anything is sent: the number of actions, and every action against the action space. A policy's own
:exc:`~rlmesh_trio.errors.SessionError` comes out as it was raised; any other exception is ``INTERNAL``.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter_ns
from typing import Literal, TypeVar

import attrs
import trio

from rlmesh_trio.endpoints.fixed_batches import fix_batches
from rlmesh_trio.endpoints.policies import Policy, find_policy
from rlmesh_trio.endpoints.policy_forms import Batch, BatchForm, Form
from rlmesh_trio.endpoints.resident_thread import ResidentThread, ThreadOccupied
from rlmesh_trio.errors import ConnectError, EndpointError, InvalidSpec, SessionError, SpaceError
from rlmesh_trio.messages import (
    Leaves,
    Phases,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
)
from rlmesh_trio.spaces import SpaceCodec, codec_for
from rlmesh_trio.spec import SessionSpec

__all__ = ("LocalModel", "Pace", "Where", "open_local_model")

logger = logging.getLogger("rlmesh_trio")

T = TypeVar("T")
Where = Literal["auto", "inline", "thread"]

_CLOSE_GRACE = 2.0
_QUICK_NS = 200_000
_SLOW_NS = 1_000_000
_RECENT_CALLS = 8


@asynccontextmanager
async def open_local_model(
    policy: object, *, where: Where = "auto", fixed_batch: bool = False
) -> AsyncGenerator["LocalModel"]:
    """Load *policy* and close it at the end of the block. A failure to close is logged.

    *policy* is ``random``, ``zero``, ``module:name``, a callable over batches, or an object or class with any of
    ``predict``, ``predict_batch``, ``predict_chunk``, ``predict_chunk_batch``; see
    :mod:`~rlmesh_trio.endpoints.policies` and :mod:`~rlmesh_trio.endpoints.policy_forms`.

    *where* is ``inline`` to call it in the calling task, for policies that answer in microseconds; ``thread`` to call
    it in one thread of its own, so that a predict that hangs ends at its limit; or ``auto``, which starts in the
    thread, goes inline after some quick calls in a row, and back after a slow one. Built-in policies are inline.

    With *fixed_batch* what takes a batch is always called with as many rows as the session has lanes: one that is not
    full is filled up with copies of its last row, context and history too, whose answers are dropped. What a policy
    answers may hang on how many rows there are. For a policy that takes one row, or a built-in one, nothing changes.

    Raises :exc:`ConnectError` when the policy cannot be found, created or loaded.
    """
    if where not in ("auto", "inline", "thread"):
        raise ConnectError(f"a policy runs auto, inline, thread, not {where!r}")
    found = find_policy(policy)
    model = LocalModel(found, Pace("inline" if found.builtin is not None else where), fixed_batch=fixed_batch)
    try:
        await model.load()
        yield model
    finally:
        with trio.CancelScope(shield=True):
            await model.close()


class Pace:
    """Where the next call goes. ``auto`` goes by the mean of the last calls, so that one hiccup decides nothing."""

    def __init__(self, where: Where) -> None:
        self.inline = where == "inline"
        self._fixed = where != "auto"
        self._mean_ns: float = _SLOW_NS

    def took(self, elapsed_ns: int) -> None:
        """Note how long a call took."""
        if self._fixed:
            return
        self._mean_ns += (elapsed_ns - self._mean_ns) / _RECENT_CALLS
        self.inline = self._mean_ns < (_SLOW_NS if self.inline else _QUICK_NS)


@attrs.frozen(eq=False)
class _Route:
    """What a resolved route is answered with."""

    form: Form
    actions: SpaceCodec


class LocalModel:
    """A policy that answers one route at a time; made by :func:`open_local_model`, a ``Model`` once resolved."""

    def __init__(self, policy: Policy, pace: Pace, *, fixed_batch: bool = False) -> None:
        self._policy = policy
        self._fixed_batch = fixed_batch
        self._pace = pace
        self._thread = ResidentThread(f"rlmesh-trio policy {policy.name}")
        self._loaded = False
        self._route: _Route | None = None
        self._live: set[str] = set()

    async def load(self) -> None:
        """Call the policy's ``load()``, if it has one; raises :exc:`ConnectError` when that fails."""
        load = self._policy.load
        try:
            if load is None:
                await trio.lowlevel.checkpoint()
            else:
                await self._run(load)
        except SessionError:
            raise
        except Exception as failure:
            raise ConnectError(f"loading policy {self._policy.name} failed: {_told(failure)}") from failure
        self._loaded = True

    async def resolve(self, spec: SessionSpec, *, execution_horizon: int = 1) -> None:
        """Take on the route of *spec*, to be asked for up to *execution_horizon* frames at a time.

        Raises :exc:`InvalidSpec` for a horizon this policy cannot serve, and for an env without spaces.
        """
        await trio.lowlevel.checkpoint()
        observations, actions = spec.env_contract.observation_space, spec.env_contract.action_space
        if observations is None:
            raise InvalidSpec("env contract is missing observation_space")
        if actions is None:
            raise InvalidSpec("env contract has no action_space; a model cannot encode actions without it")
        form = self._policy.form(observations, actions, execution_horizon)
        codec = codec_for(actions)
        if self._fixed_batch:
            form = fix_batches(form, codec, spec.num_envs)
        self._route = _Route(form, codec)
        self._live.clear()

    async def predict(self, request: PredictRequest) -> PredictReply:
        """The action frames for one group."""
        (result,) = await self.predict_group([request])
        if isinstance(result, Exception):
            raise result
        return result

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer all requests with one call."""
        route = self._route
        if route is None:
            raise EndpointError(
                "NOT_CONFIGURED", "the model was not resolved for a route: await model.resolve(spec) before the session"
            )
        if self._policy.on_episode_end is not None:
            self._live.update([info.episode_id for request in requests for info in request.episode_info])
        pace = self._pace
        if not pace.inline:
            return await self._run(lambda: _answer(route, requests))
        await trio.lowlevel.checkpoint()
        started = perf_counter_ns()
        answers = _answer(route, requests)
        pace.took(perf_counter_ns() - started)
        return answers

    def fuses_predicts(self) -> bool:
        """Always: a group of requests is one call."""
        return True

    def wants_history(self) -> bool:
        """Whether the policy asks for it."""
        return self._policy.wants_history

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End episodes: ``on_episode_end`` is called once for each that was ever asked about."""
        if self._route is not None:
            for episode_id in request.episode_ids:
                self._route.form.end_episode(episode_id)
        ended = [episode_id for episode_id in request.episode_ids if episode_id in self._live]
        self._live.difference_update(ended)
        on_episode_end = self._policy.on_episode_end
        if not ended or on_episode_end is None:
            await trio.lowlevel.checkpoint()
            return
        await self._run(lambda: _end_each(on_episode_end, ended))

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """Forget the route."""
        await trio.lowlevel.checkpoint()
        logger.debug("policy %s released: %s", self._policy.name, request.reason)
        self._route = None
        self._live.clear()

    async def close(self) -> None:
        """Call the policy's ``close()``, if it has one. A failure, or a thread that does not come back, is logged."""
        close = self._policy.close if self._loaded else None
        try:
            if close is not None:
                with trio.fail_after(_CLOSE_GRACE):
                    await self._run(close)
        except trio.TooSlowError:
            logger.warning("policy %s did not close in time: its thread is left behind", self._policy.name)
        except Exception as failure:
            logger.warning("closing policy %s failed: %s", self._policy.name, _told(failure))
        finally:
            self._thread.close()

    async def _run(self, call: Callable[[], T]) -> T:
        if self._pace.inline:
            await trio.lowlevel.checkpoint()
            return call()
        try:
            elapsed, result = await self._thread.run(lambda: _timed(call))
        except ThreadOccupied:
            raise EndpointError(
                "BUSY", f"policy {self._policy.name} is still at a call that was given up at its limit"
            ) from None
        self._pace.took(elapsed)
        return result


def _timed(call: Callable[[], T]) -> tuple[int, T]:
    started = perf_counter_ns()
    result = call()
    return perf_counter_ns() - started, result


def _end_each(on_episode_end: Callable[[str], object], episode_ids: Sequence[str]) -> None:
    first: Exception | None = None
    for episode_id in episode_ids:
        try:
            on_episode_end(episode_id)
        except Exception as failure:
            first = first or failure
    if first is not None:
        raise first if isinstance(first, SessionError) else _failed("on_episode_end", first)


def _answer(route: _Route, requests: Sequence[PredictRequest]) -> list[PredictReply | Exception]:
    started = perf_counter_ns()
    form = route.form
    try:
        batch = form.decode(requests)
    except SpaceError:
        return _answer_decodable(route, requests)
    decoded = perf_counter_ns()
    try:
        answer = form.call(batch)
    except SessionError as own:
        return [own] * len(requests)
    except Exception as failure:
        return [_failed("predict", failure, _asked(form, batch))] * len(requests)
    called = perf_counter_ns()
    try:
        frames = form.encode(batch, answer)
    except EndpointError as wrong:
        return [wrong] * len(requests)
    except SpaceError as wrong:
        told = f"the policy's action is not in the action space: {wrong}{_asked(form, batch)}"
        error = EndpointError("INTERNAL", told)
        error.__cause__ = wrong
        return [error] * len(requests)
    encoded = perf_counter_ns()
    held, held_bytes = form.held
    phases = Phases(
        decoded - started, called - decoded, encoded - called, held_episodes=held, held_state_bytes=held_bytes
    )
    return _replies(route, batch, frames, encoded - started, phases)


def _answer_decodable(route: _Route, requests: Sequence[PredictRequest]) -> list[PredictReply | Exception]:
    """Answer the requests that decode; the others get their own error."""
    refused: dict[int, EndpointError] = {}
    for position, request in enumerate(requests):
        try:
            route.form.decode([request])
        except SpaceError as wrong:
            refused[position] = error = EndpointError("INTERNAL", f"the observation does not decode: {wrong}")
            error.__cause__ = wrong
    kept = [request for position, request in enumerate(requests) if position not in refused]
    answers = iter(_answer(route, kept) if kept else ())
    return [refused[position] if position in refused else next(answers) for position in range(len(requests))]


def _replies(
    route: _Route, batch: Batch, frames: Sequence[Leaves], total_ns: int, phases: Phases
) -> list[PredictReply | Exception]:
    shares = [frames] if len(batch.requests) == 1 else _shares(route, batch, frames)
    return [
        PredictReply(request.session_id, request.env_id, request.request_id, share, total_ns, phases)
        for request, share in zip(batch.requests, shares, strict=True)
    ]


def _shares(route: _Route, batch: Batch, frames: Sequence[Leaves]) -> Iterable[Sequence[Leaves]]:
    """The rows of each request, in every frame."""
    return zip(*[route.actions.split(frame, batch.rows) for frame in frames], strict=True)


def _failed(operation: str, failure: Exception, asked: str = "") -> EndpointError:
    error = EndpointError("INTERNAL", f"{operation} failed: {_told(failure)}{asked}")
    error.__cause__ = failure
    return error


def _asked(form: Form, batch: Batch) -> str:
    """A reminder that rows are asked about together: a policy written for one row fails in the oddest ways."""
    return f" (it was given a batch of {batch.count})" if isinstance(form, BatchForm) else ""


def _told(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"
