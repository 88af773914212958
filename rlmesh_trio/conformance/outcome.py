"""What a conformance run comes to, for reports: findings for each target, and the verdict on the whole."""

from typing import Literal

import attrs

from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.contract import EnvContract

__all__ = (
    "FAILED",
    "INTERRUPTED",
    "KIT_FAULT",
    "LOST",
    "NOTHING_TESTED",
    "PASSED",
    "Outcome",
    "TargetOutcome",
)

PASSED = 0
FAILED = 1
NOTHING_TESTED = 2
LOST = 3
KIT_FAULT = 4
INTERRUPTED = 130


@attrs.frozen(eq=False)
class TargetOutcome:
    """One target and what was found of it.

    ``name`` is what the user called it; ``kind`` is ``wire`` for a server that was running, ``factory`` for one started
    here, ``local`` for an env of this process. ``address`` is where its server was last (empty for a local one).
    ``contract`` is ``None`` when it could not be read. ``package`` and ``version`` are the server's own words.
    ``findings`` are in the catalogue's order, one for each selected check. ``lost`` says how the target was lost for
    good, ``last_script`` what was being played on it then. ``stderr`` are the last lines a child process wrote.
    """

    name: str
    kind: Literal["wire", "factory", "local"]
    address: str = ""
    contract: EnvContract | None = None
    contract_digest: str = ""
    package: str = ""
    version: str = ""
    findings: tuple[Finding, ...] = ()
    coverage: Coverage = attrs.field(factory=Coverage)
    seconds: float = 0.0
    lost: str = ""
    last_script: Script | None = None
    stderr: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Outcome:
    """A whole run. ``settings.seed`` is the seed used; ``started`` is a unix time, ``seconds`` the time it all took."""

    targets: tuple[TargetOutcome, ...]
    settings: Settings
    started: float = 0.0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of all targets, in order."""
        return tuple(finding for target in self.targets for finding in target.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that count against the targets: failed musts, and failed shoulds of a strict run."""
        counted = ("fail", "warn") if self.settings.strict else ("fail",)
        return tuple(finding for finding in self.findings if finding.verdict in counted)

    @property
    def status(self) -> int:
        """The exit status: the gravest of what happened.

        130 interrupted; 4 a fault of the kit; 3 a target was lost; 1 something failed; 2 nothing was tested; else 0.
        """
        if self.interrupted:
            return INTERRUPTED
        verdicts = {finding.verdict for finding in self.findings}
        if "error" in verdicts:
            return KIT_FAULT
        if any(target.lost for target in self.targets):
            return LOST
        if self.failed:
            return FAILED
        return PASSED if verdicts - {"skip", "blocked"} else NOTHING_TESTED
