"""The single env behind a lane of a vector env, seeded and stepped alike: what the lane would show without restarts."""

from typing import Any

from gymnasium.vector import SyncVectorEnv, VectorWrapper

from rlmesh_trio.conformance.episodes import Episode
from rlmesh_trio.conformance.registry import Lab
from rlmesh_trio.conformance.rows import member_of, row_of
from rlmesh_trio.conformance.scripts import Reset, Row, Step
from rlmesh_trio.conformance.traces import Trace

__all__ = ("twin_rows",)


async def twin_rows(lab: Lab, trace: Trace, episode: Episode) -> tuple[Row, ...] | None:
    """What the env of the lane of *episode*, which the first op began, shows by itself from reset to end.

    ``None`` where it cannot be had, or is not the lane's twin: all observations before the last have to be equal.
    """
    contract = lab.facts.contract
    observations, actions = contract.observation_space, contract.action_space
    reset = trace.script.ops[0]
    if observations is None or actions is None or not isinstance(reset, Reset) or not reset.seeds:
        return None
    options = {**dict(lab.facts.options), **(reset.options or {})} or None
    steps = [op for op in (trace.script.ops[place] for place in episode.places) if isinstance(op, Step)]

    def asked(vector: Any) -> list[Row]:
        if not isinstance(vector, SyncVectorEnv) or isinstance(vector, VectorWrapper):
            return []
        env: Any = vector.envs[episode.lane]
        shown = [row_of(observations, env.reset(seed=reset.seeds[episode.lane], options=options)[0])]
        ended = False
        for step in steps:
            if ended:
                return []
            observation, _, terminated, truncated, _ = env.step(member_of(actions, step.actions[episode.lane]))
            shown.append(row_of(observations, observation))
            ended = bool(terminated or truncated)
        return shown if ended else []

    rows = tuple(await lab.ask_local(asked))
    places = {answer.op: answer for answer in trace.answers}
    answers = [places[place] for place in (episode.start, *episode.places)]
    lane_rows = [answer.observation[answer.lanes.index(episode.lane)] for answer in answers]
    return rows if len(rows) == len(lane_rows) and list(rows[:-1]) == lane_rows[:-1] else None
