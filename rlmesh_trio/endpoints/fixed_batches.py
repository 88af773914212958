"""Batches that all have one number of rows, so that no row's answer hangs on how many others came with it.

A product of matrices may be computed in another way, and rounded otherwise, where there are more rows or fewer.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from rlmesh_trio.endpoints.policy_forms import Batch, BatchForm, Form
from rlmesh_trio.messages import Leaves, PredictRequest
from rlmesh_trio.spaces import SpaceCodec

__all__ = ("FixedBatches", "fix_batches")


def fix_batches(form: Form, actions: SpaceCodec, width: int) -> Form:
    """*form* asked with *width* rows at a time, if it is one that answers all rows at once; else as it is."""
    return FixedBatches(form, actions, width) if isinstance(form, BatchForm) else form


class FixedBatches:
    """A ``Form`` that fills each batch up to *width* rows with copies of its last request, and drops their answers.

    A request is of one row, or of all *width*.
    """

    held = (0, 0)

    def __init__(self, form: BatchForm, actions: SpaceCodec, width: int) -> None:
        self._form = form
        self._actions = actions
        self._width = width
        self.end_episode = form.end_episode

    def decode(self, requests: Sequence[PredictRequest]) -> Batch:
        """The batch of *requests*, its observation the whole one."""
        rows = [len(request.episode_info) for request in requests]
        missing = max(0, self._width - sum(rows))
        return Batch(requests, rows, sum(rows), self._form.decode([*requests, *repeat(requests[-1], missing)]))

    def call(self, batch: Batch) -> Any:
        """One call for the whole batch."""
        return self._form.call(batch.observation)

    def encode(self, batch: Batch, answer: Any) -> list[Leaves]:
        """The frames of the rows that were asked about."""
        whole: Batch = batch.observation
        frames = self._form.encode(whole, answer)
        if whole.count == batch.count:
            return frames
        return [self._actions.split(frame, [batch.count, whole.count - batch.count])[0] for frame in frames]
