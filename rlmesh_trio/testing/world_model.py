"""The model of a simulated world: a pure policy that answers as planned, and notes each breach of its rules."""

import random
from collections import Counter
from collections.abc import Sequence

import attrs
import trio

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest
from rlmesh_trio.testing.scripted import pause
from rlmesh_trio.testing.world_mishaps import Call, Line, Mishaps, depart
from rlmesh_trio.testing.world_plan import ModelPlan
from rlmesh_trio.testing.world_toy import ToyObservation, frames_for

__all__ = ("Asked", "SimulatedModel")


@attrs.define(eq=False)
class Asked:
    """One request the model got, in which call and when, with what could be read of its observation and history."""

    call: int
    request: PredictRequest
    rows: list[ToyObservation]

    @property
    def episode_ids(self) -> tuple[str, ...]:
        """The episodes of its rows."""
        return tuple(info.episode_id for info in self.request.episode_info)


class SimulatedModel:
    """A pure policy.

    ``calls`` and ``asked`` have what was asked, ``breaches`` what must not be asked, ``reason`` what release was told.
    """

    def __init__(self, plan: ModelPlan, line: Line, mishaps: Mishaps, source: random.Random) -> None:
        self._plan = plan
        self._line = line
        self._mishaps = mishaps
        self._source = source
        self._under_way: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.asked: list[Asked] = []
        self.reason: str | None = None
        self.breaches: list[str] = []

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Refuse: the engine asks in groups only."""
        raise NotImplementedError

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer the requests, in their order."""
        self.asked += [Asked(len(self.calls), request, _readable(request)) for request in requests]
        ids = [info.episode_id for request in requests for info in request.episode_info]
        if self._plan.fuses and self._under_way.total():
            self.breaches.append("a model that fuses is asked while it predicts")
        if not self._plan.fuses and len(requests) != 1:
            self.breaches.append(f"a model that does not fuse is asked {len(requests)} at once")
        if len(set(ids)) != len(ids) or any(self._under_way[id_] for id_ in ids):
            self.breaches.append("the model is asked twice at once about an episode")
        self._under_way.update(ids)
        try:
            with self._called("predict_group", tuple(ids)) as call:
                results = await self._line.carry(lambda: self._predict(requests))
                call.wrong = len(results) != len(requests) or any(map(_is_wrong, results, requests))
                return results
        finally:
            self._under_way.subtract(ids)

    def fuses_predicts(self) -> bool:
        """As planned."""
        return self._plan.fuses

    def wants_history(self) -> bool:
        """As planned."""
        return self._plan.history

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End episodes."""
        if self._under_way.total():
            self.breaches.append("episodes are ended while the model predicts")
        with self._called("evict", request.episode_ids):
            await self._line.carry(lambda: self._heed("evict"))

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """End the route."""
        if self.reason is not None:
            self.breaches.append("the model is released twice")
        self.reason = request.reason
        with self._called("release", ()):
            await self._line.carry(lambda: self._heed("release"))

    def _called(self, part: str, episode_ids: tuple[str, ...]) -> Call:
        call = Call(part, episode_ids, trio.current_time())
        self.calls.append(call)
        return call

    async def _heed(self, part: str) -> None:
        await trio.lowlevel.checkpoint()
        await self._mishaps.arrive(part)

    async def _predict(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        actions = await self._mishaps.arrive("predict_group")
        results = [await self._result(request) for request in requests]
        await pause(self._plan.predict.pick(self._source))
        return await depart(results, actions)

    async def _result(self, request: PredictRequest) -> PredictReply | Exception:
        try:
            actions = await self._mishaps.arrive("predict")
        except Exception as error:
            return error
        rows = _readable(request)
        seeds = [info.seed for info in request.episode_info]
        if len(rows) != len(seeds):
            return EndpointError("INVALID_ARGUMENT", f"{len(rows)} rows for {len(seeds)} episodes")
        plan = self._plan
        frames = frames_for(rows, seeds, salt=plan.salt, longest=plan.chunk, varied=plan.varied)
        reply = PredictReply(
            request.session_id,
            request.env_id,
            request.request_id,
            [[b"".join(action.pack() for action in frame)] for frame in frames],
        )
        return await depart(reply, actions)


def _is_wrong(result: PredictReply | Exception, request: PredictRequest) -> bool:
    return isinstance(result, Exception) or not result.actions or result.request_id != request.request_id


def _readable(request: PredictRequest) -> list[ToyObservation]:
    """The rows of the request's observation; none if they cannot be read."""
    try:
        return [row for leaf in request.observation or () for row in ToyObservation.unpack_rows(leaf)]
    except ValueError:
        return []
