"""The JUnit report: the structure its readers go by, what counts, and that any text makes good XML."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import attrs
import pytest

from rlmesh_trio.conformance.reports.junit import junit_text
from rlmesh_trio.conformance.reports.material import Stale
from tests.conformance.outcomes import finding, history, material, outcome, server_fault, target

# What Jenkins, GitLab and GitHub's readers agree on: children in this order, and attributes.
CHILDREN = {
    "testsuites": ("testsuite",),
    "testsuite": ("properties", "testcase", "system-out", "system-err"),
    "properties": ("property",),
    "testcase": ("skipped", "error", "failure", "system-out", "system-err"),
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "skipped": {"message"},
    "error": {"message", "type"},
    "failure": {"message", "type"},
}
KINDS = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error", "skipped": "testcase/skipped"}


def check_structure(element: ET.Element) -> None:
    assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set())
    order = CHILDREN.get(element.tag, ())
    tags = [child.tag for child in element]
    assert set(tags) <= set(order), element.tag
    assert tags == sorted(tags, key=order.index)
    for child in element:
        check_structure(child)


def parsed(text: str) -> ET.Element:
    assert text.startswith("<?xml version='1.0' encoding='utf-8'?>\n<testsuites ")
    root = ET.fromstring(text.encode())
    check_structure(root)
    suites = root.findall("testsuite")
    for name, path in KINDS.items():
        assert [int(suite.attrib[name]) for suite in suites] == [len(suite.findall(path)) for suite in suites]
        assert int(root.attrib[name]) == sum(len(suite.findall(path)) for suite in suites)
    return root


def cases_of(root: ET.Element) -> dict[str, Sequence[str]]:
    return {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}


def test_a_suite_a_target_and_a_case_a_check() -> None:
    root = parsed(junit_text(material()))
    first, second = root.findall("testsuite")
    assert (first.attrib["name"], second.attrib["name"]) == ("Pole-v1", "vector")
    assert cases_of(first) == {
        "contract.handshake": [],
        "space.member-accepted": ["failure"],
        "space.bounds-report": ["system-out"],
        "seed.history-independent": ["failure"],
        "seed.timing-independent": ["skipped"],
        "lanes.solo-equal": ["skipped"],
        "lanes.permute": ["skipped"],
        "life.step-needs-reset": ["system-out"],
        "wire.large": ["error"],
    }
    assert cases_of(second)["target"] == ["error"], "a target that was lost is a case that says so"
    known = second.find("testcase[@name='life.step-needs-reset']/skipped")
    assert known is not None
    assert known.attrib["message"] == "known: rlmesh 0.1.0 answers any step"


def test_seed_and_contract_digest_are_properties() -> None:
    root = parsed(junit_text(material()))
    told = {one.attrib["name"]: one.attrib["value"] for one in root.findall("testsuite/properties/property")[:7]}
    assert told["seed"] == "42"
    assert told["contract_digest"] == "0123456789abcdef" * 2
    assert "s3cret" not in junit_text(material())


def test_a_failure_has_script_and_evidence_in_its_body() -> None:
    failure = parsed(junit_text(material())).find(".//testcase[@name='seed.history-independent']/failure")
    assert failure is not None
    assert failure.attrib == {"message": "obs.velocity: value", "type": "must"}
    body = failure.text or ""
    for line in (
        "requirement: script B after any script A equals script B in a fresh session",
        "A  reset(seed=0) step(2)",
        "B after A  step 2  obs.velocity[0] = 0.0921   (0x3dbc9eed)   53687 ulp apart",
        "file: .rlmesh-trio/fail/history-8c1f.mcap",
    ):
        assert f"\n{line}\n" in body


def test_a_warning_fails_a_strict_run_only() -> None:
    told = outcome(target(server_fault()))
    assert cases_of(parsed(junit_text(material(told)))) == {"life.step-needs-reset": ["system-out"]}
    strict = attrs.evolve(told, settings=attrs.evolve(told.settings, strict=True))
    assert cases_of(parsed(junit_text(material(strict)))) == {"life.step-needs-reset": ["failure"]}


def test_a_stale_entry_is_a_failure() -> None:
    told = material(outcome(target(finding("a.b", "pass"))), stale=(Stale("a.b", "*", "the check passes"),))
    baseline = parsed(junit_text(told)).find("testsuite[@name='baseline']/testcase/failure")
    assert baseline is not None
    assert baseline.attrib["message"] == "stale entry: the check passes"


@pytest.mark.parametrize("text", ["\x00\x1b\x07", "]]> & <b>", "\ud800", "\ufffe", "quote \" and ' \n line"])
def test_any_text_makes_good_xml(text: str) -> None:
    evidence = attrs.evolve(history().evidence, lines=(text,), signature=text)
    told = outcome(target(history(evidence=evidence, reason=text), finding("a.b", "skip", reason=text), name=text))
    parsed(junit_text(material(told)))
