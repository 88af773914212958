"""A session with real servers cancelled at each of its moments in turn, connecting and closing included.

Task steps are the moments at which something runs here; waits are those at which nothing does, because an answer is
still on its way. Whatever the moment, the session ends in order, nothing is left over, and both servers take the next
client: the next turn of the sweep.
"""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import attrs
import pytest
import trio

from rlmesh_trio import Report, SessionSpec, connect_env, connect_model
from rlmesh_trio.engine.session import Session
from rlmesh_trio.errors import RouteCancelled
from rlmesh_trio.testing.recording import RecordingHooks
from tests.interop.conftest import StartPeer
from tests.interop.driving import LIMIT
from tests.interop.leaks import held
from tests.interop.spies import SpyModel
from tests.peers import Peer

EPISODES = 2
SERVERS = {"single": (), "lanes": ("--kind", "lanes", "--num-envs", "2")}


class Moments(trio.abc.Instrument):
    """Counts moments, and calls *act* at the *number*-th of those :meth:`watched`."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.left = number
        self.act = act

    @contextmanager
    def watched(self) -> Generator[None]:
        """Count while the block runs."""
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)

    def count(self) -> bool:
        """Whether this is the one."""
        self.left -= 1
        return self.left == 0


class Steps(Moments):
    """Before the number-th task step."""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.count():
            self.act()


class Waits(Moments):
    """While the run sleeps for the number-th time."""

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0 and self.count():
            trio.lowlevel.current_trio_token().run_sync_soon(self.act)


@attrs.define
class Turn:
    """One run: what was heard and asked in it, and how it went. ``session`` is none if it did not come to one."""

    hooks: RecordingHooks = attrs.field(factory=RecordingHooks)
    spy: SpyModel = attrs.field(factory=SpyModel)
    session: Session | None = None
    report: Report | None = None

    async def run(self, env_peer: Peer, model_peer: Peer, around: AbstractContextManager[None]) -> None:
        """Connect, play, close; *around* is around playing."""
        async with connect_env(env_peer.address) as env, connect_model(model_peer.address) as model:
            spec = SessionSpec.for_env(env, max_episodes=EPISODES)
            await model.resolve(spec)
            self.session = Session(spec, env, self.spy.on(model), hooks=self.hooks)
            with around:
                await self.session.run()
            try:
                self.report = await self.session.wait()
            except RouteCancelled as cancelled:
                assert cancelled.reason in ("swept", "cancelled by caller")  # noqa: PT017

    def check(self) -> None:
        """It ended in order, and the model was told of every episode it knew."""
        kinds = Counter(self.hooks.kinds)
        assert sorted(self.spy.ended) == sorted(
            {row.episode_id for ask in self.spy.predicts for row in ask.episode_info}
        )
        assert len(self.spy.releases) == kinds["SessionEnded"] + kinds["SessionFailed"] == kinds["SessionStarted"]
        if self.hooks.kinds:
            assert self.hooks.kinds[0] == "SessionStarted"
            assert self.hooks.kinds[-1] in ("SessionEnded", "SessionFailed")
            assert self.session is not None
            report = self.session.report
            assert kinds["EpisodeCompleted"] <= report.total_episodes == len(report.episodes)
            assert all((done.step_count, done.cumulative_reward) == (2, 1.1 + 1.2) for done in report.episodes)


async def cancel_at(
    env_peer: Peer, model_peer: Peer, moments: type[Moments], number: int, *, from_outside: bool
) -> bool:
    """Play, cancelled at that moment; false when it was over before."""
    before, turn, scope = held(), Turn(), trio.CancelScope()

    def cancel() -> None:
        if from_outside:
            scope.cancel()
        elif turn.session is not None:
            turn.session.cancel("swept")

    watch = moments(number, cancel)
    with trio.fail_after(LIMIT):
        with watch.watched() if from_outside else nullcontext(), scope:
            await turn.run(env_peer, model_peer, nullcontext() if from_outside else watch.watched())
    turn.check()
    assert held() == before
    if watch.left > 0:
        assert turn.report is not None
        assert turn.report.total_episodes == EPISODES
    return watch.left <= 0


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("moments", [Steps, Waits])
@pytest.mark.parametrize("from_outside", [True, False], ids=["by the caller", "by itself"])
async def test_cancelled_at_every_moment(
    shared_env: StartPeer, shared_model: StartPeer, server: str, moments: type[Moments], from_outside: bool
) -> None:
    env, model = shared_env(*SERVERS[server], "--length", "2"), shared_model()
    heard = len(model.events("forward")), len(model.events("episode_end"))
    number = over = 0
    while over < 2:  # a turn has now a few moments more, now a few fewer
        number += 1
        struck = await cancel_at(env, model, moments, number, from_outside=from_outside)
        over = 0 if struck else over + 1
    assert number > (30 if moments is Steps else 3)
    known = {line["episode"] for line in model.events("forward")[heard[0] :]}
    assert sorted(line["episode"] for line in model.events("episode_end")[heard[1] :]) == sorted(known)
