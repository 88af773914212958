import logging
from typing import Any

import pytest

from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.errors import HookError
from rlmesh_trio.events import ActionReceived, EpisodeCompleted, ObservationEmitted
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import Leaves
from rlmesh_trio.observers import HookGroup
from tests.observers.telling import ROUTE, completed, play, spec

NAMES = sorted(name for name in vars(Hooks) if not name.startswith("_"))


def overridden(hooks: Hooks) -> list[str]:
    return [name for name in NAMES if getattr(getattr(hooks, name), "__func__", None) is not getattr(Hooks, name)]


class Noting(Hooks):
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        self.notes.append(f"{self.name} {event.episode_index}")


class Failing(Hooks):
    async def episode_completed(self, event: EpisodeCompleted) -> None:
        raise OSError("disk full")


class Adding(Hooks):
    def __init__(self, marker: bytes) -> None:
        self.marker = marker

    async def transform_observation(self, event: ObservationEmitted) -> Leaves | None:
        return [*(event.observation or ()), self.marker]

    async def transform_action(self, event: ActionReceived) -> Leaves:
        return [*event.action, self.marker]


@pytest.mark.parametrize("name", NAMES)
def test_exactly_what_a_member_overrides_is_overridden(name: str) -> None:
    async def hear(self: Hooks, event: Any) -> None: ...

    one = type("One", (Hooks,), {name: hear})()
    assert overridden(HookGroup(Hooks(), one)) == overridden(HookGroup(HookGroup(one, one))) == [name]
    assert overridden(HookGroup()) == overridden(HookGroup(Hooks())) == []


def test_the_engine_builds_only_what_a_member_hears() -> None:
    listeners = Listeners(HookGroup(Noting("a", []), Failing()))
    assert listeners.episode_completed is not None
    assert listeners.step_completed is None
    assert not listeners.hear_observations


async def test_members_hear_in_order() -> None:
    notes: list[str] = []
    await HookGroup(Noting("a", notes), Noting("b", notes), Hooks()).episode_completed(completed(4))
    assert notes == ["a 4", "b 4"]


async def test_a_member_that_fails_silences_nobody(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    group = HookGroup(Noting("a", notes), Failing(), Noting("b", notes))
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        await group.episode_completed(completed(1))
    assert notes == ["a 1", "b 1"]
    assert caplog.messages == ["runtime hook episode_completed of Failing failed: disk full"]


def observation() -> ObservationEmitted:
    space = spec().env_contract.observation_space
    assert space is not None
    return ObservationEmitted("local", ROUTE, "", (), "", (), 0, 0, True, 1, space, [b"o"], [b"o"], None)


async def test_transforms_are_chained_in_order() -> None:
    group = HookGroup(Adding(b"1"), Hooks(), Adding(b"2"))
    event = observation()
    assert await group.transform_observation(event) == [b"o", b"1", b"2"]
    assert event.raw_observation == [b"o"]
    action = ActionReceived("local", event.route, "", (), "", (), 1, 0, event.observation_space, [b"a"], [b"a"])
    assert await group.transform_action(action) == [b"a", b"1", b"2"]


async def test_a_transform_that_raises_fails_the_route() -> None:
    class Broken(Hooks):
        async def transform_action(self, event: ActionReceived) -> Leaves:
            raise LookupError("no such unit")

    with pytest.raises(HookError, match="LookupError: no such unit"):
        await play(HookGroup(Hooks(), Broken(), Broken()))


async def test_a_group_listens_to_a_session() -> None:
    notes: list[str] = []
    report = await play(HookGroup(Noting("a", notes), Noting("b", notes)))
    assert notes == [f"{name} {summary.episode_index}" for summary in report.episodes for name in "ab"]
