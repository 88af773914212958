"""Whether the predicts of several lanes may go to a model server as the rows of one, which is one forward pass.

A server runs the groups of a grouped predict one by one unless the route has an adapter, but hands the rows of one
predict to the model together: at once to a model that is made for batches, and that is all the speed there is. To a
model that is not, it hands them as one strange observation that belongs to no episode. Nothing on the wire tells
the two apart, so the answers must: some requests are made twice, group by group and merged, the second time under
episodes made up for it. Only a model that answers the same both times, and not just to first observations, is trusted
with merged rows: one that would lose its memory of the episode shows it from the second observation on.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import EpisodeInfo, Leaves, PredictReply, PredictRequest
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace

__all__ = ("RowMerging",)

_CHECKS = 2
_PATIENCE = 32
# Float actions need not agree to the last bit: a batch is another order of summing.
_TOLERANCE = 1e-2


class RowMerging:
    """The decision for one route. ``trusted`` is ``None`` until it has fallen.

    ``made_up`` are the episodes under which was asked a second time, to be ended on the model.
    """

    def __init__(self, observation_space: ValueSpace, action_space: ValueSpace) -> None:
        self.trusted: bool | None = None
        self.made_up: list[str] = []
        self._observations = codec_for(observation_space)
        self._actions = codec_for(action_space)
        self._action_dtypes = [leaf.dtype for leaf in action_space.leaves]
        # The step at which an episode must be asked about twice next, so that its double has seen all it has seen.
        self._due: dict[str, int] = {}
        self._passed = 0
        self._remembered = False
        self._patience = _PATIENCE

    def fits(self, requests: Sequence[PredictRequest]) -> bool:
        """Whether *requests* can be one: every row has an episode of its own and nothing but its observation."""
        ids = [info.episode_id for request in requests for info in request.episode_info]
        return all(ids) and len(set(ids)) == len(ids) and all(map(_is_plain, requests))

    def merge(self, requests: Sequence[PredictRequest]) -> PredictRequest:
        """One request with the rows of all, under the first one's identity."""
        rows = [len(request.episode_info) for request in requests]
        parts = [request.observation or () for request in requests]
        return attrs.evolve(
            requests[0],
            observation=self._observations.concatenate(parts, rows),
            episode_info=tuple(info for request in requests for info in request.episode_info),
        )

    def split(self, reply: PredictReply, requests: Sequence[PredictRequest]) -> list[PredictReply | Exception]:
        """The answer to each of *requests* out of the *reply* to them merged; the first carries what was measured."""
        try:
            frames = self._frames(reply, requests)
        except SpaceError as error:
            rows = sum(len(request.episode_info) for request in requests)
            failure = EndpointError("INTERNAL", f"the answer to {rows} merged rows is not {rows} actions: {error}")
            return [failure for _ in requests]
        route, asked = (reply.session_id, reply.env_id), requests[0].request_id
        replies: list[PredictReply | Exception] = []
        for index, request in enumerate(requests):
            request_id = request.request_id if reply.request_id == asked else reply.request_id
            replies.append(PredictReply(*route, request_id, [frame[index] for frame in frames]))
        replies[0] = attrs.evolve(reply, actions=[frame[0] for frame in frames])
        return replies

    def next_check(self, requests: Sequence[PredictRequest]) -> list[int]:
        """Which of *requests* to make again, merged: new episodes, and those that were always asked about twice."""
        self._patience -= 1
        if self._patience < 0:
            self.trusted = False
            return []
        again = [index for index, request in enumerate(requests) if self._is_due(request)]
        return again if len(again) > 1 and self.fits([requests[index] for index in again]) else []

    def double(self, requests: Sequence[PredictRequest]) -> PredictRequest:
        """*requests* merged, under made-up episodes with the same seeds."""
        merged = self.merge(requests)
        doubles = tuple(EpisodeInfo(f"{info.episode_id}/merged", info.seed) for info in merged.episode_info)
        self.made_up += [
            double.episode_id
            for info, double in zip(merged.episode_info, doubles, strict=True)
            if info.episode_id not in self._due
        ]
        for request in requests:
            for info, step in zip(request.episode_info, request.episode_steps, strict=True):
                self._due[info.episode_id] = step + 1
        return attrs.evolve(merged, episode_info=doubles)

    def compare(self, requests: Sequence[PredictRequest], singly: Sequence[PredictReply], merged: PredictReply) -> None:
        """Judge the second answers by the first."""
        try:
            frames = self._frames(merged, requests)
        except SpaceError:
            self.trusted = False
            return
        same = all(
            len(reply.actions) == len(frames)
            and all(self._agree(ours, frame[i]) for ours, frame in zip(reply.actions, frames, strict=True))
            for i, reply in enumerate(singly)
        )
        self._passed += 1
        self._remembered = self._remembered or any(step for request in requests for step in request.episode_steps)
        if not same:
            self.trusted = False
        elif self._passed >= _CHECKS and self._remembered:
            self.trusted = True

    def _frames(self, reply: PredictReply, requests: Sequence[PredictRequest]) -> list[list[Leaves]]:
        rows = [len(request.episode_info) for request in requests]
        for frame in reply.actions:
            self._actions.check_layout(frame, sum(rows))
        return [self._actions.split(frame, rows) for frame in reply.actions]

    def _is_due(self, request: PredictRequest) -> bool:
        rows = zip(request.episode_info, request.episode_steps, strict=False)
        return len(request.episode_steps) == len(request.episode_info) and all(
            self._due.get(info.episode_id, 0) == step for info, step in rows
        )

    def _agree(self, one: Leaves, other: Leaves) -> bool:
        if len(one) != len(other):
            return False
        for left, right, dtype in zip(one, other, self._action_dtypes, strict=True):
            if bytes(left) == bytes(right):
                continue
            if not dtype.startswith("float") or len(left) != len(right):
                return False
            numbers = np.frombuffer(left, dtype), np.frombuffer(right, dtype)
            if not np.allclose(*numbers, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
                return False
        return True


def _is_plain(request: PredictRequest) -> bool:
    return request.observation is not None and not request.history and request.step is None
