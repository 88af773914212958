"""The ways to see a failure again: the case as one word, a recording of what it was answered, and a plain script.

All of them are made once a run is over, from its outcome. What cannot be made is left out, and said.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from rlmesh_trio.conformance.blob import encode_blob
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.plain_script import NoPlainScript, plain_script
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.reports.material import Reproduction
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.trace_recording import record_traces
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import SessionError

__all__ = ("FOLDER", "Reproductions", "reproductions_of")

FOLDER = ".rlmesh-trio/fail"
"""Where files that show failures are put, from the working directory."""

_SHOWN = ("fail", "warn", "known")
_LONGEST_WORD = 100_000


@attrs.frozen
class Reproductions:
    """By check and target the ways to see each failure again; ``remarks`` are lines on what could not be made."""

    found: Mapping[tuple[str, str], Reproduction]
    remarks: tuple[str, ...] = ()


def reproductions_of(
    outcome: Outcome,
    *,
    folder: str | os.PathLike[str] = FOLDER,
    modules: Iterable[str] = (),
    sources: Mapping[str, object] | None = None,
) -> Reproductions:
    """Those of every failure in *outcome*, their files in *folder*.

    *modules* are the user's own that hold checks. *sources* has, by the name of a target, what it was made of, where
    that is not the name itself. Without a failure nothing is written.
    """
    maker = _Maker(outcome.settings, Path(folder), tuple(modules), sources or {})
    for target in outcome.targets:
        for finding in target.findings:
            if finding.verdict in _SHOWN and finding.evidence is not None and target.contract is not None:
                maker.add(target, target.contract, finding)
    return Reproductions(maker.found, tuple(dict.fromkeys(maker.remarks)))


class _Maker:
    def __init__(self, settings: Settings, folder: Path, modules: Sequence[str], sources: Mapping[str, object]) -> None:
        self._settings = settings
        self._folder = folder
        self._modules = modules
        self._sources = sources
        self.found: dict[tuple[str, str], Reproduction] = {}
        self.remarks: list[str] = []

    def add(self, target: TargetOutcome, contract: EnvContract, finding: Finding) -> None:
        """Make what can be made for one failure."""
        try:
            blob = encode_blob(finding.check, finding.case, contract)
        except TypeError as fault:
            self.remarks.append(f"{finding.check} has no blob: {fault}")
            return
        digest = hashlib.blake2b(f"{target.name} {blob}".encode(), digest_size=4).hexdigest()
        stem = self._folder / f"{finding.check}-{digest}"
        plain = self._plain(target, contract, finding, stem)
        self.found[finding.check, target.name] = Reproduction(
            again=self._again(target, blob),
            blob=blob,
            file=self._recording(contract, finding, stem, blob),
            plain=f"{stem}.py" if plain else "",
            plain_lines=plain.count("\n"),
        )

    def _again(self, target: TargetOutcome, blob: str) -> str:
        settings = self._settings
        if target.name in self._sources or len(blob) > _LONGEST_WORD:
            return ""
        words = ["rlmesh-trio", "conform", "try"]
        options = [f"--checks={module}" for module in self._modules]
        if target.kind == "factory" and settings.lanes is not None:
            options.append(f"--lanes={settings.lanes}")
        options += [f"--ignore-leaf={leaf}" for leaf in settings.ignored_leaves]
        options += [f"--ignore-info={key}" for key in settings.ignored_infos]
        options += [f"--tolerance=ulp={settings.ulps}"] if settings.ulps else []
        options += [f"--max-steps={settings.max_steps}"] if settings.max_steps else []
        options += [f"--bounds={settings.bounds}"] if settings.bounds != "fail" else []
        options += [f"--options={key}={json.dumps(value)}" for key, value in settings.options]
        # In quotes whether it needs them or not: a blob is nothing that a shell should look into.
        return " ".join([*words, f"'{blob}'", shlex.join([target.name, *options])])

    def _recording(self, contract: EnvContract, finding: Finding, stem: Path, blob: str) -> str:
        traces = finding.evidence.traces if finding.evidence else ()
        path = f"{stem}.mcap"
        try:
            self._make_folder()
            record_traces(path, traces, contract, check=finding.check, blob=blob)
        except OSError as failure:
            self.remarks.append(f"no files to show failures in {self._folder}: {failure.strerror or failure}")
            return ""
        except SessionError as failure:
            self.remarks.append(f"no recording of {finding.check}: {failure}")
            return ""
        return path

    def _make_folder(self) -> None:
        """See to it that the folder is there, and that no version control takes it for work."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")

    def _plain(self, target: TargetOutcome, contract: EnvContract, finding: Finding, stem: Path) -> str:
        known = CHECKS.get(finding.check)
        if target.kind == "wire":
            self.remarks.append(f"no plain scripts: what {target.name} serves is not known here, test its factory")
            return ""
        try:
            text = plain_script(
                finding,
                self._sources.get(target.name, target.name),
                contract,
                lanes=self._settings.lanes or 1,
                requirement=known.requirement if known else "",
            )
        except NoPlainScript as reason:
            self.remarks.append(f"no plain script of {finding.check}: {reason}")
            return ""
        try:
            self._make_folder()
            Path(f"{stem}.py").write_text(text, encoding="utf-8")
        except OSError as failure:
            self.remarks.append(f"no files to show failures in {self._folder}: {failure.strerror or failure}")
            return ""
        return text
