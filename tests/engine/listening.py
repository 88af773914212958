"""Listeners and a relay policy that several test modules share."""

import trio

from rlmesh_trio.engine.relay import Convert, Forward, Leg, PayloadFacts, Verdict
from rlmesh_trio.events import (
    ActionReceived,
    Event,
    ObservationEmitted,
)
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import Leaves
from rlmesh_trio.report import Advisory
from rlmesh_trio.spec import PeerCeiling
from tests.engine.recorder import Recorder


class Transforming(Recorder):
    """Also writes down the transforms, which put a marker byte in front."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    async def transform_observation(self, event: ObservationEmitted) -> Leaves | None:
        assert event.observation is not None
        self.events.append(event)
        self.order.append(f"transform {len(self.events)}")
        return [b"\xff", *event.observation]

    async def transform_action(self, event: ActionReceived) -> Leaves:
        self.events.append(event)
        return [b"\xee", *event.action]


class Advising:
    """Converts every payload with an advisory that depends on the leg."""

    def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
        return Convert(facts.leaves, Advisory("info", leg)) if facts.leaves else Forward()


FULL = PeerCeiling("2026.06")


def failing(name: str, error: BaseException) -> Hooks:
    async def fail(self: Hooks, event: Event) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return type("Failing", (Hooks,), {name: fail})()
