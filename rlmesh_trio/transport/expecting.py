"""Whether the next answer is worth watching for, by what became of those before.

To fall asleep for an answer and be woken costs some 100 us on a small machine, and to watch for it costs a core. So an
answer is watched for when the last one came within a millisecond. Where watching goes wrong, as other programs want
the core too and each look around costs a slice of their time, answers have to come soon twice as often as before until
the next try.
"""

__all__ = ("Expecting",)

# Nanoseconds.
_SOON = 1_000_000
_LONGEST_PROBATION = 1024
# After so many answers that were watched for with success, a late one says nothing about watching.
_GOOD_RECORD = 32


class Expecting:
    """The record of one connection's answers."""

    __slots__ = ("_probation", "_soon_in_a_row", "_watched_in_a_row")

    def __init__(self) -> None:
        self._soon_in_a_row = 0
        self._watched_in_a_row = 0
        self._probation = 1

    @property
    def is_worth_watching(self) -> bool:
        """Whether the next answer is to be watched for."""
        return self._soon_in_a_row >= self._probation

    @staticmethod
    def is_soon(elapsed_ns: int) -> bool:
        """Whether an answer that comes after *elapsed_ns* is worth having been watched for."""
        return elapsed_ns < _SOON

    def came(self, elapsed_ns: int, *, watched: bool) -> None:
        """An answer came after *elapsed_ns*; *watched* if it was watched for, at least at first."""
        if self.is_soon(elapsed_ns):
            self._soon_in_a_row += 1
            self._watched_in_a_row += watched
            return
        if watched:
            excused = self._watched_in_a_row >= _GOOD_RECORD
            self._probation = 1 if excused else min(2 * self._probation, _LONGEST_PROBATION)
        self._soon_in_a_row = self._watched_in_a_row = 0
