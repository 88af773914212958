"""What a person at a terminal sees while a recording is played again: one line."""

import trio

__all__ = ("ReplayProgress",)

_REDRAW_SECONDS = 0.2


class ReplayProgress:
    """Where plays of *total* episodes stand."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._stage = ""

    def enter(self, stage: str, total: int) -> None:
        """Begin to play *total* episodes, 0 if nobody knows; *stage* says what for, empty for the play itself."""
        self._stage, self.total, self.done = stage, total, 0

    def ended(self) -> None:
        """Count one episode."""
        self.done += 1

    def line(self) -> str:
        """The figures in one line."""
        of_all = f"/{self.total:,}" if self.total >= self.done else ""
        figures = f"{self.done:,}{of_all} episode{'s' * (self.done != 1 or bool(of_all))}"
        return f"{self._stage}: {figures}" if self._stage else figures

    async def next_look(self) -> None:
        """Return after a moment."""
        await trio.sleep(_REDRAW_SECONDS)
