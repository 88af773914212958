"""What makes a later run the same run: every fact that decides which episodes are played, and nothing else.

Lanes that are driven one by one may be more or fewer: an episode depends on its index, not on its lane. How long
operations may take, what becomes of failures, and under which ids a route is known do not matter either. A later run
may ask for more episodes: what a session goes on from, it plays by slot, whatever the budget.
"""

import hashlib
import reprlib
from collections.abc import Mapping
from typing import Any, cast

import attrs

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers.records import plain
from rlmesh_trio.spec import SessionSpec, ValueSpace

__all__ = ("UNDECISIVE", "refuse_other_run", "run_facts")

UNDECISIVE = frozenset(
    {
        "env_contract",
        "env_id",
        "env_component_id",
        "model_component_id",
        "num_envs",
        "subset_step",
        "close_env_on_end",
        "limits",
        "env_ceiling",
        "model_ceiling",
        "on_env_error",
        "on_timeout",
        "finished",
    }
)


def run_facts(spec: SessionSpec, *, execution_horizon: int, prefetch_lead: int) -> dict[str, Any]:
    """The facts of a run, by name, as JSON reads them back: the decisive fields of *spec* and what the env is like."""
    contract = spec.env_contract
    decisive = {
        field.name: getattr(spec, field.name) for field in attrs.fields(SessionSpec) if field.name not in UNDECISIVE
    }
    env = {
        "env": contract.env_id,
        "observation_space": _digest(contract.observation_space),
        "action_space": _digest(contract.action_space),
        "autoreset_mode": int(contract.autoreset_mode),
        "lockstep_lanes": 1 if spec.subset_step else spec.num_envs,
    }
    return plain(env | decisive | {"execution_horizon": execution_horizon, "prefetch_lead": prefetch_lead})


def _digest(space: ValueSpace | None) -> str | None:
    return None if space is None else hashlib.sha256(space.encoded).hexdigest()[:16]


def refuse_other_run(path: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise :exc:`InvalidSpec` for the first fact that both know and that differs; *path* is where *there* stands.

    More episodes here are no difference, nor are more seeds that begin with those there.
    """
    for name, value in here.items():
        if name in there and there[name] != value and not _extends(name, there[name], value):
            raise InvalidSpec(
                f"{path} is of another run: {name} is {reprlib.repr(there[name])} there and {reprlib.repr(value)} here"
            )


def _extends(name: str, there: Any, here: Any) -> bool:
    match name, there, here:
        case "max_episodes", int(), int():
            return here > there
        case "episode_seeds", [_, *_], list():
            return cast("list[Any]", here)[: len(cast("list[Any]", there))] == there
        case _:
            return False
