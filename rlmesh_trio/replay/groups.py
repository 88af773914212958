"""What a recorded run showed its model, and where the answers went: rebuilt from the ticks, in their order. Pure.

A *group* is a lane, or all lanes where they moved together. It showed one observation after each answer of the env, and
had at most one request out. The frames of its answers are played one after the other; those of an answer to what it
showed before an episode of it ended are dropped, and so is what was still to be played then.
"""

from collections import deque
from collections.abc import Callable, Sequence

import attrs

from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.messages import EnvReply, EpisodeInfo, Leaves
from rlmesh_trio.recording.reader import Recording, follow
from rlmesh_trio.recording.records import Episode, Tick
from rlmesh_trio.replay.errors import NotReplayable
from rlmesh_trio.replay.live import lanes_in_lockstep
from rlmesh_trio.spec import MAX_HISTORY_ROWS

__all__ = ("Group", "Groups", "Key", "Shown")

Key = tuple[tuple[int, int], ...]
"""By row the ordinal of the episode and the step; (0, 0) for what the budget did not count."""


@attrs.frozen(eq=False)
class Shown:
    """One observation of a group, by row: its leaves, whose it is, and after how many steps of that episode.

    ``counter`` counts the group's steps over all its episodes.
    """

    group: "Group"
    key: Key
    counter: int
    generation: int
    rows: tuple[Leaves, ...]
    infos: tuple[EpisodeInfo, ...]
    steps: tuple[int, ...]

    @property
    def is_stale(self) -> bool:
        """Whether an episode of the group has ended since."""
        return self.generation != self.group.generation


@attrs.define(eq=False)
class _Lane:
    """The episode a lane is in; ``over`` when it has ended."""

    ordinal: int = 0
    steps: int = 0
    episode_id: str = ""
    seed: int | None = None
    over: bool = True
    row: Leaves = ()


class Group:
    """One group: what it showed of late, what of it no request has carried yet, and the frames it has to play."""

    def __init__(self, lanes: tuple[int, ...], window: int) -> None:
        self.lanes = lanes
        self.counter = 0
        self.generation = 0
        self.shown: deque[Shown] = deque(maxlen=window)
        self.unsent: list[Shown] = []
        self._frames: deque[Sequence[Leaves]] = deque()
        self._ahead = 0

    @property
    def left(self) -> int:
        """How many frames are left to play."""
        return len(self._frames)

    @property
    def may_ask_ahead(self) -> bool:
        """Whether no answer waits behind the frames that are being played."""
        return not self._ahead

    def land(self, frames: Sequence[Sequence[Leaves]]) -> None:
        """An answer's frames, each by row."""
        self._ahead = len(frames) if self._frames else 0
        self._frames.extend(frames)

    def take(self) -> Sequence[Leaves] | None:
        """The next frame; ``None`` while there is none."""
        if not self._frames:
            return None
        if len(self._frames) == self._ahead:
            self._ahead = 0
        return self._frames.popleft()

    def send(self, shown: Shown) -> list[Shown]:
        """A request with *shown* goes out; what it carries besides: all that no request has carried yet."""
        history = [each for each in self.unsent if each.counter < shown.counter]
        self.unsent = [each for each in self.unsent if each.counter > shown.counter]
        return history

    def end_plan(self) -> None:
        """An episode of the group is over."""
        self.drop_frames()
        self.generation += 1

    def drop_frames(self) -> None:
        """Nothing is left to play."""
        self._frames.clear()
        self._ahead = 0


class Groups:
    """The groups of *recording*, whose ticks they take in order.

    *lead* is how many frames could be left when the next answer was asked for. With *history* what no request has
    carried is kept. ``ended`` is called with the id of each episode that is over.
    """

    def __init__(
        self, recording: Recording, *, lead: int, history: bool, new_id: Callable[[], str], ended: Callable[[str], None]
    ) -> None:
        contract = recording.header.contract
        width = max(1, contract.num_envs)
        everyone = tuple(range(width))
        together = width > 1 and lanes_in_lockstep(recording.header) > 1
        # What a request may be about that is still out: it was sent with at most `lead` frames left, an end and a
        # beginning may follow.
        window = lead + 4
        self.all = [Group(everyone, window)] if together else [Group((lane,), window) for lane in everyone]
        self._of = {lane: group for group in self.all for lane in group.lanes}
        self._lanes = [_Lane() for _ in everyone]
        self._restarts = contract.autoreset_mode == AutoresetMode.NEXT_STEP
        self._cut = recording.digester.observations.cut
        self._ledger = recording.ledger()
        self._asks_ahead = lead > 0
        self._history = history
        self._new_id = new_id
        self._ended = ended

    def of(self, lanes: Sequence[int]) -> list[Group]:
        """The groups that *lanes* belong to, each once."""
        return list(dict.fromkeys(self._of[lane] for lane in lanes))

    def find(self, key: Key) -> Shown:
        """What was asked about as *key*. Raises :exc:`NotReplayable` when that is not, or not without doubt, known."""
        found = [shown for group in self.all for shown in group.shown if shown.key == key]
        if len(found) == 1:
            return found[0]
        ordinal, step = next((row for row in key if row[0]), (0, 0))
        why = "shows only once it is over or not at all" if not found else "shows twice, as the episode was begun again"
        raise NotReplayable(f"the model was asked about step {step} of episode {ordinal}, which the recording {why}")

    def lives(self, episode_id: str) -> bool:
        """Whether a lane is in this episode."""
        return any(lane.episode_id == episode_id and not lane.over for lane in self._lanes)

    def follow(self, entry: Tick | Episode) -> None:
        """Take in what came next."""
        over = {episode.lane for episode in follow(self._ledger, entry)}
        if isinstance(entry, Episode):
            self._end(over)
        elif entry.reply is None:
            self._end(entry.lanes)
            if not self._asks_ahead:
                for group in self.of(entry.lanes):
                    group.shown.clear()
        elif entry.reset is not None:
            self._begin(entry, entry.reply, entry.reset.seeds)
        else:
            self._step(entry, entry.reply, over)

    def _begin(self, tick: Tick, reply: EnvReply, seeds: Sequence[int]) -> None:
        self._end(tick.lanes)
        for row, lane in enumerate(tick.lanes):
            begins = tick.begins[row] if tick.begins else 0
            self._start(lane, begins, seeds[row] if row < len(seeds) else None)
        for group in self.of(tick.lanes):
            group.drop_frames()
            group.unsent.clear()
        self._show(tick, reply)

    def _step(self, tick: Tick, reply: EnvReply, over: set[int]) -> None:
        for group in self.of(tick.lanes):
            group.counter += 1
        for row, (lane, begins) in enumerate(zip(tick.lanes, tick.begins or (0,) * len(tick.lanes), strict=True)):
            playing = self._lanes[lane]
            if begins or (playing.over and self._restarts):
                self._start(lane, begins, None)
            else:
                playing.steps += 1
            if any(mask[row : row + 1] == b"\x01" for mask in (reply.terminated_mask, reply.truncated_mask)):
                over.add(lane)
        self._end(over)
        self._show(tick, reply)

    def _start(self, lane: int, ordinal: int, seed: int | None) -> None:
        playing = self._lanes[lane]
        playing.ordinal, playing.steps, playing.seed = ordinal, 0, seed
        playing.episode_id = self._new_id()
        playing.over = False

    def _end(self, lanes: Sequence[int] | set[int]) -> None:
        ending = [lane for lane in lanes if not self._lanes[lane].over]
        for lane in ending:
            self._lanes[lane].over = True
            self._ended(self._lanes[lane].episode_id)
        for group in self.of(ending):
            group.end_plan()

    def _show(self, tick: Tick, reply: EnvReply) -> None:
        if reply.observation is None:
            return
        for lane, row in zip(tick.lanes, self._cut(reply.observation, len(tick.lanes)), strict=True):
            self._lanes[lane].row = row
        for group in self.of(tick.lanes):
            lanes = [self._lanes[lane] for lane in group.lanes]
            shown = Shown(
                group,
                tuple([(lane.ordinal, lane.steps) if lane.ordinal else (0, 0) for lane in lanes]),
                group.counter,
                group.generation,
                tuple([lane.row for lane in lanes]),
                tuple([EpisodeInfo(lane.episode_id, lane.seed) for lane in lanes]),
                tuple([lane.steps for lane in lanes]),
            )
            group.shown.append(shown)
            if self._history:
                if len(group.unsent) > MAX_HISTORY_ROWS:
                    raise NotReplayable(
                        f"the model wants the past, and {len(group.unsent)} observations went by without a predict: "
                        "more than a request may carry"
                    )
                group.unsent.append(shown)
