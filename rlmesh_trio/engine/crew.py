"""The lane groups of a session: who plays, who has finished, and who was taken out.

An episode given back must find a player. A group that finishes looks whether one is left, and when a group is taken
out one that had finished is started again; so it never depends on who happens to be playing.
"""

from collections.abc import Callable
from typing import Protocol

import trio

from rlmesh_trio.engine.batcher import Batcher
from rlmesh_trio.engine.route import Route
from rlmesh_trio.errors import EnvRpcError

__all__ = ("Crew", "Player")


class Player(Protocol):
    """What the crew asks of a lane group."""

    def claim(self) -> None:
        """Claim what the first reset needs."""
        ...

    async def run(self) -> None:
        """Play until there is nothing left to claim; raises what fails the session."""
        ...

    def interrupt(self, failure: EnvRpcError) -> None:
        """Stop playing as if the operation under way had failed like this."""
        ...


class Crew:
    """Runs the groups that :attr:`groups` lists; *fail* takes what a group raises."""

    def __init__(self, route: Route, batcher: Batcher, fail: Callable[[Exception], None]) -> None:
        self.groups: list[Player] = []
        self._route = route
        self._batcher = batcher
        self._fail = fail
        self._idle: list[Player] = []
        self._out: list[Player] = []
        self._nursery: trio.Nursery | None = None

    async def play(self) -> None:
        """Run all groups, and return when none plays any more. They claim their first episodes in order."""
        for group in self.groups:
            group.claim()
        async with trio.open_nursery() as self._nursery:
            for group in self.groups:
                self._nursery.start_soon(self._run, group)

    async def _run(self, group: Player) -> None:
        try:
            await group.run()
        except Exception as error:
            self._fail(error)
            return
        if group in self._out:
            return
        if self._route.owes_episodes:
            self._start_again(group)
        else:
            self._idle.append(group)

    def _start_again(self, group: Player) -> None:
        assert self._nursery is not None
        self._batcher.group_started()
        self._nursery.start_soon(self._run, group)

    def others(self, group: Player) -> int:
        """How many groups besides *group* could take an episode over."""
        return sum(other is not group and other not in self._out for other in self.groups)

    def take_out(self, group: Player) -> None:
        """*group*, which has given its episode back, will play no more once it returns."""
        self._out.append(group)
        if self._idle:
            self._start_again(self._idle.pop(0))

    def interrupt(self, failure: EnvRpcError) -> None:
        """Stop every group's play."""
        for group in self.groups:
            group.interrupt(failure)
