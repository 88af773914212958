"""The JSON report: it keeps its schema whatever was found, and says what the terminal says."""

import json
import math
from typing import Any

import attrs

from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.reports.json import json_text
from rlmesh_trio.conformance.reports.material import Stale
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.scripts_json import script_from_json
from rlmesh_trio.messages import Metadata
from tests.cli.schema import complaints, read_schema
from tests.conformance.outcomes import action, everything, finding, history, material, outcome, target

SCHEMA = read_schema("conformance.schema.json")


def document_of(told: Outcome | None = None, **fields: Any) -> dict[str, Any]:
    """The document, which keeps the schema."""
    document: dict[str, Any] = json.loads(json_text(material(told, **fields)), parse_constant=refuse)
    assert complaints(document, SCHEMA) == []
    return document


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_everything_there_is_to_tell_keeps_the_schema() -> None:
    document = document_of()
    assert document["status"] == 4
    assert [(one["id"], one["target"]) for one in document["checks"]] == [
        (finding.check, finding.target) for finding in everything().findings
    ]
    assert document["targets"][0]["verdicts"] == {
        "pass": 1,
        "fail": 2,
        "warn": 1,
        "note": 1,
        "skip": 2,
        "blocked": 1,
        "known": 0,
        "error": 1,
    }


def test_the_schema_refuses_what_it_does_not_know() -> None:
    document = document_of()
    document["checks"][0]["colour"] = "green"
    document["checks"][1]["verdict"] = "maybe"
    assert len(complaints(document, SCHEMA)) == 2


def test_a_failure_is_told_with_what_makes_it_happen_again() -> None:
    told = next(one for one in document_of()["checks"] if one["id"] == "seed.history-independent")
    assert (told["severity"], told["verdict"], told["blame"]) == ("must", "fail", "env")
    assert told["evidence"]["signature"] == "obs.velocity: value"
    assert told["evidence"]["first"] == {"op": 2, "lane": 0}
    again = told["reproduction"]
    assert tuple(map(script_from_json, again["scripts"])) == history().scripts
    assert again["case"] == ["reset(seed=0) step(2)", "reset(seed=0) step(1) step(1)"]
    assert again["moot"] == [{"script": 0, "op": 0}, {"script": 1, "op": 1}]
    assert (again["seed"], again["runs"], again["tries"], again["shrunk_from"]) == (42, 3, 3, 61)
    assert again["file"] == ".rlmesh-trio/fail/history-8c1f.mcap"


def test_scripts_of_every_shape_keep_the_schema() -> None:
    options: Metadata = {"gravity": math.nan, "name": None}
    ops = (Reset((), options), Reset((7,), lanes=(1,)), Step((action(1),), lanes=(0,)), Wait(0.5))
    script = Script(2, ops)
    told = document_of(outcome(target(history(scripts=(script,), moot=()), last_script=script, lost="gone")))
    assert str(script_from_json(told["targets"][0]["last_script"])) == str(script)


def test_odd_numbers_and_texts_are_json() -> None:
    document = document_of(
        outcome(target(finding("a.b", "skip", reason="\ud800 \x00")), time=math.inf, options=(("k", b"\x00"),))
    )
    assert document["settings"]["time"] == "Infinity"
    assert document["settings"]["options"] == [["k", "AA=="]]
    assert document["checks"][0]["reason"] == "? \x00"


def test_no_token_is_told() -> None:
    assert "s3cret" not in json_text(material())


def test_times_are_in_one_place() -> None:
    timed, untimed = document_of(), document_of(times=False)
    assert timed.pop("times")["seconds"] == 32.5
    assert untimed.pop("times") is None
    assert timed == untimed


def test_stale_entries_and_interruptions_are_told() -> None:
    passed = outcome(target(finding("a.b", "pass")))
    told = document_of(passed, stale=(Stale("a.b", "*", "the check passes"),))
    assert (told["status"], told["stale"]) == (1, [{"check": "a.b", "target": "*", "why": "the check passes"}])
    interrupted = document_of(attrs.evolve(passed, interrupted=True))
    assert (interrupted["status"], interrupted["interrupted"]) == (130, True)


def test_a_target_without_a_contract_is_told() -> None:
    told = document_of(outcome(target(finding("a.b", "skip", reason="unreadable"), contract=None)))
    assert told["targets"][0]["num_envs"] is None
