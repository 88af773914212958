"""The ways to see a failure again: the case as one word, a recording of what it was answered, and a plain script.

All of them are made once a run is over, from its outcome. What cannot be made is left out, and said: whatever goes
wrong with one of them, the others are made, and the reports written.
"""

import hashlib
import json
import math
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from rlmesh_trio.conformance.blob import encode_blob
from rlmesh_trio.conformance.facts import declared_limit
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.plain_script import NoPlainScript, plain_script, why_no_plain_script
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.reports.material import Reproduction
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.trace_recording import record_traces
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import SessionError

__all__ = ("Reproductions", "reproductions_of")

_FOLDER = ".rlmesh-trio/fail"
"""Where files that show failures are put, from the working directory."""

_SHOWN = ("fail", "warn", "known")
_LONGEST_WORD = 100_000
_NO_TIME = "the time was over, --time gives more"


@attrs.frozen
class Reproductions:
    """By check and target the ways to see each failure again; ``remarks`` are lines on what could not be made."""

    found: Mapping[tuple[str, str], Reproduction]
    remarks: tuple[str, ...] = ()


def reproductions_of(
    outcome: Outcome,
    *,
    folder: str | os.PathLike[str] = _FOLDER,
    modules: Iterable[str] = (),
    sources: Mapping[str, object] | None = None,
    left: Callable[[], float] = lambda: math.inf,
) -> Reproductions:
    """Those of every failure in *outcome*, their files in *folder*.

    *modules* are the user's own that hold checks. *sources* has, by the name of a target, what it was made of, where
    that is not the name itself. *left* tells how many seconds are left: once there are none, what takes files is left
    out. Without a failure nothing is written. Never raises: what goes wrong is a remark.
    """
    maker = _Maker(outcome.settings, Path(folder), tuple(modules), sources or {}, left)
    shown = [
        _Shown(target, target.contract, finding)
        for target in outcome.targets
        for finding in target.findings
        if finding.verdict in _SHOWN and finding.evidence is not None and target.contract is not None
    ]
    # What costs least comes first: a word, a page of text, and then the recordings, which may be large.
    for make in (maker.name, maker.write_plain, maker.record):
        for one in shown:
            make(one)
    return Reproductions(maker.found, tuple(dict.fromkeys(maker.remarks)))


@attrs.frozen
class _Shown:
    """A failure: of which target, whose contract is known."""

    target: TargetOutcome
    contract: EnvContract
    finding: Finding

    @property
    def key(self) -> tuple[str, str]:
        return self.finding.check, self.target.name


class _Maker:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        modules: Sequence[str],
        sources: Mapping[str, object],
        left: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._modules = modules
        self._sources = sources
        self._left = left
        self.found: dict[tuple[str, str], Reproduction] = {}
        self.remarks: list[str] = []

    def name(self, one: _Shown) -> None:
        """Make the blob, and the command that takes it."""
        finding = one.finding
        blob = ""
        with self._remarking(f"{finding.check} has no blob"):
            blob = encode_blob(finding.check, finding.case, one.contract)
        again = self._again(one.target, blob) if blob else ""
        self.found[one.key] = Reproduction(again=again, blob=blob)

    def write_plain(self, one: _Shown) -> None:
        """Make the plain script, or say why there is none."""
        why = self._why_not(one)
        if not why:
            try:
                self._write_plain(one)
            except NoPlainScript as reason:
                why = str(reason)
            except Exception as failure:
                why = self._failed(failure)
        if why:
            self.found[one.key] = attrs.evolve(self.found[one.key], no_plain=why)
            self.remarks.append(f"no plain script of {one.finding.check}: {why}")

    def _why_not(self, one: _Shown) -> str:
        why = why_no_plain_script(one.finding)
        if not why and one.target.kind == "wire":
            why = "what the server serves is not known here, test its factory"
        return why or (_NO_TIME if self._left() <= 0 else "")

    def _write_plain(self, one: _Shown) -> None:
        known = CHECKS.get(one.finding.check)
        source = self._sources.get(one.target.name, one.target.name)
        text = plain_script(
            one.finding,
            source,
            one.contract,
            lanes=self._settings.lanes or 1,
            requirement=known.requirement if known else "",
            limit=self._settings.max_steps or declared_limit(source, one.contract),
        )
        path = f"{self._stem(one)}.py"
        self._make_folder()
        Path(path).write_text(text, encoding="utf-8")
        self.found[one.key] = attrs.evolve(self.found[one.key], plain=path, plain_lines=text.count("\n"))

    def record(self, one: _Shown) -> None:
        """Make the recording."""
        finding = one.finding
        if self._left() <= 0:
            self.remarks.append(f"no recording of {finding.check}: {_NO_TIME}")
            return
        path = f"{self._stem(one)}.mcap"
        with self._remarking(f"no recording of {finding.check}"):
            self._make_folder()
            traces = finding.evidence.traces if finding.evidence else ()
            record_traces(path, traces, one.contract, check=finding.check, blob=self.found[one.key].blob)
            self.found[one.key] = attrs.evolve(self.found[one.key], file=path)

    @contextmanager
    def _remarking(self, what: str) -> Generator[None]:
        """A block whose failure is a remark."""
        try:
            yield
        except Exception as failure:
            self.remarks.append(f"{what}: {self._failed(failure)}")

    def _failed(self, failure: Exception) -> str:
        if isinstance(failure, OSError):
            return f"cannot write to {self._folder}: {failure.strerror or failure}"
        told = str(failure).partition("\n")[0]
        return told if isinstance(failure, SessionError) else f"{type(failure).__name__}: {told}"

    def _stem(self, one: _Shown) -> Path:
        """Where the files of a failure are, but for their endings."""
        told = f"{one.target.name} {self.found[one.key].blob}"
        digest = hashlib.blake2b(told.encode(), digest_size=4).hexdigest()
        return self._folder / f"{one.finding.check}-{digest}"

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

    def _make_folder(self) -> None:
        """See to it that the folder is there, and that no version control takes it for work."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")
