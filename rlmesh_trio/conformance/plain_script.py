"""A failure as a script of a few lines that needs gymnasium and the env, and nothing of this package.

It makes the env, plays what was shrunk, and exits with 1 and the difference when the fault shows. Faults that only a
server can have, and those of envs that cannot be named in a line of code, have none; then there is a reason. Of a check
that is not known here it plays the case, and prints what is answered.
"""

from collections.abc import Iterator

from rlmesh_trio.conformance.plain_comparisons import COMPARED, comparison, copies, terminal_twin, without_effect
from rlmesh_trio.conformance.plain_env import NoPlainScript, PlainEnv
from rlmesh_trio.conformance.plain_plays import (
    RAISES,
    WATCHED,
    Watch,
    always_done,
    pictures,
    printed,
    time_limit,
    watched,
)
from rlmesh_trio.conformance.scripts import Wait
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.contract import EnvContract

__all__ = ("NoPlainScript", "plain_script", "why_no_plain_script")

_OF_THE_SERVER = "the fault is in the server's answer"
_NEVER = {
    "wire": _OF_THE_SERVER,
    "acct": _OF_THE_SERVER,
    "contract": "the fault is in what is declared, nothing is played",
    "twin": "plain gymnasium is one of the two sides only",
    "space.nonmember-refused": "plain gymnasium refuses no actions",
    "space.refusal-harmless": "plain gymnasium refuses no actions",
    "value.warning-once": "plain gymnasium does not warn",
}
_HEAD = "# Exits with 1 and prints the difference when the fault shows. Run it where the env can be imported."
_HEAD_OF_PRINTED = "# Prints what is answered. Run it where the env can be imported."


def why_no_plain_script(finding: Finding) -> str:
    """Why *finding* can have no plain script, whatever its env is; empty where it can."""
    if finding.evidence is None or finding.evidence.blame == "server":
        return _OF_THE_SERVER
    return _NEVER.get(finding.check, _NEVER.get(finding.check.partition(".")[0], ""))


def plain_script(
    finding: Finding,
    source: object,
    contract: EnvContract,
    *,
    lanes: int = 1,
    requirement: str = "",
    limit: int | None = None,
) -> str:
    """The script that shows *finding*, found on *source* served on *lanes* lanes.

    *source* is a gymnasium id, ``module:factory``, or a factory that a module holds. *limit* is the declared time limit
    in steps. Raises :exc:`NoPlainScript`.
    """
    evidence, why = finding.evidence, why_no_plain_script(finding)
    if evidence is None or why:
        raise NoPlainScript(why)
    env = PlainEnv.of(source, contract, lanes)
    text = "\n".join(_body(finding, evidence, env, limit))
    scripts = (*finding.scripts, *(trace.script for trace in evidence.traces))
    waits = any(isinstance(op, Wait) for script in scripts for op in script.ops)
    head = [
        f"# {finding.check}: {' '.join((requirement or evidence.signature).split())}",
        _HEAD if _knows(finding.check) else _HEAD_OF_PRINTED,
        f"import {', '.join(['sys', *(['time'] if waits else [])])}",
        *(["import numpy as np"] if "np." in text else []),
        'sys.path.insert(0, "")',
        env.imported,
    ]
    return "\n".join([*head, text, ""])


def _knows(check: str) -> bool:
    """Whether there is code here that tells the fault."""
    special = ("py.close-twice", "render.frame", "lanes.seed-distinct", "autoreset.next.terminal-kept")
    return check in (*COMPARED, *RAISES, *WATCHED, *special) or check.startswith("life.")


def _body(finding: Finding, evidence: Evidence, env: PlainEnv, limit: int | None) -> Iterator[str]:
    match finding.check:
        case "py.close-twice":
            yield from (env.of_lane(0).made, "env.close()", "env.close()  # raises")
            return
        case "render.frame":
            yield from pictures(finding, env)
            return
        case "life.limit-is-truncation":
            yield from always_done(finding, env, limit)
            return
        case "lanes.seed-distinct":
            yield from copies(finding, evidence, env)
            return
        case "autoreset.next.terminal-kept":
            yield from terminal_twin(evidence, env)
            return
        case "life.options-effective" if len(evidence.traces) == 1:
            yield from without_effect(finding, evidence, env)
            return
        case check if check in COMPARED:
            yield from comparison(finding, evidence, env)
            return
        case _:
            pass
    scripts = tuple(trace.script for trace in evidence.traces) or finding.scripts
    if not scripts:
        raise NoPlainScript("no script shows it")
    if finding.check == "life.time-limit-exact":
        yield from time_limit(evidence, scripts[0], env, limit)
    elif finding.check in (*RAISES, *WATCHED):
        yield from watched(WATCHED.get(finding.check, Watch()), scripts[0], env)
    else:
        yield from printed(finding, evidence, scripts[0], env)
