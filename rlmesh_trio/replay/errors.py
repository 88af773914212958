"""What keeps a recording from being played again: another env or edition, or a recording that does not allow it."""

from collections.abc import Sequence

from rlmesh_trio.errors import SessionError
from rlmesh_trio.replay.findings import FieldDifference

__all__ = ("ContractChanged", "NotReplayable")

_TOLD = 3


class ContractChanged(SessionError):
    """What is live is not what was recorded; ``differences`` says by which fields. Nothing was reset or asked."""

    def __init__(self, differences: Sequence[FieldDifference]) -> None:
        super().__init__(tuple(differences))
        self.differences = tuple(differences)

    def __str__(self) -> str:
        told = [
            f"{each.path} was {' '.join(each.recorded.split())} and is {' '.join(each.now.split())}"
            for each in self.differences[:_TOLD]
        ]
        if len(self.differences) > _TOLD:
            told.append(f"{len(self.differences) - _TOLD} more")
        return f"this is not what was recorded: {'; '.join(told)} (force plays it all the same)"


class NotReplayable(SessionError):
    """The recording cannot be played in this way; ``why`` is one line that says what would be needed."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"not replayable: {self.why}"
