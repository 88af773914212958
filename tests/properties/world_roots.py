"""The root of a simulated world's run: it is recorded as it is played."""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.observers import HookGroup
from rlmesh_trio.recording import Recorder, header_of
from rlmesh_trio.testing.schedule import real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_run import run_world
from rlmesh_trio.testing.world_toy import OBSERVATION_BYTES

SERIAL_BYTES = 4


def nameless(leaves: Leaves) -> Leaves:
    """Observations or actions without the serial numbers of their episodes, which tell who was first."""
    rows = [bytes(leaf[start : start + OBSERVATION_BYTES]) for leaf in leaves for start in _starts(leaf)]
    return [b"".join(bytes(SERIAL_BYTES) + row[SERIAL_BYTES:] for row in rows)]


def _starts(leaf: bytes | memoryview) -> range:
    return range(0, len(leaf), OBSERVATION_BYTES)


class _Once:
    """An env for one call: its answer without serial numbers; ``reply`` is the answer itself."""

    def __init__(self, ask: Callable[[], Awaitable[EnvReply]]) -> None:
        self._ask = ask
        self.reply = EnvReply()

    async def reset(self, request: ResetRequest) -> EnvReply:
        return await self._answer()

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        return await self._answer()

    async def close(self) -> None:
        raise AssertionError

    async def _answer(self) -> EnvReply:
        self.reply = reply = await self._ask()
        return EnvReply(nameless(reply.observation or []), reply.infos, reply.rewards, completed=reply.completed)


class Recorded:
    """A world's env, recorded."""

    def __init__(self, recorder: Recorder, env: Env) -> None:
        self._recorder = recorder
        self._env = env

    async def reset(self, request: ResetRequest) -> EnvReply:
        once = _Once(lambda: self._env.reset(request))
        await self._recorder.wrap(once).reset(request)
        return once.reply

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        once = _Once(lambda: self._env.step(action, target))
        await self._recorder.wrap(once).step(nameless(action), target)
        return once.reply

    async def close(self) -> None:
        await self._env.close()


def root_of(world: World) -> bytes:
    """The run root of *world*, which keeps its promises."""

    def watch(env: Env, hooks: Hooks | None) -> tuple[Env, Hooks]:
        listening = recorder.hooks if hooks is None else HookGroup(recorder.hooks, hooks)
        return Recorded(recorder, env), listening

    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder, "world.mcap"), header_of(world.spec))
        with recorder, real_time_limit(60):
            outcome = run_world(world, watch)
            footer = recorder.finish()
    assert violations(outcome) == [], world
    assert footer is not None
    played = set(range(1, (world.session.budget or 0) + 1)) - set(world.session.finished)
    assert {episode.ordinal for episode in footer.episodes} >= played
    return footer.run_root
