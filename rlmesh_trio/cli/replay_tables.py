"""The lines of ``rlmesh-trio replay show``: what a run and an episode look like on a screen. Pure."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from rlmesh_trio.cli.columns import clipped, labelled, table
from rlmesh_trio.cli.statistics import spread_of
from rlmesh_trio.cli.summary import number_text, spread_text
from rlmesh_trio.contract import autoreset_name
from rlmesh_trio.recording import Decision, Episode, Header, Mishap
from rlmesh_trio.recording.repeatability import why_not_repeatable
from rlmesh_trio.replay.shown import EpisodeShown, RunShown, StepShown, peer_text
from rlmesh_trio.replay.told import counted
from rlmesh_trio.spaces.metadata import plain_metadata

__all__ = ("episode_lines", "episode_title", "run_lines", "run_title")

T = TypeVar("T")

_FEW_VALUES = 6
_FEW_MISHAPS = 5
_SHORT_ROOT = 12
_SHORT_DIGEST = 8
_CHECK = "conform.check"
_MACHINE = {
    "cpu": "{}",
    "cpu_count": "{} CPUs",
    "gpu": "{}",
    "python": "{}",
    "numpy": "numpy {}",
    "torch": "torch {}",
    "jax": "jax {}",
    "platform": "{}",
}
_MISHAPS = {
    "retry": ("retry", "retries"),
    "quarantine": ("lane quarantined", "lanes quarantined"),
    "reconnect": ("reconnect", "reconnects"),
    "resumed": ("time gone on with", "times gone on with"),
    "failed": ("failure that ended it", "failures that ended it"),
}


def run_title(shown: RunShown) -> str:
    """What the run is, in a few words."""
    return f"{shown.header.contract.env_id}: {counted(len(shown.episodes), 'episode')}"


def run_lines(file: str, shown: RunShown, *, width: int, most: int | None) -> Iterator[str]:
    """The header, a table of the episodes, of which the middle is left out beyond *most*, and what they amount to."""
    yield from labelled(list(_header_rows(file, shown)), width)
    if shown.episodes:
        yield ""
        headings = ("episode", "seed", "lane", "steps", "return", "end", "root")
        yield from _elided(shown.episodes, most, headings, _episode_cells, width, left=("end", "root"), what="episode")
    yield ""
    yield from labelled(list(_total_rows(shown)), width)


def _header_rows(file: str, shown: RunShown) -> Iterator[tuple[str, str]]:
    header, contract = shown.header, shown.header.contract
    address = f" at {header.env_address}" if header.env_address else ""
    yield "file", file
    yield "env", contract.env_id + address
    yield (
        "contract",
        f"{shown.contract_digest.hex()}, {counted(contract.num_envs, 'lane')}, "
        f"autoreset {autoreset_name(contract.autoreset_mode)}",
    )
    yield "edition", header.workflow_edition or "not told"
    yield "level", f"the last {header.ring} steps of an error" if header.level == "ring" else header.level
    check = header.settings.get(_CHECK)
    if check is None:
        yield "seeds", _seeds(header)
    for label, told in (("env peer", header.env_peer), ("model peer", header.model_peer)):
        if told:
            yield label, peer_text(told)
    if header.machine:
        yield "machine", ", ".join(_machine(header.machine))
    for label, names in (
        ("not stable", ", ".join(header.unstable_leaves)),
        ("infos out", ", ".join(header.ignored_infos)),
        ("tolerance", header.tolerance),
    ):
        if names:
            yield label, names
    if check is None:
        reasons = why_not_repeatable(header)
        yield "repeatable", f"no: {reasons[0]}" if reasons else "yes, as far as its settings go"
        yield from (("", reason) for reason in reasons[1:])
    else:
        yield "check", f"what failed the check {check}"
        yield "", f"again: rlmesh-trio conform replay {shlex.quote(file)} TARGET"


def _seeds(header: Header) -> str:
    listed = header.settings.get("episode_seeds")
    if listed:
        return f"a list of {len(cast('Sequence[int]', listed))}, {header.seed_rule}"
    return "none" if header.base_seed is None else f"derived from {header.base_seed}, {header.seed_rule}"


def _machine(machine: Mapping[str, str]) -> Iterator[str]:
    for fact in _MACHINE:
        if told := machine.get(fact):
            yield _MACHINE[fact].format(told)


def _episode_cells(episode: Episode) -> tuple[str, ...]:
    end = f"{episode.end} {episode.error_code}" if episode.error_code else episode.end
    return (
        str(episode.ordinal),
        "" if episode.seed is None else str(episode.seed),
        str(episode.lane),
        str(episode.steps),
        f"{episode.cumulative_reward:.6g}",
        end,
        episode.root.hex()[:_SHORT_ROOT],
    )


def _total_rows(shown: RunShown) -> Iterator[tuple[str, str]]:
    steps = sum(episode.steps for episode in shown.episodes)
    yield "episodes", f"{len(shown.episodes):,}, {counted(steps, 'step')}, {counted(shown.ticks, 'tick')}"
    returns = spread_of([episode.cumulative_reward for episode in shown.episodes])
    lengths = spread_of([episode.steps for episode in shown.episodes])
    if returns is not None and lengths is not None:
        yield "return", spread_text(returns)
        yield "length", spread_text(lengths)
        ends = Counter(episode.end for episode in shown.episodes)
        yield "ends", ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
    if shown.given_up:
        yield "given up", counted(len(shown.given_up), "earlier attempt")
    if shown.mishaps:
        yield from _mishap_rows(shown.mishaps)
    yield "run root", shown.run_root.hex() or "none: the file has no end"
    if shown.damage:
        yield "damage", shown.damage


def _mishap_rows(mishaps: Sequence[Decision]) -> Iterator[tuple[str, str]]:
    told = [(decision.tick, cast("Mishap", decision.what)) for decision in mishaps]
    kinds = Counter(mishap.kind for _, mishap in told)
    yield (
        "mishaps",
        ", ".join(f"{count:,} {_MISHAPS.get(kind, (kind, kind))[count > 1]}" for kind, count in kinds.items()),
    )
    for tick, mishap in told[:_FEW_MISHAPS]:
        episode = f" of episode {mishap.ordinal}" if mishap.ordinal else ""
        why = ": ".join(filter(None, (mishap.error, mishap.message)))
        yield "", f"after tick {tick}: {mishap.kind}{episode}{why and f', {why}'}"
    if len(told) > _FEW_MISHAPS:
        yield "", f"and {len(told) - _FEW_MISHAPS:,} more"


def episode_title(shown: EpisodeShown) -> str:
    """Which episode it is and how it went, in a few words."""
    episode = shown.episode
    how = f"{episode.end} after {counted(episode.steps, 'step')}"
    place = f"{shown.header.contract.env_id}, episode {episode.ordinal} of {shown.count}"
    return f"{place}: {how}, return {number_text(episode.cumulative_reward)}"


def episode_lines(shown: EpisodeShown, damage: str, *, width: int, most: int | None) -> Iterator[str]:
    """What the episode is, and a table of its steps, of which the middle is left out beyond *most*."""
    yield from labelled(list(_episode_rows(shown, damage)), width)
    yield ""
    seen = any(step.observation is not None for step in shown.steps)
    headings = ("step", "action", "reward", "return", "", "observation" if seen else "digests of the observation")

    def cells(step: StepShown) -> tuple[str, ...]:
        return (
            str(step.step),
            "" if step.action is None else clipped(_values_text("action", shown.action(step)), width // 4),
            "" if step.reward is None else f"{step.reward:.6g}",
            f"{step.cumulative_reward:.6g}",
            " ".join(step.marks),
            _observation_text(shown, step),
        )

    yield from _elided(shown.steps, most, headings, cells, width, left=("action", *headings[-2:]), what="step")


def _episode_rows(shown: EpisodeShown, damage: str) -> Iterator[tuple[str, str]]:
    episode = shown.episode
    yield "seed", "none" if episode.seed is None else str(episode.seed)
    if episode.options:
        yield "options", ", ".join(f"{key}={value!r}" for key, value in plain_metadata(episode.options).items())
    yield "lane", f"{episode.lane}, ticks {episode.first_tick:,} to {episode.last_tick:,}"
    if episode.attempt:
        yield "attempt", f"{episode.attempt + 1}: those before it were given up"
    yield "end", " ".join(filter(None, (episode.end, episode.error_code)))
    yield "root", episode.root.hex()
    if damage:
        yield "damage", damage


def _observation_text(shown: EpisodeShown, step: StepShown) -> str:
    if step.observation is not None:
        return _values_text("obs", shown.observation(step))
    return " ".join(digest.hex()[:_SHORT_DIGEST] for digest in step.digests)


def _values_text(role: str, values: Mapping[str, Any]) -> str:
    if list(values) == [role]:
        return _value_text(values[role])
    return " ".join(
        f"{name.removeprefix(role).removeprefix('.')}={_value_text(value)}" for name, value in values.items()
    )


def _value_text(value: object) -> str:
    match value:
        case np.ndarray():
            return _array_text(cast("npt.NDArray[Any]", value))
        case bytes():
            return f"0x{value[:_FEW_VALUES].hex()}{'…' if len(value) > _FEW_VALUES else ''}"
        case _:
            return repr(value)


def _array_text(array: npt.NDArray[Any]) -> str:
    shown = [f"{item:.4g}" if isinstance(item, float) else str(item) for item in array.ravel()[:_FEW_VALUES].tolist()]
    if not array.ndim:
        return shown[0]
    more = f" … {'x'.join(map(str, array.shape))}" if array.size > _FEW_VALUES else ""
    return f"[{' '.join(shown)}{more}]"


def _elided(
    items: Sequence[T],
    most: int | None,
    headings: Sequence[str],
    cells: Callable[[T], Sequence[str]],
    width: int,
    *,
    left: Sequence[str],
    what: str,
) -> list[str]:
    """A table of *items*: at most *most* rows, of which one says how many are left out of the middle."""
    if most is None or len(items) <= most:
        return table(headings, [cells(item) for item in items], width, left=left)
    last = (most - 1) // 3
    first = most - 1 - last
    lines = table(headings, [cells(item) for item in (*items[:first], *items[-last:])], width, left=left)
    lines.insert(first + 1, f"  … {counted(len(items) - first - last, what)} left out here (--all shows them)")
    return lines
