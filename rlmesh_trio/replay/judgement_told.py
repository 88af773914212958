"""A judgement told: to people in plain lines, to programs as a document that JSON can hold. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rlmesh_trio.replay.bisection import Cause
from rlmesh_trio.replay.blame import Blame, Blamed, ModelAnswers, Verdict
from rlmesh_trio.replay.focus import Focus
from rlmesh_trio.replay.judging import Judgement
from rlmesh_trio.replay.plays import Mode, Played
from rlmesh_trio.replay.told import (
    comparison_document,
    comparison_lines,
    counted,
    divergence_document,
    leaf_line,
    returns_document,
    returns_lines,
)

__all__ = ("judgement_document", "judgement_lines")

_PLAYED: Final[dict[Mode, str]] = {
    "i": "env and model live",
    "ii": "recorded actions into the env",
    "iii": "recorded observations into the model",
}
_MODELS: Final[dict[Verdict, str]] = {
    "repeats": "it answers as recorded",
    "batch": "its answers hang on the batch it is asked in, or on how often it is asked",
    "random": "it answers otherwise each time: it draws at random, or keeps state",
    "other": "it repeats itself, and answers otherwise than recorded: another version, seed or machine",
}
_BLAMES: Final[dict[Blame, str]] = {
    "env": "the env",
    "model": "the model",
    "both": "env and model, each by itself",
    "pair": "neither by itself, only the two together: something that they share, or a bug of rlmesh-trio",
    "unknown": "not found out",
}


def judgement_lines(judgement: Judgement) -> list[str]:
    """Tell *judgement*: how far it goes, what is equal or differs, then what else was found out, a line each."""
    lines: list[str] = []
    if judgement.played is not None and not judgement.played.whole:
        compared = counted(judgement.played.comparison.compared, "episode")
        lines.append(f"NOT PLAYED TO THE END  what follows is of {compared} alone")
    if judgement.returns is not None:
        lines += returns_lines(judgement.returns)
    elif judgement.comparison is not None:
        lines += comparison_lines(judgement.comparison, mode=f"mode ({judgement.mode})", episodes=1)
    if len(judgement.traces) > 1 or sum(judgement.traces) > 1:
        lines.append(_runs_line(judgement.traces, judgement.as_recorded))
    if judgement.model is not None:
        lines += _model_lines(judgement.model)
    if judgement.focus is not None:
        lines += _focus_lines(judgement.focus)
    if judgement.cause is not None:
        lines.append(_cause_line(judgement.cause, _ordinal(judgement.played)))
    if judgement.blamed is not None:
        lines += _blame_lines(judgement.blamed)
    return [*lines, *judgement.remarks]


def _ordinal(played: Played | None) -> int:
    parts_at = None if played is None else played.parts_at
    return 0 if parts_at is None else parts_at.ordinal


def _runs_line(traces: Sequence[int], as_recorded: int) -> str:
    told = f"{counted(sum(traces), 'run')}: {counted(len(traces), 'trace')}"
    counts = f" ({', '.join(map(str, traces))})" if len(traces) > 1 else ""
    return f"{told}{counts}; {as_recorded or 'none'} as recorded"


def _model_lines(model: ModelAnswers) -> Iterator[str]:
    asked = "in the recorded batches" if model.single is None else "in the recorded batches and row by row"
    yield f"model: asked {asked}, {_MODELS[model.verdict]}"
    if model.single is not None and model.single.differs and not model.batched.differs:
        yield f"  row by row: {_first_of(model.single)}"


def _first_of(played: Played) -> str:
    """Where a play first differs, in half a line."""
    parts_at = played.parts_at
    if parts_at is None:
        return "other episodes, or another contract" if played.differs else "as recorded"
    step = parts_at.beyond or parts_at.first
    leaf = next((each for each in step.leaves if not each.tolerated), step.leaves[0])
    return f"differs first in episode {parts_at.ordinal} at step {step.step}, {leaf.path}"


def _focus_lines(focus: Focus) -> Iterator[str]:
    head = f"played twice up to step {focus.until}, episode {focus.ordinal}"
    if focus.between is not None:
        step = focus.between.first
        yield f"{head} disagrees with itself at step {step.step}: the env is random, or keeps state"
        yield f"  {leaf_line(step.leaves[0], sides=('first', 'second'))}"
    elif focus.as_recorded:
        yield f"{head} is as recorded: it differs only as part of the run"
    else:
        yield f"{head} differs from the recorded machine, and agrees with itself here"


def _cause_line(cause: Cause, ordinal: int) -> str:
    after = f"episode{'s' * (len(cause.episodes) != 1)} {', '.join(map(str, cause.episodes))}"
    lane = " on the same lane" if cause.same_lane else ""
    cut = "" if cause.is_smallest else ", or fewer of these: no more plays were made"
    plays = f"({counted(cause.plays, 'play')})"
    match cause.kind:
        case "alone":
            told = f"episode {ordinal} diverges also by itself"
        case "after":
            told = f"episode {ordinal} diverges only after {after}{lane}{cut}: something carries over"
        case "recorded after":
            told = (
                f"episode {ordinal} is as recorded only after {after}{lane}{cut}: something carried over when recorded"
            )
        case "lasting":
            told = f"episode {ordinal} does otherwise once others were played, and from then on also by itself:"
            told += " what carries over outlives a play; start the process that keeps it anew"
        case "chance":
            told = (
                f"episode {ordinal} does not do the same each time, even after the same episodes: chance plays a part"
            )
        case "unknown":
            told = (
                f"on one lane, episode {ordinal} is as recorded by itself and after those before it: it does not differ"
                " every time, or hangs on its lane or others"
            )
    return f"bisected: {told} {plays}"


def _blame_lines(blamed: Blamed) -> Iterator[str]:
    yield f"blame: {_BLAMES[blamed.blame]}"
    if blamed.env is not None:
        yield f"  {_PLAYED['ii']}: {_first_of(blamed.env)}"
    if blamed.model is not None:
        yield f"  {_PLAYED['iii']}: {_MODELS[blamed.model.verdict]}"
    if blamed.why:
        yield f"  {blamed.why}"


def judgement_document(judgement: Judgement) -> dict[str, Any]:
    """All of *judgement*: what was not looked into is null."""
    comparison, focus, cause, blamed = judgement.comparison, judgement.focus, judgement.cause, judgement.blamed
    return {
        "mode": judgement.mode,
        "played_to_the_end": None if judgement.played is None else judgement.played.whole,
        "comparison": None if comparison is None else comparison_document(comparison),
        "returns": None if judgement.returns is None else returns_document(judgement.returns),
        "runs": {"traces": list(judgement.traces), "as_recorded": judgement.as_recorded},
        "model": None if judgement.model is None else _model_document(judgement.model),
        "focus": None if focus is None else _focus_document(focus),
        "bisection": None if cause is None else _cause_document(cause),
        "blame": None if blamed is None else _blame_document(blamed),
        "remarks": list(judgement.remarks),
    }


def _model_document(model: ModelAnswers) -> dict[str, Any]:
    single = model.single
    return {
        "verdict": model.verdict,
        "recorded_batches": comparison_document(model.batched.comparison),
        "row_by_row": None if single is None else comparison_document(single.comparison),
    }


def _focus_document(focus: Focus) -> dict[str, Any]:
    between = focus.between
    return {
        "episode": focus.ordinal,
        "until": focus.until,
        "as_recorded": focus.as_recorded,
        "repeats": between is None,
        "between": None if between is None else divergence_document(between),
    }


def _cause_document(cause: Cause) -> dict[str, Any]:
    return {
        "kind": cause.kind,
        "episodes": list(cause.episodes),
        "same_lane": cause.same_lane,
        "is_smallest": cause.is_smallest,
        "plays": cause.plays,
    }


def _blame_document(blamed: Blamed) -> dict[str, Any]:
    return {
        "blame": blamed.blame,
        "why": blamed.why,
        "env": None if blamed.env is None else comparison_document(blamed.env.comparison),
        "model": None if blamed.model is None else _model_document(blamed.model),
    }
