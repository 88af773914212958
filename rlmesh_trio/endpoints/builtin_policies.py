"""The two policies that look at no observation: ``random`` and ``zero``.

``random`` keeps one seeded copy of the action space per episode and draws from it once per asked frame, so what an
episode plays depends on its seed alone, not on lanes, batching or order. The space's seed is derived from the
episode's, lest actions and env draw the same numbers. An episode without a seed draws afresh, but in a lockstep vector,
where the env restarts its lanes unseeded, it goes on with its lane's last draws: a seeded run repeats there too.
"""

import copy
import pickle
from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.endpoints.policy_forms import Batch
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import EpisodeInfo, Leaves, PredictRequest
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace

__all__ = ("RandomForm", "ZeroForm")

_SEED_STREAM = 0x616374696F6E
_64_BITS = (1 << 64) - 1


class _BlindForm:
    """Reads no observation."""

    def __init__(self, actions: ValueSpace, horizon: int) -> None:
        self._actions = codec_for(actions)
        self._horizon = horizon

    def decode(self, requests: Sequence[PredictRequest]) -> Batch:
        """Only the rows are counted."""
        rows = [len(request.episode_info) for request in requests]
        return Batch(requests, rows, sum(rows), None)


class RandomForm(_BlindForm):
    """Uniform samples of the action space, ``horizon`` of them a predict."""

    def __init__(self, actions: ValueSpace, horizon: int) -> None:
        super().__init__(actions, horizon)
        self._space = copy.deepcopy(actions.space)
        self._samplers: dict[str, gymnasium.Space[Any]] = {}
        self._in_lockstep: dict[int, gymnasium.Space[Any]] = {}
        sample = self._sampler(EpisodeInfo("", 0))
        self._sampler_bytes = len(pickle.dumps(sample))
        try:
            drawn = sample.sample()
        except Exception as failure:
            raise SpaceError("$", f"random cannot draw from {actions.space}: {failure}") from failure
        self._actions.check_members(self._actions.pack_rows([drawn]), 1)

    @property
    def held(self) -> tuple[int, int]:
        """How many episodes have a sampler, and what those take when pickled."""
        return len(self._samplers), len(self._samplers) * self._sampler_bytes

    def call(self, batch: Batch) -> list[list[Any]]:
        """For each row its next actions."""
        frames = range(self._horizon)
        samplers = [sampler for request in batch.requests for sampler in self._samplers_of(request.episode_info)]
        return [[sampler.sample() for _ in frames] for sampler in samplers]

    def encode(self, _: Batch, answer: list[list[Any]]) -> list[Leaves]:
        """The frames; samples need no check."""
        return [self._actions.pack_rows(frame) for frame in zip(*answer, strict=True)]

    def end_episode(self, episode_id: str) -> None:
        """Forget the episode's sampler."""
        self._samplers.pop(episode_id, None)

    def _samplers_of(self, rows: Sequence[EpisodeInfo]) -> list[gymnasium.Space[Any]]:
        if len(rows) == 1:
            return [self._sampler(rows[0])]
        for lane, info in enumerate(rows):
            if info.seed is None and lane in self._in_lockstep:
                self._samplers.setdefault(info.episode_id, self._in_lockstep[lane])
            self._in_lockstep[lane] = self._sampler(info)
        return [self._in_lockstep[lane] for lane in range(len(rows))]

    def _sampler(self, info: EpisodeInfo) -> gymnasium.Space[Any]:
        sampler = self._samplers.get(info.episode_id)
        if sampler is None:
            sampler = copy.deepcopy(self._space)
            sampler.seed(None if info.seed is None else _derived(info.seed))
            if info.episode_id:
                self._samplers[info.episode_id] = sampler
        return sampler


class ZeroForm(_BlindForm):
    """The same action always: zero, or what of the space comes nearest, for every leaf; a text as short as allowed."""

    held = (0, 0)

    def __init__(self, actions: ValueSpace, horizon: int) -> None:
        super().__init__(actions, horizon)
        self._action = _nearest_zero(actions.space)
        self._actions.check_members(self._actions.pack_rows([self._action]), 1)

    def call(self, batch: Batch) -> list[Any]:
        """The action for each row."""
        return [self._action] * batch.count

    def encode(self, _: Batch, answer: list[Any]) -> list[Leaves]:
        """The same frame for the whole horizon."""
        return [self._actions.pack_rows(answer)] * self._horizon

    def end_episode(self, _: str) -> None:
        """Nothing is held."""


def _derived(seed: int) -> int:
    sequence = np.random.SeedSequence((_SEED_STREAM, seed & _64_BITS))
    return int(sequence.generate_state(1, np.uint64)[0])


def _nearest_zero(space: gymnasium.Space[Any]) -> Any:
    members: Any
    match space:
        case spaces.Dict():
            members = cast("Any", space).spaces
            return {key: _nearest_zero(member) for key, member in members.items()}
        case spaces.Tuple():
            members = cast("Any", space).spaces
            return tuple([_nearest_zero(member) for member in members])
        case spaces.Box():
            return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        case spaces.Discrete():
            first, last = int(space.start), int(space.start + space.n - 1)
            return min(max(0, first), last)
        case spaces.Text():
            return space.character_list[0] * space.min_length if space.min_length else ""
        case _:
            return np.zeros(space.shape or (), space.dtype)
