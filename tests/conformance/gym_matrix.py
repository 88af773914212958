"""Gymnasium's own envs, in each form and place a user may have them: nothing must be found but what is true.

``python -m tests.conformance.gym_matrix [--time SECONDS] [--seed N] [WORD …]`` runs what has every word in its name, in
full, and prints a line for each. gymnasium 1.4 has Taxi as v4 only.
"""

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import gymnasium
import trio
from gymnasium.vector import SyncVectorEnv

from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import QUICK, Settings
from rlmesh_trio.conformance.targets import LocalTarget, ServedTarget, Target, WireTarget
from rlmesh_trio.conformance.verdicts import Finding
from tests.peers import start_env_peer

__all__ = ("ENVS", "FORMS", "PLACES", "Cell", "complaints_of", "played")

ENVS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "Blackjack-v1",
)
FORMS = ("single", "lanes", "vector")
PLACES = ("rlmesh", "factory", "local")
"""A real rlmesh server, a factory that is served by a process of ours, and an env of this process."""

WIDTH = 3


def vector_of(env: str) -> SyncVectorEnv:
    """*WIDTH* copies of *env* in lockstep."""
    return SyncVectorEnv([partial(gymnasium.make, env)] * WIDTH)


@attrs.frozen
class Cell:
    """One env in one form and place."""

    env: str
    form: str
    place: str

    @property
    def name(self) -> str:
        """What it goes by."""
        return f"{self.env} {self.form} {self.place}"

    @contextmanager
    def target(self) -> Generator[Target]:
        """The target; its server, where that is a real one, runs for the block."""
        if self.place == "rlmesh":
            with start_env_peer("--env", self.env, "--kind", self.form, "--num-envs", str(WIDTH)) as peer:
                yield WireTarget(peer.address)
            return
        source: Any = partial(vector_of, self.env) if self.form == "vector" else self.env
        lanes = WIDTH if self.form == "lanes" else 1
        yield ServedTarget(source, lanes=lanes) if self.place == "factory" else LocalTarget(source, lanes=lanes)


def played(cell: Cell, settings: Settings, *, skip: Sequence[str] = ()) -> TargetOutcome:
    """What came of *cell*, by all checks but those in *skip*."""
    checks = {id: check for id, check in load_checks().items() if id not in skip}
    with cell.target() as target:
        return trio.run(partial(run_checks, [target], settings, checks=checks)).targets[0]


def complaints_of(outcome: TargetOutcome) -> list[str]:
    """What a user would have to look into: failures, warnings, faults of the kit, and that the target was lost."""
    found = [finding for finding in outcome.findings if finding.verdict in ("fail", "warn", "error")]
    lost = [f"lost: {outcome.lost}"] if outcome.lost else []
    return [f"{finding.verdict} {finding.check}: {told(finding)}" for finding in found] + lost


def told(finding: Finding) -> str:
    """How *finding* broke, in one line."""
    if finding.evidence is None:
        return finding.reason
    evidence = finding.evidence
    return f"{evidence.signature}, blamed on the {evidence.blame}: {' | '.join(evidence.lines)}"


def main() -> int:
    """Run what was asked for; 1 when there is a complaint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--time", type=float, default=QUICK)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    settings = Settings(time=asked.time, seed=asked.seed)
    complaints: list[str] = []
    for cell in itertools.starmap(Cell, itertools.product(ENVS, FORMS, PLACES)):
        if all(word in cell.name for word in asked.words):
            outcome = played(cell, settings)
            counted = Counter(finding.verdict for finding in outcome.findings)
            verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counted.items()))
            known = [f"known: {finding.check}" for finding in outcome.findings if finding.verdict == "known"]
            new = complaints_of(outcome)
            print(f"{cell.name:32} {outcome.seconds:5.1f} s  {verdicts}", *known, *new, sep="\n    ", flush=True)
            complaints += new
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
