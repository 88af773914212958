"""The family ``py``: what the env's own methods return, before a codec or a server makes it fit.

The env is opened in this process, in a thread of its own, and looked at as it is handed to a server: with its wrappers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import attrs
import gymnasium
import numpy as np
import trio
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.printing import place_text, value_text
from rlmesh_trio.conformance.python_env import Leaf, Returned, leaves_of, returned_values
from rlmesh_trio.conformance.python_types import has_dtype, stored_bits, type_name, unplain_parts
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.endpoints.loading import AnyEnv
from rlmesh_trio.spaces.leaf_values import leaf_name

__all__ = (
    "close_twice",
    "flag_types",
    "info_plain",
    "no_alias",
    "obs_dtype",
    "reset_pair",
    "reward_type",
    "step_five",
)

_RESET = "gymnasium Env.reset: returns (observation, info)"
_STEP = "gymnasium Env.step: returns (observation, reward, terminated, truncated, info)"
_STEPS = 16

_Asking = Callable[[AnyEnv, Facts, Script], Evidence | None]


def _here(facts: Facts) -> str | None:
    return None if facts.local else "needs a factory or a gymnasium id: the env of a running server is not opened here"


def _scalar(facts: Facts) -> str | None:
    if facts.contract.num_envs > 1 and not facts.subset_step:
        return "needs a scalar env: the flags and rewards of a vector env are arrays"
    return _here(facts)


def _scripts(facts: Facts) -> SearchStrategy[Script]:
    return scripts(facts, steps=_STEPS, reseed=True)


def _two_steps(facts: Facts) -> Script:
    return example_script(facts, steps=2)


def _one_step(facts: Facts) -> Script:
    return example_script(facts, steps=1)


async def _asked(lab: Lab, ask: _Asking, script: Script) -> Evidence | None:
    """What *ask* says of the env; nothing when it takes too long, which is for others to tell."""
    facts = lab.facts
    try:
        return await lab.ask_local(lambda env: ask(env, facts, script))
    except trio.TooSlowError:
        return None


def _last_returned(env: AnyEnv, facts: Facts, script: Script) -> Returned | None:
    """What the last op returned; asked of the bare env where a wrapper raised. ``None`` where that raises, too."""
    for asked in (env, env.unwrapped):
        returned = list(returned_values(asked, script, facts))[-1]
        if returned.failure is None:
            return returned
    return None


@check(
    "py.reset-pair",
    severity="must",
    requirement="reset() returns an observation and a dict.",
    rule=_RESET,
    cases=lambda facts: st.just(example_script(facts, steps=0)),
    example=lambda facts: example_script(facts, steps=0),
    applies=_here,
)
async def reset_pair(lab: Lab, script: Script) -> Evidence | None:
    """Reset once."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        returned = _last_returned(env, facts, script)
        if returned is None or (len(returned.values) == 2 and isinstance(returned.values[1], dict)):
            return None
        lines = (f"reset() returned {type_name(returned.value)}", "wanted (observation, dict)")
        return Evidence(lines, "reset returns no pair", "The env is written for gym before 0.26, or forgets the infos.")

    return await _asked(lab, ask, script)


@check(
    "py.step-five",
    severity="must",
    requirement="step() returns five values, the last of them a dict.",
    rule=_STEP,
    cases=lambda facts: st.just(_one_step(facts)),
    example=_one_step,
    applies=_here,
    after=("py.reset-pair",),
)
async def step_five(lab: Lab, script: Script) -> Evidence | None:
    """Step once."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        returned = _last_returned(env, facts, script)
        if returned is None or returned.is_reset:
            return None
        if returned.is_sound and isinstance(returned.values[-1], dict):
            return None
        lines = (
            f"step() returned {type_name(returned.value)}",
            "wanted (observation, reward, terminated, truncated, dict)",
        )
        return Evidence(lines, "step returns no five", "The env is written for gym before 0.26, with one flag done.")

    return await _asked(lab, ask, script)


def _steps(env: AnyEnv, facts: Facts, script: Script) -> Iterator[Returned]:
    """The sound answers to the steps of *script* on a scalar env."""
    if not isinstance(env, VectorEnv):
        for returned in returned_values(env, script, facts):
            if not returned.is_reset and returned.is_sound:
                yield returned


@check(
    "py.flag-types",
    severity="should",
    requirement="terminated and truncated are bools, Python's or numpy's.",
    rule=_STEP,
    cases=_scripts,
    example=example_script,
    applies=_scalar,
    after=("py.step-five",),
)
async def flag_types(lab: Lab, script: Script) -> Evidence | None:
    """Look at the types of both flags."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        for returned in _steps(env, facts, script):
            for name, flag in zip(("terminated", "truncated"), returned.values[2:4], strict=True):
                if not isinstance(flag, (bool, np.bool_)):
                    lines = (f"{place_text(script, returned.op)}  {name} = {value_text(flag)}, {type_name(flag)}",)
                    meaning = "Code that writes `flag is True`, or sums flags, gets something else than it expects."
                    return Evidence(lines, f"{name} is no bool", meaning, first=(returned.op, 0))
        return None

    return await _asked(lab, ask, script)


@check(
    "py.reward-type",
    severity="should",
    requirement="The reward is a real number, Python's or numpy's, and no array.",
    rule=_STEP,
    cases=_scripts,
    example=example_script,
    applies=_scalar,
    after=("py.step-five", "space.member-accepted"),
)
async def reward_type(lab: Lab, script: Script) -> Evidence | None:
    """Look at the type of the reward."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        for returned in _steps(env, facts, script):
            reward = returned.values[1]
            if not isinstance(reward, (int, float, np.integer, np.floating)):
                lines = (f"{place_text(script, returned.op)}  reward = {value_text(reward)}, {type_name(reward)}",)
                meaning = "Sums of rewards become arrays, and buffers get another shape."
                return Evidence(lines, "reward is no number", meaning, first=(returned.op, 0))
        return None

    return await _asked(lab, ask, script)


@check(
    "py.obs-dtype",
    severity="should",
    requirement="The leaves of observations have the declared dtypes before a server coerces them.",
    rule="gymnasium Space.contains; " + 'edition 2026.06, "Dtype conformance"',
    cases=_scripts,
    example=example_script,
    applies=_here,
    after=("py.step-five", "space.obs-structure"),
)
async def obs_dtype(lab: Lab, script: Script) -> Evidence | None:
    """Compare each leaf's dtype with its space's."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        for returned in returned_values(env, script, facts):
            for path, space, value in _observed(env, returned):
                if not has_dtype(space, value):
                    name = leaf_name("obs", path)
                    wanted = "str" if isinstance(space, spaces.Text) else f"{cast('Any', space).dtype}"
                    lines = (
                        f"{place_text(script, returned.op)}  {name} is {type_name(value)}",
                        f"declared is {wanted}",
                    )
                    meaning = "Who uses the env without a server gets other numbers than over the wire."
                    return Evidence(lines, f"{name} has another dtype", meaning, first=(returned.op, 0))
        return None

    return await _asked(lab, ask, script)


def _observed(env: AnyEnv, returned: Returned) -> Iterator[Leaf]:
    if returned.is_sound:
        yield from leaves_of(cast("gymnasium.Space[Any]", cast("Any", env).observation_space), returned.values[0])


@attrs.frozen
class _Held:
    """Something that was handed out by the op at ``op``: how to read it again, and what was read then."""

    op: int
    role: str
    read: Callable[[], Iterator[tuple[str, Any]]]
    before: Mapping[str, Any]


@check(
    "py.no-alias",
    severity="must",
    requirement="What was handed out keeps its value, whatever the env does later.",
    rule="gymnasium: an observation belongs to the caller; buffers keep it",
    cases=_scripts,
    example=_two_steps,
    applies=_here,
    after=("py.step-five",),
)
async def no_alias(lab: Lab, script: Script) -> Evidence | None:
    """Keep everything, and look at it again after each op. Infos alone are a should."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        held: list[_Held] = []
        mild: Evidence | None = None
        for returned in returned_values(env, script, facts):
            for each in held:
                evidence = _changed(each, returned, script)
                if evidence is not None and evidence.severity is None:
                    return evidence
                mild = mild or evidence
            if returned.is_sound:
                held.extend(_hold(env, returned))
        return mild

    return await _asked(lab, ask, script)


def _hold(env: AnyEnv, returned: Returned) -> Iterator[_Held]:
    def observation() -> Iterator[tuple[str, Any]]:
        for path, _, value in _observed(env, returned):
            yield leaf_name("obs", path), value

    def infos() -> Iterator[tuple[str, Any]]:
        yield from _plain_parts("info", returned.values[-1])

    for role, read in (("obs", observation), ("info", infos)):
        yield _Held(returned.op, role, read, {name: _copied(value) for name, value in read()})


def _copied(value: Any) -> Any:
    return cast("Any", value).copy() if isinstance(value, np.ndarray) else value


def _plain_parts(path: str, value: object) -> Iterator[tuple[str, Any]]:
    """The arrays and plain values in infos, each with its path."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            yield from _plain_parts(f"{path}.{key}", part)
    elif isinstance(value, (np.ndarray, np.generic, bool, int, float, str, bytes)):
        yield path, value


def _changed(held: _Held, now: Returned, script: Script) -> Evidence | None:
    """What is no longer as it was handed out."""
    for name, value in held.read():
        before = held.before.get(name, value)
        if stored_bits(before) == stored_bits(value):
            continue
        handed, later = place_text(script, held.op), place_text(script, now.op)
        lines = (
            f"{name} as {handed} returned it: {value_text(before)}",
            f"the same object after {later}: {value_text(value)}",
        )
        meaning = "The env hands out its own buffer and writes into it again; every stored transition changes with it."
        severity = "should" if held.role == "info" else None
        return Evidence(lines, f"{name} changes later", meaning, first=(now.op, 0), severity=severity)
    return None


@check(
    "py.info-plain",
    severity="should",
    requirement="Infos hold what the wire's values can say: numbers, texts, bytes, arrays, lists and maps of these.",
    rule="rlmesh.spaces.v1 MetaValue; anything else becomes a text",
    cases=_scripts,
    example=example_script,
    applies=_here,
    after=("py.step-five",),
)
async def info_plain(lab: Lab, script: Script) -> Evidence | None:
    """Go through all infos."""

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        for returned in returned_values(env, script, facts):
            for path, why in unplain_parts("info", returned.values[-1]) if returned.is_sound else ():
                lines = (f"{place_text(script, returned.op)}  {path} {why}",)
                meaning = "A client gets the str() of it, or nothing it can use."
                return Evidence(lines, f"{path} is not plain", meaning, first=(returned.op, 0))
        return None

    return await _asked(lab, ask, script)


@check(
    "py.close-twice",
    severity="should",
    requirement="close() may be called again.",
    rule="gymnasium Env.close: closing a closed env has no effect and raises nothing",
    cases=lambda _: st.just(()),
    example=lambda _: (),
    applies=_here,
)
async def close_twice(lab: Lab, case: tuple[()]) -> Evidence | None:
    """Close the env twice."""
    del case

    def ask(env: AnyEnv, facts: Facts, script: Script) -> Evidence | None:
        del facts, script
        for call in ("close()", "close() again"):
            try:
                env.close()
            except Exception as failure:
                lines = (f"{call} raised {type(failure).__name__}: {failure}",)
                return Evidence(lines, f"{call} raises", "Runs end with a traceback, or leave something open.")
        return None

    return await _asked(lab, ask, Script(lab.facts.contract.num_envs, ()))
