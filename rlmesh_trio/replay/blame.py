"""Whether the env, the model or only the pair of them makes a run differ: each is played again with the other recorded.

:func:`verdict_of` and :func:`blame_of` decide, and are pure; the others play what these go by.
"""

from collections.abc import Sequence
from typing import Literal

import attrs

from rlmesh_trio.errors import SessionError
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import Batch
from rlmesh_trio.replay.plays import Played, Plays

__all__ = ("Blame", "Blamed", "ModelAnswers", "Verdict", "blame_of", "find_blame", "question_model", "verdict_of")

Verdict = Literal["repeats", "batch", "random", "other"]
Blame = Literal["env", "model", "both", "pair", "unknown"]


@attrs.frozen
class ModelAnswers:
    """What a model answers to recorded observations.

    ``verdict``: it ``repeats`` what was recorded; its answers hang on the ``batch`` it is asked in, or on how often it
    is asked; they are ``random``; or it repeats itself and answers something ``other`` than recorded. ``batched`` is
    the play with the recorded batches, and ``single`` the one with every row by itself, where any batch had several.
    """

    verdict: Verdict
    batched: Played
    single: Played | None = None

    @property
    def differs(self) -> bool:
        """Whether it need not answer as recorded."""
        return self.verdict != "repeats"


def verdict_of(*, batched: bool, single: bool | None, again: bool | None) -> Verdict:
    """What kind of model answers so: *batched* and *single* say whether it answers as recorded when it is asked so.

    *again* says whether it answers alike when it is asked in batches twice. ``None`` is for what was not tried.
    """
    if again is False:
        return "random"
    if batched:
        return "batch" if single is False else "repeats"
    return "batch" if single else "other"


@attrs.frozen
class Blamed:
    """Who is to blame, by what ``env`` did with the recorded actions and ``model`` with the recorded observations.

    Either is ``None`` when it could not be tried; ``why`` says why then, in one line.
    """

    blame: Blame
    env: Played | None
    model: ModelAnswers | None
    why: str = ""


def blame_of(env_differs: bool | None, model_differs: bool | None) -> Blame:
    """Who is to blame for a run that differs; ``None`` is for what could not be tried."""
    match env_differs, model_differs:
        case True, True:
            return "both"
        case True, _:
            return "env"
        case _, True:
            return "model"
        case False, False:
            return "pair"
        case _:
            return "unknown"


async def question_model(
    plays: Plays, batched: Played, episodes: Sequence[int] | None = None, *, source: str | None = None
) -> ModelAnswers:
    """Find out what kind of model it is that answered in *batched*, whose file is kept: the first of its plays.

    It is asked row by row, if a recorded batch has several, and once more as in *batched* if it ever differs. A
    *source* tells of no batches: from it the model is asked row by row alone. What breaks a play off is raised.
    """
    single = None
    if source is None and _is_batched(plays.recording):
        single = await plays.observations(episodes, batches="single")
    again = None
    if any(_whole(play).differs for play in (batched, single) if play is not None):
        once_more = await _asked(plays, episodes, source)
        again = plays.compare(batched.path, _whole(once_more).path, episodes).equal
    alone = None if single is None else not single.differs
    return ModelAnswers(verdict_of(batched=not batched.differs, single=alone, again=again), batched, single)


async def find_blame(plays: Plays, episodes: Sequence[int] | None = None) -> Blamed:
    """Play the recorded actions into the env and the recorded observations into the model.

    Of a recording without observations the env has to show them again: when it does as recorded, its observations are.
    """
    env, model, why = None, None, ""
    is_full = plays.recording.header.level == "full"
    try:
        env = _whole(await plays.actions(episodes, level="full"))
        if is_full or not env.differs:
            source = None if is_full else env.path
            model = await question_model(plays, await _asked(plays, episodes, source), episodes, source=source)
        else:
            why = (
                "the model was not tried: the recording has digests of its observations only, and the env shows others"
            )
    except SessionError as failure:
        why = str(failure)
    return Blamed(
        blame_of(None if env is None else env.differs, None if model is None else model.differs), env, model, why
    )


async def _asked(plays: Plays, episodes: Sequence[int] | None, source: str | None) -> Played:
    return await plays.observations(episodes, source=source, batches="recorded" if source is None else "single")


def _is_batched(recording: Recording) -> bool:
    """Whether any recorded call to the model had several rows."""
    batches = (decision.what for decision in recording.decisions())
    return any(len(batch.rows) > 1 for batch in batches if isinstance(batch, Batch))


def _whole(played: Played) -> Played:
    if played.failure is not None:
        raise played.failure
    return played
