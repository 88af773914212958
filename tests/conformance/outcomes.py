"""Outcomes made by hand: one of everything that a report has to tell."""

import struct
from typing import Any

import attrs
import numpy as np
from gymnasium import spaces

from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.registry import Check
from rlmesh_trio.conformance.reports.material import Material, Reproduction
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.contract import AutoresetMode, EnvContract
from rlmesh_trio.messages import EpisodeRecord
from rlmesh_trio.spaces import space_from_gymnasium

__all__ = (
    "CONTRACT",
    "action",
    "everything",
    "finding",
    "history",
    "lost_session",
    "material",
    "observation",
    "outcome",
    "server_fault",
    "solo",
    "target",
    "trace",
)

CONTRACT = EnvContract(
    "Pole-v1",
    space_from_gymnasium(
        spaces.Dict(
            {
                "position": spaces.Box(-1, 1, (2,), np.float32),
                "velocity": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            }
        )
    ),
    space_from_gymnasium(spaces.Discrete(3)),
    num_envs=1,
    autoreset_mode=AutoresetMode.NEXT_STEP,
)
TWO_LANES = attrs.evolve(CONTRACT, num_envs=2)
_ACTIONS = CONTRACT.action_space
_OBSERVATIONS = CONTRACT.observation_space


def action(number: int) -> tuple[bytes, ...]:
    assert _ACTIONS is not None
    return row_of(_ACTIONS, np.int64(number))


def observation(velocity: float, position: tuple[float, float] = (0.5, -0.25)) -> tuple[bytes, ...]:
    assert _OBSERVATIONS is not None
    member = {"position": np.array(position, np.float32), "velocity": np.array([velocity], np.float32)}
    return row_of(_OBSERVATIONS, member)


def bits(number: int) -> float:
    return struct.unpack("<f", number.to_bytes(4, "little"))[0]


def trace(script: Script, *velocities: tuple[float, ...], ends: tuple[int, ...] = ()) -> Trace:
    """Answers to *script* with these velocities, lane by lane; the answers numbered in *ends* end every lane."""
    places = [place for place, op in enumerate(script.ops) if not isinstance(op, Wait)]
    answers: list[Answer] = []
    for number, place in enumerate(places[: len(velocities)]):
        lanes = tuple(range(script.lanes))
        steps = isinstance(script.ops[place], Step)
        flags = tuple([number in ends] * script.lanes) if steps else ()
        answers.append(
            Answer(
                place,
                lanes,
                tuple(observation(velocity) for velocity in velocities[number]),
                (1.0,) * script.lanes if steps else (),
                flags,
                (False,) * script.lanes if steps else (),
                infos={"power": 0.25 * number, "note": "<b>&"},
                completed=tuple(
                    EpisodeRecord(f"id-{lane}", 0, lane, number, float(number), True) for lane in lanes if any(flags)
                ),
                episode_ids=tuple(f"id-{lane}" for lane in lanes),
                seconds=0.25,
            )
        )
    return Trace(script, tuple(answers))


def finding(check: str, verdict: Any, target: str = "Pole-v1", **fields: Any) -> Finding:
    severity: Any = {"warn": "should", "note": "note"}.get(verdict, "must")
    given: dict[str, Any] = {"severity": severity, "examples": 20, "steps": 1234, "seconds": 1.5} | fields
    return Finding(check, verdict=verdict, target=target, **given)


def history(target: str = "Pole-v1", **fields: Any) -> Finding:
    """A failure of two scripts, as in the manual."""
    alone = Script(1, (Reset((0,)), Step((action(1),)), Step((action(1),))))
    before = Script(1, (Reset((0,)), Step((action(2),))))
    first, second = bits(0x3DBBCD36), bits(0x3DBC9EED)
    evidence = Evidence(
        (
            "B alone    step 2  obs.velocity[0] = 0.0917   (0x3dbbcd36)",
            "B after A  step 2  obs.velocity[0] = 0.0921   (0x3dbc9eed)   53687 ulp apart",
        ),
        "obs.velocity: value",
        meaning="something reset() does not clear acts on the first or later transitions (caches, timers, filters)",
        traces=(trace(alone, (0.0,), (0.05,), (first,)), trace(alone, (0.0,), (0.05,), (second,), ends=(2,))),
        first=(2, 0),
    )
    scripts = (before, alone)
    given: dict[str, Any] = {
        "evidence": evidence,
        "scripts": scripts,
        "case": scripts,
        "runs": 3,
        "tries": 3,
        "shrunk_from": 61,
        "shrink_seconds": 4.1,
        "moot": ((0, 0), (1, 1)),
    }
    return finding("seed.history-independent", "fail", target, **given | fields)


def solo(target: str = "vector") -> Finding:
    """A failure of two lanes, in the second one."""
    one = Script(2, (Reset((0, 1)), Step((action(0), action(1))), Wait(0.1), Step((action(0), action(1)))))
    two = attrs.evolve(one, ops=(*one.ops[:1], Step((action(2), action(1))), *one.ops[2:]))
    evidence = Evidence(
        ("changed lane 0: lane 1 moved", "step 2 lane 1  obs.velocity[0] = 0.5", "step 2 lane 1  obs.velocity[0] = 2"),
        "obs.velocity: value",
        traces=(trace(one, (0, 0), (0.5, 0.25), (1, 0.5)), trace(two, (0, 0), (0.75, 0.25), (1.5, 2))),
        first=(3, 1),
    )
    return finding("lanes.solo-equal", "fail", target, evidence=evidence, scripts=(one, two), runs=2, tries=7)


def server_fault(verdict: Any = "warn", **fields: Any) -> Finding:
    """A fault of the server that is no script."""
    evidence = Evidence(
        (
            "client                            server",
            "1    step                      ->",
            "                               <- 1    step",
            "answered with an observation, not with NOT_READY",
        ),
        "answered",
        meaning="the server takes a step before a reset",
        blame="server",
    )
    case = ("step", "leave cut")
    return finding("life.step-needs-reset", verdict, evidence=evidence, case=case, runs=1, tries=1, **fields)


def lost_session() -> Finding:
    """A failure in a single trace, whose session was lost."""
    script = Script(1, (Reset((0,), {"hard": True}), Step((action(2),)), Step((action(1),))))
    played = trace(script, (0.0,))
    refusal = Refusal("INTERNAL", "boom \x1b[31m<script>alert(1)</script>", recoverable=False)
    played = attrs.evolve(played, answers=(*played.answers, Answer(1, (0,), refusal=refusal)), lost=refusal)
    evidence = Evidence(
        ("action 2 raised: boom \x1b[31m<script>alert(1)</script>",), "raised", traces=(played,), first=(1, 0)
    )
    return finding("space.member-accepted", "fail", evidence=evidence, scripts=(script,), runs=1, tries=1)


def coverage() -> Coverage:
    counted = Coverage(sessions=12, resets=40, unseeded_resets=4, steps=900, lane_steps=1800, waits=3, scripts=38)
    counted.terminated, counted.truncated, counted.both = 9, 3, 1
    counted.lengths.update({9: 1, 10: 4, 23: 2, 200: 3})
    counted.actions.update({action(1): 40, action(2): 2})
    counted.refusals.update({"INVALID_ACTION": 7, "TIMEOUT": 1})
    counted.slowest = 0.125
    return counted


def everything() -> Outcome:
    """Two targets, every verdict."""
    bounds = Evidence(("obs.position   declared -1 to 1   seen -0.9 to 0.9",), "bounds")
    single = TargetOutcome(
        "Pole-v1",
        "factory",
        "127.0.0.1:41233",
        CONTRACT,
        "0123456789abcdef" * 2,
        "rlmesh_trio",
        "0.1.0",
        (
            finding("contract.handshake", "pass"),
            lost_session(),
            finding("space.bounds-report", "note", evidence=bounds),
            history(),
            finding("seed.timing-independent", "blocked", reason="seed.history-independent", severity="should"),
            finding("lanes.solo-equal", "skip", reason="needs num_envs >= 2"),
            finding("lanes.permute", "skip", reason="needs num_envs >= 2", severity="should"),
            server_fault(),
            finding("wire.large", "error", reason="ValueError: no such leaf\n  at checks/wire.py:12"),
        ),
        coverage(),
        12.5,
    )
    vector = TargetOutcome(
        "vector",
        "wire",
        "vector",
        TWO_LANES,
        "fedcba9876543210" * 2,
        "rlmesh",
        "0.1.0",
        (
            finding("contract.handshake", "pass", "vector"),
            finding("space.member-accepted", "pass", "vector"),
            finding("seed.history-independent", "pass", "vector"),
            solo(),
            attrs.evolve(server_fault("known", reason="rlmesh 0.1.0 answers any step"), target="vector"),
        ),
        coverage(),
        20.0,
        lost="the server no longer answers: connection refused",
        last_script=history().scripts[0],
        stderr=("Traceback (most recent call last):", "Segmentation fault \x07"),
    )
    return outcome(single, vector)


def outcome(*targets: TargetOutcome, **settings: Any) -> Outcome:
    chosen: dict[str, Any] = {"seed": 42, "token": "s3cret"} | settings
    return Outcome(targets, Settings(**chosen), 1_700_000_000.0, 32.5)


def target(*findings: Finding, **fields: Any) -> TargetOutcome:
    given: dict[str, Any] = {"name": "Pole-v1", "kind": "factory", "contract": CONTRACT} | fields
    return TargetOutcome(findings=findings, **given)


async def _judge(lab: Any, case: Any) -> None: ...


def checks() -> dict[str, Check]:
    """A catalogue that knows what is told of here."""
    known = Check(
        "seed.history-independent",
        "must",
        "script B after any script A equals script B in a fresh session",
        'edition 2026.06 "Reset", gymnasium Env.reset',
        _judge,
        cases=lambda facts: None,  # pyright: ignore[reportArgumentType] - no case is ever asked for
        example=None,
        applies=lambda facts: None,
        after=(),
        compares=True,
        soak=False,
        needs_own_session=False,
    )
    return {known.id: known}


def material(told: Outcome | None = None, **fields: Any) -> Material:
    """*told*, by default everything, with a reproduction of each failure."""
    told = told or everything()
    blob = "c-m~WK?($!" * 9
    again = {
        (one.check, one.target): Reproduction(
            f"rlmesh-trio conform try '{blob}' {one.target}",
            blob,
            ".rlmesh-trio/fail/history-8c1f.mcap",
            ".rlmesh-trio/fail/history-8c1f.py",
            14,
        )
        for one in told.failed
    }
    given: dict[str, Any] = {"checks": checks()} | fields
    return Material(told, again, **given)
