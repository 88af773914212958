"""What a run promises: with one seed and a number of examples the same reports, and a word where the time cut it."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from rlmesh_trio.conformance import serving_process
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.reports.html import html_text
from rlmesh_trio.conformance.reports.json import json_text
from rlmesh_trio.conformance.reports.junit import junit_text
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.terminal import terminal_text
from rlmesh_trio.conformance.verdicts import Evidence
from tests.cli.program import Ran, run
from tests.conformance.outcomes import finding, outcome, target

FAULTY = "tests.conformance.planted.plain:Outside"
KINDS = ("json", "junit", "html")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(serving_process, "_NESTS", 1)  # the second one is for restarts, of which there are none here
    load_checks()


def conform(capsys: pytest.CaptureFixture[str], name: str, *args: str) -> tuple[Ran, dict[str, str]]:
    """A run, and its reports by kind."""
    reports = [f"--report={kind}={name}.{kind}" for kind in KINDS]
    ran = run(capsys, "conform", FAULTY, "--seed", "5", *args, *reports)
    return ran, {kind: Path(f"{name}.{kind}").read_text() for kind in KINDS}


def timeless(kind: str, report: str) -> Any:
    """*report* without the fields that are documented to hold times."""
    match kind:
        case "json":
            document = json.loads(report)
            assert document.pop("times") is not None
            return document
        case "junit":
            root = ET.fromstring(report)
            for element in root.iter():
                element.attrib.pop("time", None)
                element.attrib.pop("timestamp", None)
            return ET.tostring(root)
        case _:
            return re.sub(r'<section id="times".*?</section>', "", report, flags=re.DOTALL)


def test_two_runs_with_one_seed_and_a_number_of_examples_report_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--examples", "2", "--only", "space.obs-contained,py,acct.once,wire.one-answer")
    first, reports = conform(capsys, "first", *args)
    second, again = conform(capsys, "second", *args)
    assert first.status == second.status == 1
    document = json.loads(reports["json"])
    failed = [check for check in document["checks"] if check["verdict"] == "fail"]
    assert [check["id"] for check in failed] == ["space.obs-contained"]
    assert len(failed[0]["reproduction"]["scripts"][0]["ops"]) == 4
    assert not any(check["cut_by_time"] for check in document["checks"])
    for kind in KINDS:
        assert timeless(kind, reports[kind]) == timeless(kind, again[kind])
    assert "cut by time" not in first.out


def test_reports_say_what_the_time_cut() -> None:
    cut = finding("seed.trace-repeatable", "pass", cut=True)
    told = Material(outcome(target(cut, finding("seed.sensitive", "pass"))), times=False)
    document = json.loads(json_text(told))
    assert [check["cut_by_time"] for check in document["checks"]] == [True, False]
    assert "cut by time: --time gives more" in terminal_text(told)
    assert html_text(told).count("cut by time") == 2
    (named,) = ET.fromstring(junit_text(told)).findall(".//property[@name='cut_by_time']")
    assert named.attrib["value"] == "seed.trace-repeatable"


def test_what_a_clock_measured_is_left_out_with_the_times() -> None:
    evidence = Evidence(("r3 had 10 ms", "a diagram"), "late", measured=("  274 ms a diagram",), blame="server")
    failed = finding("wire.deadline", "fail", evidence=evidence, case=("step 10ms",))
    for form in (terminal_text, json_text, junit_text, html_text):
        with_times, without = (form(Material(outcome(target(failed)), times=times)) for times in (True, False))
        assert ("274 ms" in with_times) == (form is not junit_text)
        assert "274 ms" not in without
        assert "r3 had 10 ms" in without
