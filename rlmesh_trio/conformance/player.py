"""Plays a script on an env, and keeps what it answers as bits.

Nothing an env does ends a play with an error, and none of its answers is waited for longer than agreed: a refused op is
a refusal in the trace, and a session that ends before its script leaves a shorter trace that says how.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

import attrs
import trio

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.errors import EndpointError, ProtocolError, SessionError, SpaceError, format_duration
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, Metadata, ResetRequest, StepTarget
from rlmesh_trio.spaces import SpaceCodec, codec_for
from rlmesh_trio.spaces.metadata import plain_metadata

__all__ = ("MARGIN", "EpisodeIds", "improvise", "play")

MARGIN = 1.0
"""How much longer than its limit an answer is waited for, in seconds: a server may answer that it ran out of time."""

_RESTARTING = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
# The fixed bits of a version 7 UUID whose time is 0: what is left counts.
_ID_BASE = (0x7 << 76) | (0x2 << 62)


class EpisodeIds:
    """Episode ids that look like the driver's own and follow from how many were asked for before."""

    def __init__(self) -> None:
        self._given = 0

    def fresh(self) -> str:
        """An id that was not given before."""
        self._given += 1
        return str(UUID(int=_ID_BASE | self._given))


def _nothing() -> None:
    pass


async def play(
    env: Env,
    script: Script,
    facts: Facts,
    *,
    ids: EpisodeIds,
    step_timeout: float,
    on_ask: Callable[[], None] = _nothing,
) -> Trace:
    """Play *script* on *env*, whose session may be anywhere, and return what it answered.

    Each op has *step_timeout* seconds, and :data:`MARGIN` more before it counts as lost. What follows a lost session, a
    refusal that is not recoverable or an op without an answer is not played. *on_ask* is called before each request.
    Raises :exc:`ValueError` for a script that has another number of lanes than the env.
    """
    if script.lanes != facts.contract.num_envs:
        raise ValueError(f"a script of {script.lanes} lanes cannot be played on {facts.contract.num_envs}")
    ops = iter(script.ops)
    trace = await improvise(env, lambda _: next(ops, None), facts, ids=ids, step_timeout=step_timeout, on_ask=on_ask)
    return attrs.evolve(trace, script=script)


async def improvise(
    env: Env,
    choose: Callable[[Answer | None], Op | None],
    facts: Facts,
    *,
    ids: EpisodeIds,
    step_timeout: float,
    on_ask: Callable[[], None] = _nothing,
) -> Trace:
    """As :func:`play`, but each op is chosen when it is due: *choose* gets the last answer and ends by ``None``.

    The trace's script is what was chosen.
    """
    player = _Player(env, facts, ids, step_timeout)
    ops: list[Op] = []
    answers: list[Answer] = []
    lost: Refusal | None = None
    while lost is None and (op := choose(answers[-1] if answers else None)) is not None:
        place = len(ops)
        ops.append(op)
        if isinstance(op, Wait):
            await trio.sleep(op.seconds)
            continue
        on_ask()
        answer = await player.answer(place, op)
        answers.append(answer)
        if answer.refusal is not None and not answer.refusal.recoverable:
            lost = answer.refusal
    return Trace(Script(facts.contract.num_envs, tuple(ops)), tuple(answers), lost)


class _Player:
    """One play: the episode each lane is in, and how requests are made and answers kept."""

    def __init__(self, env: Env, facts: Facts, ids: EpisodeIds, step_timeout: float) -> None:
        lanes = facts.contract.num_envs
        self._env = env
        self._lanes = tuple(range(lanes))
        self._ids = ids
        self._limit = step_timeout
        self._options = dict(facts.options)
        self._episodes: dict[int, str] = {}
        self._restarts = facts.contract.autoreset_mode in _RESTARTING
        self._ended: set[int] = set()
        self._actions, self._observations = (
            None if space is None else codec_for(space)
            for space in (facts.contract.action_space, facts.contract.observation_space)
        )

    async def answer(self, place: int, op: Reset | Step) -> Answer:
        """Ask for *op*, which stands at *place*, and keep the answer."""
        lanes = op.lanes or self._lanes
        ids = self._ids_for(op, lanes)
        started = trio.current_time()
        reply, refusal = await self._ask(op, ids)
        asked = Answer(place, lanes, episode_ids=ids, seconds=trio.current_time() - started)
        if reply is not None:
            try:
                answer = self._kept(reply, asked)
            except (ProtocolError, SpaceError) as failure:
                refusal = _nonsense(failure)
            else:
                self._follow(op, answer)
                return answer
        return attrs.evolve(asked, refusal=refusal)

    def _ids_for(self, op: Reset | Step, lanes: Sequence[int]) -> tuple[str, ...]:
        """The ids to send: fresh ones where an episode starts, by a reset or by the env itself.

        They are those of the lanes once the op was answered: what was refused has started nothing.
        """
        resets = isinstance(op, Reset)
        starts = [resets or (self._restarts and lane in self._ended) for lane in lanes]
        pairs = zip(lanes, starts, strict=True)
        ids = tuple([self._ids.fresh() if begins else self._episodes.get(lane, "") for lane, begins in pairs])
        return ids if any(ids) else ()

    async def _ask(self, op: Reset | Step, ids: tuple[str, ...]) -> tuple[EnvReply | None, Refusal | None]:
        milliseconds = max(1, round(self._limit * 1000))
        try:
            with trio.fail_after(self._limit + MARGIN):
                if isinstance(op, Reset):
                    options = {**self._options, **(op.options or {})} or None
                    return await self._env.reset(ResetRequest(op.seeds, options, milliseconds, op.lanes, ids)), None
                action = self._joined(op.actions)
                return await self._env.step(action, StepTarget(milliseconds, op.lanes, ids)), None
        except trio.TooSlowError:
            limit = format_duration(self._limit + MARGIN)
            return None, Refusal("TIMEOUT", f"no answer within {limit}", recoverable=False)
        except EndpointError as refusal:
            return None, Refusal(refusal.code, refusal.message, refusal.recoverable)
        except (ProtocolError, SpaceError) as failure:
            return None, _nonsense(failure)
        except SessionError as failure:
            return None, Refusal("CONNECTION", str(failure), recoverable=False)
        except Exception as failure:
            return None, Refusal("INTERNAL", f"{type(failure).__name__}: {failure}", recoverable=False)

    def _joined(self, actions: Sequence[Row]) -> Leaves:
        """One batch of *actions*; what is no row of the space is put together as an array would be."""
        if len(actions) == 1:
            return list(actions[0])
        try:
            return [] if self._actions is None else self._actions.concatenate(actions, [1] * len(actions))
        except SpaceError:
            return [b"".join(leaf) for leaf in zip(*actions, strict=False)]

    def _kept(self, reply: EnvReply, asked: Answer) -> Answer:
        leaves = tuple(bytes(leaf) for leaf in reply.observation or ())
        return attrs.evolve(
            asked,
            observation=_rows(self._observations, leaves, len(asked.lanes)),
            rewards=tuple(reply.rewards),
            terminated=tuple(map(bool, reply.terminated_mask)),
            truncated=tuple(map(bool, reply.truncated_mask)),
            infos=_plain(reply.infos),
            completed=tuple(_read(record) for record in reply.completed),
            raw_leaves=leaves,
        )

    def _follow(self, op: Reset | Step, answer: Answer) -> None:
        self._episodes.update(zip(answer.lanes, answer.episode_ids, strict=False))
        self._ended.difference_update(answer.lanes)
        if isinstance(op, Step):
            flags = zip(answer.lanes, answer.terminated, answer.truncated, strict=False)
            self._ended.update(lane for lane, terminated, truncated in flags if terminated or truncated)


def _rows(codec: SpaceCodec | None, leaves: tuple[bytes, ...], lanes: int) -> tuple[Row, ...]:
    """*leaves* cut into one row a lane; none when they cannot be cut so."""
    if codec is None:
        return ()
    try:
        codec.check_layout(leaves, lanes)
        return tuple(tuple(bytes(leaf) for leaf in row) for row in codec.split(leaves, [1] * lanes))
    except SpaceError:
        return ()


def _plain(infos: Metadata | None) -> Metadata | None:
    """*infos* as the wire would carry them, decoded to the last and shared with nobody."""
    return None if infos is None else plain_metadata(infos)


def _read(record: EpisodeRecord) -> EpisodeRecord:
    return attrs.evolve(record, final_info=_plain(record.final_info))


def _nonsense(failure: SessionError) -> Refusal:
    return Refusal("PROTOCOL", str(failure), recoverable=False)
