"""What the model peer decides, in numpy: an action follows from one observation and the place in the chunk."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

__all__ = (
    "POLICIES",
    "Decide",
    "act",
    "act_chunk",
    "act_chunk_rows",
    "act_rows",
    "cartpole",
    "counter",
    "crowded",
    "kitchen",
    "row_count",
)

Decide = Callable[[Any, int], Any]


def counter(observation: Any, ahead: int) -> Any:
    """Step through the three actions: the next step's number modulo 3."""
    return np.int64((int(observation[0]) + 1 + ahead) % 3)


def cartpole(observation: Any, ahead: int) -> Any:
    """Push to the side the pole falls to."""
    return np.int64(observation[2] + 0.1 * observation[3] > 0)


def kitchen(observation: Any, ahead: int) -> Any:
    """Always the same move, and as many picks as bits are set."""
    bits = int(np.asarray(observation["alpha"]["bits"]).sum())
    return {"move": np.array([0.5, -0.25], np.float32), "pick": np.int64((bits + ahead) % 4)}


def arm(observation: Any, ahead: int) -> Any:
    """One further than the joints are."""
    return np.asarray(observation["joints"], np.float32) + np.float32(1 + ahead)


def crowded(observation: Any, ahead: int) -> Any:
    """As the counter, and one further for each row of its batch."""
    return counter(observation, ahead)


POLICIES: dict[str, Decide] = {
    "counter": counter,
    "cartpole": cartpole,
    "kitchen": kitchen,
    "arm": arm,
    "crowded": crowded,
}
FLAT_POLICIES = (counter, cartpole, crowded)


def act(decide: Decide, observation: Any) -> Any:
    """The action for an observation, or the batch of actions when a flat observation comes with a row axis."""
    if decide in FLAT_POLICIES and np.ndim(observation) == 2:
        return act_rows(decide, observation)
    return decide(observation, 0)


def act_rows(decide: Decide, observations: Any) -> Any:
    rows = row_count(observations)
    return stack([decide(row(observations, index), rows if decide is crowded else 0) for index in range(rows)])


def act_chunk(decide: Decide, observation: Any, length: int) -> Any:
    return stack([decide(observation, ahead) for ahead in range(length)])


def act_chunk_rows(decide: Decide, observations: Any, length: int) -> Any:
    return stack([act_chunk(decide, row(observations, index), length) for index in range(row_count(observations))])


def row_count(observations: Any) -> int:
    """Rows of a batched observation, read off its first leaf."""
    while isinstance(observations, Mapping | tuple):
        nested = cast("Mapping[str, Any] | tuple[Any, ...]", observations)
        observations = next(iter(nested.values())) if isinstance(nested, Mapping) else nested[0]
    return len(observations)


def row(observations: Any, index: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: row(part, index) for key, part in cast("Mapping[str, Any]", observations).items()}
    if isinstance(observations, tuple):
        return tuple(row(part, index) for part in cast("tuple[Any, ...]", observations))
    return observations[index]


def stack(actions: list[Any]) -> Any:
    if isinstance(actions[0], Mapping):
        return {key: stack([action[key] for action in actions]) for key in cast("Mapping[str, Any]", actions[0])}
    return np.stack(actions)
