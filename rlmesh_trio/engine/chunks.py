"""One group's plan: the frames being played, those banked behind them, and the observations no predict has taken.

Pure. The predict state is one of ``NONE`` (nothing outstanding), ``WANTED`` (asked for, not yet sent), ``FLYING``
(sent), ``STALE`` (sent, but the answer will be dropped) and ``BANKED`` (answered while older frames still play).
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import HistoryRow, Leaves, PredictRequest
from rlmesh_trio.spec import MAX_HISTORY_ROWS

__all__ = ("ChunkBuffer", "PredictState")


class PredictState(Enum):
    """Where the group's one outstanding predict stands."""

    NONE = auto()
    WANTED = auto()
    FLYING = auto()
    STALE = auto()
    BANKED = auto()


_NONE, _WANTED, _FLYING, _STALE, _BANKED = PredictState


class ChunkBuffer:
    """Replay, prefetch, staleness and history of one group.

    ``lead`` is how many frames may be left when the next chunk is asked for; 0 asks only when none are left. A
    request returned by :meth:`observe`, :meth:`prefetch` or :meth:`replan` is WANTED: the caller must post it.
    """

    def __init__(self, *, lead: int, history: bool) -> None:
        self.state = _NONE
        self.counter = 0
        self.lead = lead
        self._history = history
        self._frames: deque[Leaves] = deque()
        self._bank: tuple[Leaves, ...] = ()
        self._backlog: list[HistoryRow] = []
        self._latest: PredictRequest | None = None
        self._wanted: PredictRequest | None = None

    def observe(self, request: PredictRequest) -> PredictRequest | None:
        """Take in the group's newest observation; the request to post, if one is due now."""
        self._latest = request
        due = self.state is _NONE and not self._frames
        if self._history:
            request.step = self.counter
            if due:
                request.history = tuple(self._backlog)
                self._backlog.clear()
            else:
                if len(self._backlog) >= MAX_HISTORY_ROWS:
                    raise ProtocolError(
                        f"buffered {len(self._backlog)} observation-history rows without a predict; "
                        "use a shorter chunk or a model that needs no history"
                    )
                self._backlog.append(HistoryRow(request.observation, request.episode_info, self.counter))
        return self._want(request) if due else None

    def take(self) -> Leaves | None:
        """The next frame, ``None`` while there is none; a bank becomes the plan when the plan is used up."""
        frames = self._frames
        if not frames:
            if self.state is not _BANKED:
                return None
            frames.extend(self._bank)
            self._bank = ()
            self.state = _NONE
        return frames.popleft()

    def prefetch(self) -> PredictRequest | None:
        """The request to post after a frame was taken, if the plan has run down to the lead."""
        if self.lead and self.state is _NONE and len(self._frames) <= self.lead:
            return self.replan()
        return None

    def replan(self) -> PredictRequest | None:
        """Ask again from the newest observation; ``None`` if that one has already left the group (history only)."""
        request = self._latest
        if request is None or self.state is not _NONE:
            return None
        if self._history:
            if not self._backlog or self._backlog[-1].step != request.step:
                return None
            self._backlog.pop()
            request.history = tuple(self._backlog)
            self._backlog.clear()
        return self._want(request)

    def _want(self, request: PredictRequest) -> PredictRequest:
        self._wanted = request
        self.state = _WANTED
        return request

    def withdraw(self) -> None:
        """Take back what was asked for and not yet sent; the observations it carries wait for a later request."""
        request = self._wanted
        if self.state is not _WANTED or request is None:
            return
        self.state = _NONE
        if self._history:
            own = HistoryRow(request.observation, request.episode_info, request.step or 0)
            self._backlog = [*request.history, own, *self._backlog]
            request.history = ()

    def sent(self) -> None:
        """The wanted request went out."""
        self.state = _FLYING

    def land(self, frames: Iterable[Leaves]) -> None:
        """The answer came: it becomes the plan, waits behind the one still playing, or is dropped as stale."""
        if self.state is _STALE:
            self.state = _NONE
        elif self._frames:
            self._bank = tuple(frames)
            self.state = _BANKED
        else:
            self._frames.extend(frames)
            self.state = _NONE

    def drop_plan(self) -> int:
        """An episode of the group ended: forget every buffered frame and disown what is outstanding.

        Returns how many frames of the playing chunk were discarded.
        """
        discarded = len(self._frames)
        self._frames.clear()
        self._bank = ()
        self.withdraw()
        if self.state is _FLYING:
            self.state = _STALE
        elif self.state is _BANKED:
            self.state = _NONE
        return discarded

    def begin_reset(self) -> None:
        """A driver-owned reset begins: the plan and the history backlog are cleared, what flies keeps flying."""
        self._frames.clear()
        self._backlog.clear()
        self._latest = None
