"""What is learnt of a target before anything is played."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from rlmesh_trio.conformance.first_look import first_look
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.errors import ConnectError
from tests.conformance.scripted_env import Counting


class Ended(LocalTarget):
    """Has ended, as a process does that is killed, until it is started again."""

    restartable = True
    ended = True

    def connect(self, limit: float) -> AbstractAsyncContextManager[Any]:
        if self.ended:
            raise ConnectError("nobody there")
        return super().connect(limit)

    async def restart(self) -> None:
        self.ended = False


async def test_what_an_earlier_run_left_dead_is_started_again() -> None:
    target = Ended(Counting, where="inline")
    look = await first_look(target, Settings())
    assert not target.ended
    assert look.about.contract is not None
