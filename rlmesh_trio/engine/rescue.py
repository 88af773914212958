"""What follows a failed env operation: reconnect, decide, tell, and only then play on.

The session's policy decides, per episode. Nothing of it is silent: each episode that is started again, and each
reconnect, is an incident before it happens.
"""

from collections.abc import Sequence

import trio

from rlmesh_trio.engine.crew import Crew, Player
from rlmesh_trio.engine.incidents import Incidents
from rlmesh_trio.engine.reconnecting import Reconnector
from rlmesh_trio.engine.recoveries import Final, Recoveries, TakenOut
from rlmesh_trio.engine.route import LaneSlot, ResetPlan, Route
from rlmesh_trio.errors import SessionError
from rlmesh_trio.events import Route as Source
from rlmesh_trio.report import Incident

__all__ = ("Rescue",)


class Rescue:
    """The one place all groups of a session turn to."""

    def __init__(
        self, route: Route, crew: Crew, recoveries: Recoveries, reconnector: Reconnector, incidents: Incidents
    ) -> None:
        self._route = route
        self._crew = crew
        self._recoveries = recoveries
        self._reconnector = reconnector
        self._incidents = incidents
        self.settled = reconnector.settled
        self.restore = reconnector.restore

    def is_final(self, failure: SessionError) -> bool:
        """Whether the policy for *failure*, an env operation's, is to fail."""
        return self._recoveries.policy(failure).action == "fail"

    async def start_again(
        self,
        failure: SessionError,
        group: Player,
        lanes: Sequence[LaneSlot],
        plan: ResetPlan,
        source: Source,
        *,
        reconnected: bool,
    ) -> bool:
        """Whether *group* is to play its episodes again by *plan*; else another group was given them.

        *source* is where the incidents come from. Returns after the pause that lies between attempts. Raises *failure*,
        with a note, when it is final.
        """
        slots = [slot for slot in plan.slots if slot is not None]
        verdict = self._recoveries.decide(failure, slots, reconnected=reconnected, others=self._crew.others(group))
        if isinstance(verdict, Final):
            failure.add_note(verdict.note)
            raise failure
        taken_out = isinstance(verdict, TakenOut)
        if taken_out:
            self._route.give_back(slots[0])
            self._crew.take_out(group)
        kind, error = "quarantine" if taken_out else "retry", type(failure).__name__
        for lane, slot in zip(lanes, plan.slots, strict=True):
            if slot is not None:
                attempt = self._recoveries.attempt(slot)
                incident = Incident(kind, lane.env_index, slot + 1, lane.newest_id, attempt, error, str(failure))
                await self._incidents.add(source, incident)
        if taken_out:
            return False
        await trio.sleep(verdict.pause)
        return True
