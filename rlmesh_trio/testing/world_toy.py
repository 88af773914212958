"""The toy that simulated worlds play: what an episode contains, and what a policy makes of it. Pure arithmetic.

Every observation names its episode (a serial number) and its step, and its state is a function of the episode's token
and of every action so far. So whatever gets mixed up, between lanes, episodes or steps, changes what is seen.
"""

import struct
from typing import Final

import attrs

__all__ = ("ACTION_BYTES", "OBSERVATION_BYTES", "Draws", "Toy", "ToyAction", "ToyObservation", "frames_for", "mix")

_OBSERVATION: Final = struct.Struct("<IIQ")
_ACTION: Final = struct.Struct("<IIQ")
OBSERVATION_BYTES: Final = _OBSERVATION.size
ACTION_BYTES: Final = _ACTION.size

_MASK: Final = 2**64 - 1


def mix(*numbers: int) -> int:
    """A number of 64 bits that depends on all of *numbers* and on their order."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = (mixed ^ (number & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed ^= mixed >> 31
    return mixed


@attrs.frozen
class ToyObservation:
    """One row of an observation: which episode, which step of it, and the state a policy goes by."""

    serial: int
    step: int
    state: int

    def pack(self) -> bytes:
        """The row as it travels."""
        return _OBSERVATION.pack(self.serial, self.step, self.state)

    @classmethod
    def unpack_rows(cls, leaf: bytes | memoryview) -> list["ToyObservation"]:
        """The rows of a leaf; raises :exc:`ValueError` if it does not hold whole rows."""
        try:
            return [cls(*numbers) for numbers in _OBSERVATION.iter_unpack(leaf)]
        except struct.error as error:
            raise ValueError(f"{len(leaf)} bytes are no rows of {OBSERVATION_BYTES}") from error


@attrs.frozen
class ToyAction:
    """One row of an action: the episode and step of the observation it was made for, and the move itself."""

    serial: int
    step: int
    move: int

    def pack(self) -> bytes:
        """The row as it travels."""
        return _ACTION.pack(self.serial, self.step, self.move)

    @classmethod
    def unpack_rows(cls, leaf: bytes | memoryview) -> list["ToyAction"]:
        """The rows of a leaf; raises :exc:`ValueError` if it does not hold whole rows."""
        try:
            return [cls(*numbers) for numbers in _ACTION.iter_unpack(leaf)]
        except struct.error as error:
            raise ValueError(f"{len(leaf)} bytes are no rows of {ACTION_BYTES}") from error


def frames_for(
    rows: list[ToyObservation], seeds: list[int | None], *, salt: int, longest: int, varied: bool
) -> list[list[ToyAction]]:
    """The pure policy: per frame one action for each of *rows*, a function of the states and the *seeds* alone.

    A chunk has *longest* frames or, if it is *varied*, up to so many as the first row's state says.
    """
    count = 1 + rows[0].state % longest if varied else longest
    return [
        [
            ToyAction(row.serial, row.step, mix(salt, row.state, -1 if seed is None else seed, frame))
            for row, seed in zip(rows, seeds, strict=True)
        ]
        for frame in range(count)
    ]


class Draws:
    """What a lane draws its episodes from: a reset with a seed begins anew, every other start goes on."""

    def __init__(self, salt: int, lane: int) -> None:
        self._salt = salt
        self._stream = mix(salt, lane)
        self._drawn = 0

    def token(self, seed: int | None = None) -> int:
        """The token of the lane's next episode."""
        if seed is not None:
            self._stream, self._drawn = mix(self._salt, seed), 0
        self._drawn += 1
        return mix(self._stream, self._drawn)


class Toy:
    """One episode: over after a number of steps, up to *longest*, that its *token* tells (never, if that is none)."""

    def __init__(self, token: int, longest: int | None) -> None:
        self.token = token
        self.state = token
        self.step = 0
        self.reward = 0.0
        self.total = 0.0
        self.length = None if longest is None else 1 + token % longest

    def move(self, move: int) -> None:
        """Take one step. ``reward`` is a multiple of 1/4, so that sums are exact in any order."""
        self.step += 1
        self.state = mix(self.state, move, self.step)
        self.reward = (self.state % 17 - 8) / 4
        self.total += self.reward

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.length is not None and self.step >= self.length

    @property
    def terminated(self) -> bool:
        """How it ended: terminated, or else truncated."""
        return self.state % 3 != 0

    @property
    def success(self) -> bool | None:
        """What its infos say of success; most say nothing of it."""
        return (None, None, True, False)[self.state >> 8 & 3]
