"""The ending of a session, the same on every path: success, failure, cancellation from inside or outside, Ctrl-C.

It runs shielded, each part under its own deadline, so that no outcome is lost and nothing can hang: finished episodes
that nobody was told of yet are announced, episodes the model still holds are ended (unless a predict had to be
abandoned), the session's telemetry is delivered, the model is released and the env closed side by side, and the last
event tells how it went.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.engine.batcher import Batcher
from rlmesh_trio.engine.lane_group import LaneGroup, SessionParts
from rlmesh_trio.events import Route, SessionEnded, SessionFailed, TelemetryTaken
from rlmesh_trio.messages import ReleaseAdapterRequest
from rlmesh_trio.report import TelemetrySnapshot

__all__ = ("SUCCESS_REASON", "end_session")

logger = logging.getLogger("rlmesh_trio")

SUCCESS_REASON = "completed requested episodes"
_SLOW_LISTENER = "a listener did not return within the close limit during route shutdown"


async def end_session(
    parts: SessionParts,
    groups: Iterable[LaneGroup],
    model: Model,
    failure: Callable[[], BaseException | None],
    keep: Callable[[TelemetrySnapshot], None],
) -> None:
    """End the session. *failure* tells how it went so far; *keep* takes the session's telemetry for the report."""
    spec, route = parts.spec, parts.route
    source = Route(spec.env_id, spec.env_component_id, spec.model_component_id)
    limit = spec.limits.service_close_timeout
    parts.listeners.hurry()
    with trio.CancelScope(shield=True):
        await _announce_the_rest(groups, limit)
        if not parts.batcher.abandoned:
            await _evict_the_rest(parts.batcher, groups, limit)
        snapshot = parts.telemetry.session_snapshot()
        keep(snapshot)
        await _tell(parts.listeners.on_telemetry, limit, lambda: TelemetryTaken(spec.session_id, source, snapshot))

        reason = _reason(failure())
        request = ReleaseAdapterRequest(spec.session_id, spec.env_id, route.request_id("release_adapter"), reason)
        async with trio.open_nursery() as services:
            services.start_soon(_release, model, request, limit)
            if spec.close_env_on_end:
                services.start_soon(_close_env, parts, limit)
            else:
                logger.debug("skipping environment close for adapter; endpoint remains owned by the run")

        if failure() is None:
            await _tell(
                parts.listeners.session_ended,
                limit,
                lambda: SessionEnded(spec.session_id, source, reason, route.total_steps, route.total_episodes),
            )
        else:
            await _tell(parts.listeners.session_failed, limit, lambda: SessionFailed(spec.session_id, source, reason))


def _reason(failure: BaseException | None) -> str:
    if failure is None:
        return SUCCESS_REASON
    return str(failure) or type(failure).__name__


async def _announce_the_rest(groups: Iterable[LaneGroup], limit: float) -> None:
    with trio.move_on_after(limit) as scope:
        for group in groups:
            await group.announce_finished()
    if scope.cancelled_caught:
        logger.warning(_SLOW_LISTENER)


async def _evict_the_rest(batcher: Batcher, groups: Iterable[LaneGroup], limit: float) -> None:
    """End on the model what is queued, what was held, and every live episode it predicted on."""
    left = batcher.evictions
    for group in groups:
        left.extend(group.held_evictions())
        left.extend(lane.episode_id for lane in group.lanes if lane.predicted and not lane.ended)
    if left:
        await batcher.evict(limit)


async def _release(model: Model, request: ReleaseAdapterRequest, limit: float) -> None:
    advice = f"relying on owner shutdown (reason: {request.reason})"
    with trio.move_on_after(limit) as scope:
        try:
            await model.release_adapter(request)
        except Exception as error:
            logger.warning("model route close failed during route shutdown; %s: %s", advice, error)
    if scope.cancelled_caught:
        logger.warning("model route close timed out during route shutdown; %s", advice)


async def _close_env(parts: SessionParts, limit: float) -> None:
    with trio.move_on_after(limit) as scope:
        try:
            await parts.env.close()
        except Exception as error:
            logger.warning("environment close failed during route shutdown: %s", error)
    if scope.cancelled_caught:
        logger.warning("environment close timed out during route shutdown; abandoning close")


async def _tell(notify: Callable[[Any], Awaitable[None]] | None, limit: float, event: Callable[[], Any]) -> None:
    """Tell the listeners, if there are any; one that does not return cannot hold the ending up."""
    if notify is None:
        return
    with trio.move_on_after(limit) as scope:
        await notify(event())
    if scope.cancelled_caught:
        logger.warning(_SLOW_LISTENER)
