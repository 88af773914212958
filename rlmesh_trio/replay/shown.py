"""What a recording looks like: a run as its episodes, an episode as its steps, and both as JSON holds them. Pure.

Of a file without its end everything that is whole is shown, and with it what is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.contract import ValueSpace, autoreset_name
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.recording import Decision, Episode, Header, Mishap, Recording, Row
from rlmesh_trio.recording.digests import ordered_spec
from rlmesh_trio.recording.headers import peer_of
from rlmesh_trio.recording.repeatability import why_not_repeatable
from rlmesh_trio.spaces.leaf_values import leaf_name, leaf_value
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.transport.handshake import PeerInfo

__all__ = (
    "EpisodeShown",
    "RunShown",
    "StepShown",
    "episode_document",
    "peer_text",
    "run_document",
    "show_episode",
    "show_run",
)


_SHORT = attrs.filters.exclude("framework_versions", "extra")


@attrs.frozen(eq=False, kw_only=True)
class RunShown:
    """A run: ``episodes`` are the last attempts by ordinal, ``given_up`` the earlier ones as they ended.

    ``run_root`` is empty for a file without its end, and ``damage`` says what is wrong with the file, empty for
    nothing.
    """

    header: Header
    contract_digest: bytes
    ticks: int
    episodes: tuple[Episode, ...]
    given_up: tuple[Episode, ...]
    mishaps: tuple[Decision, ...]
    run_root: bytes
    damage: str


@attrs.frozen(eq=False, kw_only=True)
class StepShown:
    """One step; step 0 is the reset and has no action. ``cumulative_reward`` counts this step's reward.

    ``observation`` has its leaves where they were recorded, ``digests`` one of 16 bytes for each leaf. ``marks`` say
    what was special: ``reset``, ``terminated``, ``truncated``, the episode's end if the env did not tell it, the code
    of an error, ``unanswered``.
    """

    step: int
    tick: int
    action: Leaves | None
    reward: float | None
    cumulative_reward: float
    marks: tuple[str, ...]
    observation: Leaves | None
    digests: tuple[bytes, ...]


@attrs.frozen(eq=False, kw_only=True)
class EpisodeShown:
    """The last attempt at one episode, one of ``count``, with its steps."""

    header: Header
    episode: Episode
    count: int
    steps: tuple[StepShown, ...]

    def action(self, step: StepShown) -> dict[str, Any]:
        """The action's values by the names of its leaves; empty for a reset."""
        return _values("action", self.header.contract.action_space, step.action)

    def observation(self, step: StepShown) -> dict[str, Any]:
        """The observation's values by the names of its leaves; empty where only digests are known."""
        return _values("obs", self.header.contract.observation_space, step.observation)


def show_run(recording: Recording) -> RunShown:
    """The run of *recording*. Raises :exc:`~rlmesh_trio.recording.RecordingError` where the file is damaged."""
    footer, spans = recording.footer, recording.container.spans
    attempts = recording.episodes() if footer is None else list(recording.told_episodes())
    latest = {episode.ordinal: episode for episode in attempts}
    return RunShown(
        header=recording.header,
        contract_digest=recording.digester.digest(ordered_spec(recording.header.contract)),
        ticks=spans[-1].last if footer is None else footer.ticks,
        episodes=tuple(latest[ordinal] for ordinal in sorted(latest)),
        given_up=tuple(episode for episode in attempts if latest[episode.ordinal] is not episode),
        mishaps=tuple(decision for decision in recording.decisions() if isinstance(decision.what, Mishap)),
        run_root=b"" if footer is None else footer.run_root,
        damage=recording.damage,
    )


def show_episode(recording: Recording, ordinal: int) -> EpisodeShown:
    """The episode of *ordinal*, one of ``recording.entries``. Raises as :func:`show_run` does."""
    episode = recording.episode(ordinal)
    steps = tuple(_steps(recording, episode))
    return EpisodeShown(header=recording.header, episode=episode, count=len(recording.entries), steps=steps)


def _steps(recording: Recording, episode: Episode) -> Iterator[StepShown]:
    kept = {each.tick: each.observation for each in episode.kept}
    cumulative_reward = 0.0
    rows = list(recording.rows(episode.ordinal))
    for step, row in enumerate(rows):
        if row.reward is not None:
            cumulative_reward += row.reward
        yield StepShown(
            step=step,
            tick=row.tick,
            action=row.action,
            reward=row.reward,
            cumulative_reward=cumulative_reward,
            marks=tuple(_marks(row, episode, is_last=step == len(rows) - 1)),
            observation=kept.get(row.tick) if row.observation is None else row.observation,
            digests=row.leaf_digests,
        )


def _marks(row: Row, episode: Episode, *, is_last: bool) -> Iterator[str]:
    if row.reset is not None:
        yield "reset"
    if row.terminated:
        yield "terminated"
    if row.truncated:
        yield "truncated"
    if row.error is not None:
        yield row.error.code
    elif not row.answered:
        yield "unanswered"
    if is_last and not (row.terminated or row.truncated or episode.end == "error"):
        yield episode.end


def _values(role: str, space: ValueSpace | None, leaves: Leaves | None) -> dict[str, Any]:
    """Arrays of numbers, texts, and bytes where the space says nothing of a leaf or the leaf does not fit it."""
    if leaves is None:
        return {}
    specs = () if space is None else space.leaves
    if len(specs) != len(leaves):
        return {f"{role}[{place}]": bytes(leaf) for place, leaf in enumerate(leaves)}
    values: dict[str, Any] = {}
    for spec, leaf in zip(specs, leaves, strict=True):
        value = leaf_value(spec, bytes(leaf))
        values[leaf_name(role, spec.path)] = bytes(leaf) if value is None else value
    return values


def peer_text(encoded: bytes) -> str:
    """What a peer said of itself, in one line; empty when it said nothing."""
    peer = _peer(encoded)
    pairs = (peer.component, peer.package_version), (peer.language, peer.language_version), (peer.os, peer.arch)
    return ", ".join(filter(None, [" ".join(filter(None, pair)) for pair in pairs]))


def _peer(encoded: bytes) -> PeerInfo:
    return peer_of(encoded) or PeerInfo(component="unreadable")


def run_document(shown: RunShown) -> dict[str, Any]:
    """All of *shown*. Roots and digests are in hexadecimal."""
    header = shown.header
    contract = header.contract
    return {
        "env": {"id": contract.env_id, "address": header.env_address, "peer": _peer_or_none(header.env_peer)},
        "model": {"peer": _peer_or_none(header.model_peer)},
        "contract": {
            "digest": shown.contract_digest.hex(),
            "lanes": contract.num_envs,
            "autoreset_mode": autoreset_name(contract.autoreset_mode),
        },
        "edition": header.workflow_edition,
        "level": header.level,
        "ring": header.ring,
        "seed_rule": header.seed_rule,
        "base_seed": header.base_seed,
        "unstable_leaves": header.unstable_leaves,
        "ignored_infos": header.ignored_infos,
        "tolerance": header.tolerance,
        "settings": header.settings,
        "machine": header.machine,
        "not_repeatable": why_not_repeatable(header),
        "ticks": shown.ticks,
        "run_root": shown.run_root.hex(),
        "damage": shown.damage,
        "episodes": [_attempt(episode) for episode in shown.episodes],
        "given_up": [_attempt(episode) for episode in shown.given_up],
        "mishaps": [_mishap(decision) for decision in shown.mishaps],
    }


def _peer_or_none(encoded: bytes) -> dict[str, str] | None:
    return attrs.asdict(_peer(encoded), filter=_SHORT) if encoded else None


def _attempt(episode: Episode) -> dict[str, Any]:
    told = attrs.asdict(episode, recurse=False)
    del told["kept"]
    return told | {"options": _options(episode.options), "root": episode.root.hex()}


def _options(options: Metadata | None) -> Any:
    return None if options is None else _plain(plain_metadata(options))


def _mishap(decision: Decision) -> dict[str, Any]:
    return {"tick": decision.tick, "unix_ns": decision.unix_ns, **attrs.asdict(cast("Any", decision.what))}


def episode_document(shown: EpisodeShown) -> dict[str, Any]:
    """All of *shown*: by step its values where they were recorded, and digests."""
    return {
        "env": {"id": shown.header.contract.env_id},
        "level": shown.header.level,
        "episodes": shown.count,
        **_attempt(shown.episode),
        "rows": [
            {
                "step": step.step,
                "tick": step.tick,
                "action": None if step.action is None else _plain(shown.action(step)),
                "reward": step.reward,
                "cumulative_reward": step.cumulative_reward,
                "marks": step.marks,
                "observation": None if step.observation is None else _plain(shown.observation(step)),
                "digests": [digest.hex() for digest in step.digests],
            }
            for step in shown.steps
        ],
    }


def _plain(value: object) -> Any:
    match value:
        case np.ndarray():
            return cast("npt.NDArray[Any]", value).tolist()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): _plain(part) for key, part in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [_plain(part) for part in cast("Sequence[object]", value)]
        case _:
            return value
