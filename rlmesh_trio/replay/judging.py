"""A recording played again and judged: whether the same happens, and if not where first, why, and who is to blame."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from rlmesh_trio.errors import SessionError
from rlmesh_trio.recording.reader import open_recording
from rlmesh_trio.recording.records import CASE
from rlmesh_trio.recording.repeatability import why_not_repeatable
from rlmesh_trio.replay.bisection import Cause, acts_otherwise, bisect
from rlmesh_trio.replay.blame import Blamed, ModelAnswers, find_blame, question_model
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.findings import Comparison, Divergence
from rlmesh_trio.replay.focus import Focus, focus_on
from rlmesh_trio.replay.live import Live
from rlmesh_trio.replay.plays import Mode, Played, Plays
from rlmesh_trio.replay.returns import ReturnsCompared, compare_returns

__all__ = ("Entering", "Judgement", "Wanted", "judge", "mode_of")

T = TypeVar("T")

Entering = Callable[[str, int], None]
"""Called with the name of each stage and how many episodes it plays, 0 for many; the play itself has no name."""


@attrs.frozen(kw_only=True)
class Wanted:
    """What is to be found out.

    Of all ``episodes``, or these; of recorded actions none past the step ``until``; in so many ``runs``, which are also
    compared with each other. A run (i) that differs is followed by ``blame``, and one of an env that does by
    ``bisect``, which looks for the episodes that it hangs on. With ``returns`` nothing else is compared than these and
    lengths.
    """

    episodes: tuple[int, ...] | None = None
    until: int | None = None
    runs: int = 1
    blame: bool = False
    bisect: bool = True
    returns: bool = False


@attrs.define(eq=False, kw_only=True)
class Judgement:
    """What is found out, part by part.

    ``played`` is the first play that differs, or the first; ``traces`` has for several runs how many of them did the
    same, the most first, and ``as_recorded`` how many did as recorded. ``remarks`` say what could not be found out.
    """

    mode: Mode
    comparison: Comparison | None = None
    played: Played | None = None
    traces: tuple[int, ...] = ()
    as_recorded: int = 0
    returns: ReturnsCompared | None = None
    model: ModelAnswers | None = None
    focus: Focus | None = None
    cause: Cause | None = None
    blamed: Blamed | None = None
    remarks: list[str] = attrs.field(factory=list[str])

    @property
    def is_refused(self) -> bool:
        """Whether nothing was played, because what is live is not what was recorded."""
        return self.played is None and self.comparison is not None

    def take(self, played: Played) -> None:
        """Note the play that is told of."""
        self.played, self.comparison = played, played.comparison


def _unheard(stage: str, episodes: int) -> None:
    """Listens to nothing."""


def mode_of(live: Live) -> Mode:
    """In which mode a recording is played with what is *live*. Raises :exc:`NotReplayable` when that is nothing."""
    if live.env is None and live.model is None:
        raise NotReplayable("nothing is live: name an env, a model or both")
    return "iii" if live.env is None else "ii" if live.model is None else "i"


async def judge(plays: Plays, wanted: Wanted, judgement: Judgement, *, entering: Entering = _unheard) -> None:
    """Play the recording again and fill in *judgement*: what is found out stands there even when this is cancelled.

    *entering* is told of each stage. Raises what keeps the first play from anything that can be compared; what breaks
    off a later one is a remark.
    """
    try:
        played = await _runs(plays, wanted, judgement, entering)
    except ContractChanged as changed:
        judgement.comparison = Comparison(contract=changed.differences)
        return
    if played.failure is not None or wanted.returns:
        return
    count, parts_at = played.comparison.compared, played.parts_at
    if judgement.mode == "i" and played.differs:
        judgement.remarks += [f"of this run: {why}" for why in why_not_repeatable(plays.recording.header)]
    if judgement.mode == "iii":
        entering("asking the model otherwise", 0)
        judgement.model = await _tried(judgement, "asking otherwise", question_model(plays, played, wanted.episodes))
        return
    if parts_at is not None and not parts_at.values_known and not acts_otherwise(parts_at):
        entering(f"episode {parts_at.ordinal} twice", 2)
        judgement.focus = await _tried(judgement, "playing it twice", focus_on(plays, parts_at))
    if parts_at is not None and wanted.bisect and count > 1:
        await _bisect(plays, played, parts_at, judgement, entering)
    if wanted.blame and played.differs and judgement.mode == "i":
        entering("env and model one by one", 2 * count)
        judgement.blamed = await find_blame(plays, wanted.episodes)


async def _bisect(plays: Plays, played: Played, parts_at: Divergence, judgement: Judgement, entering: Entering) -> None:
    header = plays.recording.header
    if header.seed_rule == "by=lane" or CASE in header.settings:
        judgement.remarks.append("not bisected: these episodes hang on what their lanes played before")
        return
    entering(f"what does episode {parts_at.ordinal} hang on?", 0)
    judgement.cause = await _tried(judgement, "bisecting", bisect(plays, played, parts_at))


async def _runs(plays: Plays, wanted: Wanted, judgement: Judgement, entering: Entering) -> Played:
    """Play so often as is wanted; the play that is told of."""
    told: Played | None = None
    traces: list[list[Played]] = []
    for run in range(wanted.runs):
        count = len(wanted.episodes or plays.recording.entries)
        entering("" if wanted.runs == 1 else f"run {run + 1} of {wanted.runs}", count)
        played = await _play(plays, wanted, judgement.mode)
        if told is None or (_went_otherwise(played) and not _went_otherwise(told)):
            told = played
            judgement.take(played)
        if wanted.returns and judgement.returns is None:
            with open_recording(played.path) as now:
                judgement.returns = compare_returns(plays.recording, now, episodes=wanted.episodes)
        judgement.as_recorded += not _went_otherwise(played)
        same = [trace for trace in traces if plays.compare(trace[0].path, played.path, wanted.episodes).equal]
        if same:
            same[0].append(played)
        else:
            traces.append([played])
        judgement.traces = tuple(sorted((len(trace) for trace in traces), reverse=True))
        if same and played is not told:
            plays.discard(played)
    assert told is not None
    return told


def _went_otherwise(played: Played) -> bool:
    return played.differs or played.failure is not None


async def _play(plays: Plays, wanted: Wanted, mode: Mode) -> Played:
    match mode:
        case "i":
            return await plays.closed(wanted.episodes)
        case "ii":
            return await plays.actions(wanted.episodes, until=wanted.until)
        case "iii":
            return await plays.observations(wanted.episodes)


async def _tried(judgement: Judgement, what: str, finding: Awaitable[T]) -> T | None:
    """What comes of *finding*; ``None``, and a remark, when it is broken off."""
    try:
        return await finding
    except SessionError as failure:
        judgement.remarks.append(f"{what} broke off: {failure}")
        return None
