"""How a policy is asked: the four corners a policy may define, and how each is fed and read.

A *form* turns requests into one batch (``decode``), asks the policy once for it (``call``), and turns the answer into
frames of leaves, each frame one action for every row of the batch (``encode``). What a corner gets besides the
observation it names as parameters, passed by keyword:

- ``context``: the row's :class:`EpisodeContext`;
- ``history``: the row's earlier observations since the last predict, a list of :class:`PastObservation`;
- ``execution_horizon``: how many frames will be used at most.

A batched corner gets a list with an entry per row for each of the first two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast
from zlib import crc32

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import Leaves, PredictRequest
from rlmesh_trio.spaces import SpaceCodec, codec_for
from rlmesh_trio.spec import ValueSpace

__all__ = (
    "Batch",
    "BatchForm",
    "ChunkBatchForm",
    "ChunkForm",
    "Corner",
    "EpisodeContext",
    "Form",
    "PastObservation",
    "RowForm",
)

_64_BITS: Final = (1 << 64) - 1


class EpisodeContext(NamedTuple):
    """Whom a row belongs to: the episode, its reset seed, and the steps taken in it (``None`` when not known)."""

    episode_id: str
    seed: int | None
    step: int | None

    def generator(self, name: str = "") -> np.random.Generator:
        """A fresh generator for what this row draws at this step, a stream of its own for each *name*.

        It hangs on the episode's seed, the step and *name* alone: not on lanes, batches, or the order of calls, and
        asking twice gives the same numbers twice. Where seed or step is ``None`` it cannot be repeated.
        """
        if self.seed is None or self.step is None:
            return np.random.default_rng()
        stream = (crc32(name.encode()), self.step)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed & _64_BITS, spawn_key=stream)))


class PastObservation(NamedTuple):
    """One earlier observation of a row's lane, a member of the space; histories are oldest first.

    ``episode_id`` is the episode it belonged to, which may have ended since; ``step`` counts the env steps of the
    lane's group over all its episodes.
    """

    observation: Any
    episode_id: str
    step: int


@attrs.define(eq=False)
class Batch:
    """The decoded requests of one call: ``rows`` of each, ``count`` in all."""

    requests: Sequence[PredictRequest]
    rows: Sequence[int]
    count: int
    observation: Any


@attrs.frozen(eq=False)
class Corner:
    """One predict method of a policy and the optional parameters it names."""

    call: Callable[..., Any]
    name: str = "predict"
    context: bool = False
    history: bool = False
    execution_horizon: bool = False


class Form(Protocol):
    """One way to ask a policy. ``decode`` and ``encode`` raise :exc:`SpaceError`; ``call`` whatever the policy does."""

    def decode(self, requests: Sequence[PredictRequest]) -> Batch:
        """The batch of *requests*."""
        ...

    def call(self, batch: Batch) -> Any:
        """The policy's answer to *batch*."""
        ...

    def encode(self, batch: Batch, answer: Any, /) -> list[Leaves]:
        """At most horizon frames of ``batch.count`` rows."""
        ...

    def end_episode(self, episode_id: str, /) -> None:
        """Forget what is held for the episode."""
        ...

    @property
    def held(self) -> tuple[int, int]:
        """How many episodes something is held for, and its bytes."""
        ...


class _UserForm:
    held = (0, 0)

    def __init__(self, corner: Corner, observations: ValueSpace, actions: ValueSpace, horizon: int) -> None:
        self._call = corner.call
        self._corner = corner
        self._plain = not (corner.context or corner.history or corner.execution_horizon)
        self._observations = codec_for(observations)
        self._actions = codec_for(actions)
        self._action_space = actions.space
        self._horizon = horizon

    def end_episode(self, _: str) -> None:
        """Nothing is held here; a policy hears of it by ``on_episode_end``."""

    def _row_words(self, request: PredictRequest, row: int) -> dict[str, Any]:
        """The keyword arguments for one row."""
        words: dict[str, Any] = {}
        if self._corner.context:
            words["context"] = _context(request, row)
        if self._corner.history:
            words["history"] = _history(self._observations, request, row)
        if self._corner.execution_horizon:
            words["execution_horizon"] = self._horizon
        return words

    def _batch_words(self, batch: Batch) -> dict[str, Any]:
        """The keyword arguments for a whole batch: a list with an entry per row, but the horizon once."""
        words: dict[str, Any] = {}
        if self._corner.context:
            words["context"] = [_context(request, row) for request, row in _each_row(batch)]
        if self._corner.history:
            words["history"] = [_history(self._observations, request, row) for request, row in _each_row(batch)]
        if self._corner.execution_horizon:
            words["execution_horizon"] = self._horizon
        return words

    def _packed(self, action: Any, batch: Batch) -> Leaves:
        """One frame from an action with a leading axis of rows."""
        try:
            return self._actions.pack_members(action, batch.count)
        except SpaceError:
            _check_count(self._action_space, action, batch)
            raise


class BatchForm(_UserForm):
    """All rows at once: the observation and the action have a leading axis of rows on every leaf."""

    def decode(self, requests: Sequence[PredictRequest]) -> Batch:
        """One batched observation, its arrays read-only views where that saves a copy."""
        if len(requests) == 1:
            count = len(requests[0].episode_info)
            return Batch(requests, (count,), count, self._observations.unpack_batch(_observation(requests[0]), count))
        rows = [len(request.episode_info) for request in requests]
        count = sum(rows)
        parts = [_observation(request) for request in requests]
        observation = self._observations.unpack_batch(self._observations.concatenate(parts, rows), count)
        return Batch(requests, rows, count, observation)

    def call(self, batch: Batch) -> Any:
        """One call."""
        if self._plain:
            return self._call(batch.observation)
        return self._call(batch.observation, **self._batch_words(batch))

    def encode(self, batch: Batch, answer: Any) -> list[Leaves]:
        """One frame."""
        return [self._packed(answer, batch)]


class ChunkBatchForm(BatchForm):
    """As :class:`BatchForm`, but every leaf of the action has an axis of frames after that of rows."""

    def encode(self, batch: Batch, answer: Any) -> list[Leaves]:
        """The first frames."""
        leaves = [self._by_frame(value) for value in _leaf_values(self._action_space, answer)]
        if not leaves:
            return [self._packed(answer, batch)]
        counts = {len(frames) for frames in leaves}
        if len(counts) > 1:
            raise EndpointError("INTERNAL", f"{self._corner.name} returned chunks of {sorted(counts)} frames at once")
        frames: list[Leaves] = []
        for k in range(min(len(leaves[0]), self._horizon)):
            frame = _with_leaves(self._action_space, answer, iter([values[k] for values in leaves]))
            frames.append(self._packed(frame, batch))
        return frames

    def _by_frame(self, value: Any) -> Any:
        try:
            array = np.asarray(value)
        except ValueError as ragged:
            raise _no_frames(self._corner) from ragged
        if array.ndim < 2 or not array.shape[1]:
            raise _no_frames(self._corner)
        return array.swapaxes(0, 1)


class RowForm(_UserForm):
    """One call per row: the observation and the action are members of their spaces."""

    def decode(self, requests: Sequence[PredictRequest]) -> Batch:
        """A list with one observation per row, arrays the policy's own."""
        rows = [len(request.episode_info) for request in requests]
        observation = [
            self._observations.unpack_row(_observation(request), count, row)
            for request, count in zip(requests, rows, strict=True)
            for row in range(count)
        ]
        return Batch(requests, rows, len(observation), observation)

    def call(self, batch: Batch) -> Any:
        """A call per row, in order."""
        if self._plain:
            return [self._call(observation) for observation in batch.observation]
        return [
            self._call(observation, **self._row_words(request, row))
            for observation, (request, row) in zip(batch.observation, _each_row(batch), strict=True)
        ]

    def encode(self, batch: Batch, answer: Any) -> list[Leaves]:
        """One frame."""
        leaves = self._actions.pack_rows(answer)
        self._actions.check_members(leaves, batch.count)
        return [leaves]


class ChunkForm(RowForm):
    """As :class:`RowForm`, but each action has an axis of frames first on every leaf. The shortest chunk decides."""

    def encode(self, batch: Batch, answer: Any) -> list[Leaves]:
        """The first frames."""
        chunks = [self._frames_of_row(chunk) for chunk in answer]
        ones = [1] * batch.count
        return [self._actions.concatenate(frame, ones) for frame in zip(*chunks, strict=False)]

    def _frames_of_row(self, chunk: Any) -> list[Leaves]:
        values = _leaf_values(self._action_space, chunk)
        try:
            count = len(values[0]) if values else 1
        except TypeError:
            count = 0
        if not count:
            raise _no_frames(self._corner)
        leaves = self._actions.pack_members(chunk, count)
        return self._actions.split(leaves, [1] * count)[: self._horizon]


def _observation(request: PredictRequest) -> Leaves:
    if request.observation is None:
        raise SpaceError("$", "there is no observation")
    return request.observation


def _each_row(batch: Batch) -> Iterator[tuple[PredictRequest, int]]:
    for request, rows in zip(batch.requests, batch.rows, strict=True):
        for row in range(rows):
            yield request, row


def _context(request: PredictRequest, row: int) -> EpisodeContext:
    episode_id, seed = request.episode_info[row]
    return EpisodeContext(episode_id, seed, request.episode_steps[row] if request.episode_steps else None)


def _history(observations: SpaceCodec, request: PredictRequest, row: int) -> list[PastObservation]:
    return [
        PastObservation(
            None
            if past.observation is None
            else observations.unpack_row(past.observation, len(past.episode_info), row),
            past.episode_info[row].episode_id,
            past.step,
        )
        for past in request.history
    ]


def _check_count(space: gymnasium.Space[Any], action: Any, batch: Batch) -> None:
    """Raise when *action* has another number of rows than *batch*."""
    values = _leaf_values(space, action)
    try:
        given = len(values[0]) if values else batch.count
    except TypeError:
        return
    if given < batch.count and len(batch.requests) > 1:
        raise EndpointError("INTERNAL", "predict_grouped returned fewer results than prepared groups")
    if given != batch.count:
        raise EndpointError("INTERNAL", f"predict returned {given} actions for {batch.count} lanes")


def _no_frames(corner: Corner) -> EndpointError:
    return EndpointError("INTERNAL", f"{corner.name} returned no axis of frames, or an empty one")


def _leaf_values(space: gymnasium.Space[Any], value: Any) -> list[Any]:
    """The values at the leaves of *space*, as far as *value* has its structure."""
    values: list[Any] = []
    _walk(space, value, values.append)
    return values


def _with_leaves(space: gymnasium.Space[Any], value: Any, leaves: Iterator[Any]) -> Any:
    """*value* with other values at its leaves; where its structure is not that of *space* it stays as it is."""
    return _walk(space, value, lambda _: next(leaves))


def _walk(space: gymnasium.Space[Any], value: Any, at_leaf: Callable[[Any], Any]) -> Any:
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        if not isinstance(value, Mapping):
            return value
        given = cast("Mapping[str, Any]", value)
        return {key: _walk(children[key], part, at_leaf) if key in children else part for key, part in given.items()}
    if isinstance(space, spaces.Tuple):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        if not isinstance(value, (tuple, list)) or len(cast("Sequence[Any]", value)) != len(members):
            return cast("Any", value)
        parts = cast("Sequence[Any]", value)
        return tuple([_walk(member, part, at_leaf) for member, part in zip(members, parts, strict=True)])
    return at_leaf(value)
