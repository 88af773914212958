"""Reports, events and the baseline on the command line: what the options ask for, and what they refuse."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest

from rlmesh_trio.cli.conform_reports import Reporting, report_options, reporting_from
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.errors import InvalidSpec
from tests.cli.program import run
from tests.cli.schema import complaints, read_schema
from tests.conformance.outcomes import everything, finding, history, outcome, target

FAILED = outcome(target(history()))
PASSED = outcome(target(finding("seed.history-independent", "pass")))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_checks()


def asked(*args: str) -> Reporting:
    """What these options come to."""

    @report_options
    @click.command()
    def command(**options: Any) -> Reporting:
        return reporting_from(options)

    return command.main(args, standalone_mode=False)


def finished(told: Outcome, *args: str) -> int:
    """The status of a run that came to *told*, with these options."""
    reporting = asked(*args)
    with reporting.watched(Watcher(), progress=False) as watcher:
        watcher.run_started(told.settings, tuple(one.name for one in told.targets))
        print("an env speaks")
        watcher.run_ended(told)
    return reporting.finish(told, verbose=False)


def test_without_options_the_terminal_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert finished(FAILED) == 1
    said = capsys.readouterr()
    assert "FAIL seed.history-independent" in said.out
    assert said.err == ""
    assert list(Path().iterdir()) == []


def test_every_kind_of_report_is_written_where_asked_or_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    status = finished(everything(), "--report", "junit", "--report", "json=out.json", "--report", "html")
    assert status == 4
    assert ET.parse("conform-report.xml").getroot().tag == "testsuites"
    document = json.loads(Path("out.json").read_text())
    assert complaints(document, read_schema("conformance.schema.json")) == []
    assert Path("conform-report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_report_on_standard_output_has_it_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    finished(FAILED, "--report", "json=-")
    said = capsys.readouterr()
    assert json.loads(said.out)["status"] == 1
    assert "an env speaks" in said.err
    assert "FAIL seed.history-independent" in said.err


def test_events_are_written_to_a_file_or_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    finished(FAILED, "--events", "events.ndjson")
    in_file = [json.loads(line)["event"] for line in Path("events.ndjson").read_text().splitlines()]
    capsys.readouterr()
    finished(FAILED, "--events", "-")
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == in_file
    assert in_file == ["run_started", "run_ended"]


def test_times_can_be_left_out_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    finished(FAILED, "--report", "json=a.json", "--events", "events.ndjson", "--no-times")
    assert json.loads(Path("a.json").read_text())["times"] is None
    assert all("time" not in json.loads(line) for line in Path("events.ndjson").read_text().splitlines())
    assert capsys.readouterr().out.endswith("1 check failed: seed.history-independent\n")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--report", "pdf"), "'pdf' is no report: write KIND=PATH with a KIND of junit, json, html"),
        (("--report", "html=no/such/folder.html"), "cannot write 'no/such/folder.html': No such file or directory"),
        (("--report", "html=a", "--report", "json=./a"), "two of --report and --events have the same place"),
        (("--report", "html=-", "--events", "-"), "two of --report and --events have the same place"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(args: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        asked(*args)
    assert complaint in refused.value.format_message()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--events", "no/such/folder"), "cannot write the events to 'no/such/folder': No such file or directory"),
        (("--baseline", "none.toml"), "baseline none.toml: No such file or directory"),
    ],
)
def test_files_that_cannot_be_used_are_refused_too(args: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InvalidSpec, match=complaint), asked(*args).watched(Watcher(), progress=False):
        pass


def test_a_report_that_cannot_be_written_in_the_end_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    reporting = asked("--report", "json=folder/a.json")
    Path("folder").rmdir()
    assert reporting.finish(PASSED, verbose=False) == 1
    assert "error: the json report could not be written: No such file or directory" in capsys.readouterr().err


def test_a_report_that_cannot_be_made_leaves_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise LookupError("no such color")

    for broken in ("html.html_text", "terminal.terminal_text"):
        monkeypatch.setattr(f"rlmesh_trio.conformance.reports.{broken}", fails)
    assert finished(PASSED, "--report", "html", "--report", "json", "--report", "junit") == 1
    assert Path("conform-report.json").exists()
    assert Path("conform-report.xml").exists()
    said = capsys.readouterr().err
    assert "error: the html report could not be made: LookupError: no such color" in said
    assert "error: the terminal report could not be made" in said


def test_so_do_events_on_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    reporting = asked("--events", "/dev/full")
    with reporting.watched(Watcher(), progress=False) as watcher:
        watcher.run_started(PASSED.settings, ("Pole-v1",))
    assert reporting.finish(PASSED, verbose=False) == 1
    assert "error: the events could not be written: No space left on device" in capsys.readouterr().err


def test_a_baseline_is_written_followed_and_goes_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert finished(FAILED, "--update-baseline") == 0
    assert Path("conform-baseline.toml").exists()
    assert finished(FAILED) == 0, "it is found by its name"
    assert "KNOWN seed.history-independent" in capsys.readouterr().out
    assert finished(PASSED, "--baseline", "conform-baseline.toml", "--report", "json=a.json") == 1
    assert "STALE seed.history-independent on Pole-v1: the check passes: take it out\n" in capsys.readouterr().out
    assert json.loads(Path("a.json").read_text())["stale"][0]["check"] == "seed.history-independent"
    assert finished(PASSED, "--update-baseline") == 0
    assert finished(FAILED) == 1


def test_a_date_that_is_over_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    yesterday = date.fromordinal(date.today().toordinal() - 1)
    Path("b.toml").write_text(f"[[entry]]\nid = 'seed.history-independent'\nuntil = {yesterday}\n")
    assert finished(FAILED, "--baseline", "b.toml") == 1
    assert "is over" in capsys.readouterr().out


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    reporting = asked()
    with reporting.watched(Watcher(), progress=True) as watcher:
        watcher.run_started(FAILED.settings, ("Pole-v1",))
        watcher.target_closed(FAILED.targets[0])
    assert capsys.readouterr().err == "seed 42\n  seed       1 check, 1,234 steps in 1.5 s: 1 failed\n"


def test_standard_output_is_given_back() -> None:
    before = sys.stdout
    with asked("--report", "json=-").watched(Watcher(), progress=False):
        assert sys.stdout is sys.stderr
    assert sys.stdout is before


def test_an_env_that_fails_is_reported_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--only", "seed.reset-repeatable", "--time", "60s", "--max-fail", "1", "--shrink-time", "1s")
    target = "tests.conformance.planted.seed:UnseededStart"
    ran = run(capsys, "conform", target, *args, "--report", "html", "--report", "json", "--report", "junit")
    assert ran.status == 1
    assert "FAIL seed.reset-repeatable   must" in ran.out
    assert ran.err.startswith("seed ")
    document = json.loads(Path("conform-report.json").read_text())
    assert complaints(document, read_schema("conformance.schema.json")) == []
    failed = ET.parse("conform-report.xml").findall(".//testcase[@name='seed.reset-repeatable']/failure")
    assert len(failed) == 1
    assert "first difference" in Path("conform-report.html").read_text()
