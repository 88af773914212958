"""What comes of ``rlmesh-trio conform``: reports, events and the baseline, by the options that ask for them."""

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import attrs
import click

from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.output_file import JsonOutput
from rlmesh_trio.cli.parameters import json_output
from rlmesh_trio.errors import InvalidSpec

if TYPE_CHECKING:
    from rlmesh_trio.conformance.baseline import Baseline
    from rlmesh_trio.conformance.outcome import Outcome
    from rlmesh_trio.conformance.reports.events import EventLog
    from rlmesh_trio.conformance.reports.material import Material, Reproduction, Stale
    from rlmesh_trio.conformance.watching import Watcher

__all__ = ("Reporting", "report_options", "reporting_from")

F = TypeVar("F", bound=Callable[..., Any])

_BASELINE = "conform-baseline.toml"
_FILES = {"junit": "conform-report.xml", "json": "conform-report.json", "html": "conform-report.html"}
_STDOUT = "-"
_UNWRITTEN = 1


@attrs.frozen
class _Report:
    kind: str
    output: JsonOutput


def _report(text: str) -> _Report:
    """A report from ``KIND`` or ``KIND=PATH``, refused when it cannot be written."""
    kind, _, path = text.partition("=")
    if kind not in _FILES:
        raise click.BadParameter(f"{text!r} is no report: write KIND=PATH with a KIND of {', '.join(_FILES)}")
    return _Report(kind, json_output(path or _FILES[kind]))


def report_options(command: F) -> F:
    """Add the options that :func:`reporting_from` takes to *command*."""
    options = (
        click.option(
            "--report",
            "reports",
            metavar="KIND[=PATH]",
            type=_report,
            multiple=True,
            help="Write a report: junit, json or html; - is standard output.",
        ),
        click.option("--events", metavar="FILE", help="Write what happens as NDJSON while it does."),
        click.option(
            "--no-times", "times", is_flag=True, flag_value=False, default=True, help="Leave times out of all that."
        ),
        click.option(
            "--baseline", metavar="FILE", help=f"Failures accepted for now.  [default: {_BASELINE}, if there]"
        ),
        click.option("--update-baseline", is_flag=True, help="Make the baseline fit this run."),
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def reporting_from(options: dict[str, Any]) -> "Reporting":
    """Take the options of :func:`report_options` out of *options*. Raises :exc:`click.UsageError` when they clash."""
    given = {name: options.pop(name) for name in ("reports", "events", "times", "baseline", "update_baseline")}
    files = [_STDOUT if one.output.is_stdout else one.output.file for one in given["reports"]] + [given["events"]]
    places = [file if file == _STDOUT else os.path.realpath(file) for file in files if file]
    if len(places) != len(set(places)):
        raise click.UsageError("two of --report and --events have the same place")
    return Reporting(**given)


@attrs.define
class Reporting:
    """What was asked for. ``baseline`` and ``events`` are files, ``times`` says whether anything tells the time."""

    reports: tuple[_Report, ...]
    events: str | None
    times: bool
    baseline: str | None
    update_baseline: bool
    _accepted: "Baseline | None" = None
    _log: "EventLog | None" = None

    @contextlib.contextmanager
    def watched(self, watcher: "Watcher", *, progress: bool) -> Generator["Watcher"]:
        """*watcher* and whoever else is to be told of a run in this block; *progress* is shown on standard error.

        Raises :exc:`~rlmesh_trio.errors.InvalidSpec` for a file that is no baseline, or cannot be written.
        """
        from rlmesh_trio.conformance.reports.events import EventLog
        from rlmesh_trio.conformance.reports.progress import Progress
        from rlmesh_trio.conformance.watcher_group import WatcherGroup

        self._accepted = self._read_baseline()
        watchers = [watcher, Progress(sys.stderr)] if progress else [watcher]
        with contextlib.ExitStack() as stack:
            if self.events:
                stream = sys.stdout if self.events == _STDOUT else stack.enter_context(_opened(self.events))
                self._log = EventLog(stream, times=self.times)
                stack.enter_context(self._log.hypothesis_lines())
                watchers.append(self._log)
            if self._keeps_stdout:
                # What envs print must not get into it.
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            yield WatcherGroup(*watchers)

    def finish(
        self,
        outcome: "Outcome",
        reproductions: "Mapping[tuple[str, str], Reproduction] | None" = None,
        *,
        verbose: bool,
    ) -> int:
        """Show and write what came of the run, and return the exit status.

        *reproductions* are by check and target; *verbose* cuts nothing short.
        """
        from rlmesh_trio.conformance.reports.material import Material
        from rlmesh_trio.conformance.reports.terminal import WIDTH, terminal_text, wants_color

        judged, stale = self._judged(outcome)
        material = Material(judged, reproductions or {}, stale, self.times)
        stream = sys.stderr if self._keeps_stdout else sys.stdout
        width = shutil.get_terminal_size().columns if stream.isatty() else WIDTH

        def show() -> None:
            stream.write(
                terminal_text(material, width=max(WIDTH // 2, width), color=wants_color(stream), verbose=verbose)
            )
            stream.flush()

        # One after the other, whatever becomes of those before it; the reader of a pipe may have left.
        written = [*[_written(report, material) for report in self.reports], _done("terminal", show)]
        if self._log is not None and self._log.failure is not None:
            written.append(_told(f"the events could not be written: {_why(self._log.failure)}"))
        return material.status or (0 if all(written) else _UNWRITTEN)

    @property
    def _keeps_stdout(self) -> bool:
        return self.events == _STDOUT or any(report.output.is_stdout for report in self.reports)

    def _read_baseline(self) -> "Baseline":
        from rlmesh_trio.conformance.baseline import Baseline, read_baseline

        file = self.baseline or _BASELINE
        needed = self.baseline is not None and not self.update_baseline
        return read_baseline(file) if needed or os.path.exists(file) else Baseline()

    def _judged(self, outcome: "Outcome") -> "tuple[Outcome, tuple[Stale, ...]]":
        """*outcome* with what is accepted taken off, and what of the baseline is stale, once that was updated."""
        from rlmesh_trio.conformance.baseline import baseline_text, updated

        accepted, today = self._accepted, date.today()
        if accepted is None:
            return outcome, ()
        if self.update_baseline:
            accepted = updated(accepted, outcome, today)
            file = self.baseline or _BASELINE
            try:
                JsonOutput(file).write(baseline_text(accepted))
            except OSError as failure:
                _told(f"the baseline {file} could not be written: {_why(failure)}")
        return accepted.applied(outcome, today), accepted.stale(outcome, today)


@contextlib.contextmanager
def _opened(file: str) -> Generator[TextIO]:
    try:
        stream = open(file, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as failure:
        raise InvalidSpec(f"cannot write the events to {file!r}: {_why(failure)}") from failure
    try:
        yield stream
    finally:
        # What could not be written is the log's to tell.
        with contextlib.suppress(OSError):
            stream.close()


def _written(report: _Report, material: "Material") -> bool:
    from rlmesh_trio.conformance.reports.html import html_text
    from rlmesh_trio.conformance.reports.json import json_text
    from rlmesh_trio.conformance.reports.junit import junit_text

    text_of = {"junit": junit_text, "json": json_text, "html": html_text}[report.kind]
    return _done(report.kind, lambda: report.output.write(text_of(material)))


def _done(kind: str, write: Callable[[], None]) -> bool:
    """*write* the report of this *kind*; false, once that was told, when it could not be."""
    try:
        write()
    except BrokenPipeError:
        raise
    except OSError as failure:
        return _told(f"the {kind} report could not be written: {_why(failure)}")
    except Exception as failure:
        return _told(f"the {kind} report could not be made: {type(failure).__name__}: {failure}")
    return True


def _told(trouble: str) -> bool:
    complain(click.ClickException(trouble))
    return False


def _why(failure: OSError) -> str:
    return failure.strerror or str(failure)
