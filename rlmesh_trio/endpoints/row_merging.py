"""The predicts of several lanes as the rows of one, which a model made for batches answers in one forward pass.

A server hands the rows of one predict to the model together: at once to a model that is made for batches. To one that
is not, it hands them as one strange observation that belongs to no episode, and nothing on the wire tells the two
apart. So rows are merged only where the caller says that the model answers each row by itself.
"""

from collections.abc import Sequence

import attrs

from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import Leaves, PredictReply, PredictRequest
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace

__all__ = ("RowMerging",)


class RowMerging:
    """Merges requests and splits their answer, for one route."""

    def __init__(self, observation_space: ValueSpace, action_space: ValueSpace) -> None:
        self._observations = codec_for(observation_space)
        self._actions = codec_for(action_space)

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

    def _frames(self, reply: PredictReply, requests: Sequence[PredictRequest]) -> list[list[Leaves]]:
        rows = [len(request.episode_info) for request in requests]
        for frame in reply.actions:
            self._actions.check_layout(frame, sum(rows))
        return [self._actions.split(frame, rows) for frame in reply.actions]


def _is_plain(request: PredictRequest) -> bool:
    return request.observation is not None and not request.history and request.step is None
