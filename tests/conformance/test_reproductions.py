"""Each failure can be seen again in four ways: by the seed, the blob, the recording, and a plain script."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio

from rlmesh_trio.conformance.blob import BlobError, decode_blob, encode_blob
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.plain_script import NoPlainScript, plain_script
from rlmesh_trio.conformance.plain_values import literal
from rlmesh_trio.conformance.reports.material import Reproduction
from rlmesh_trio.conformance.reproductions import reproductions_of
from rlmesh_trio.conformance.retrial import retried
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.trace_recording import blob_in
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.endpoints.loading import load_object
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import open_recording, verify

ROOT = Path(__file__).parents[2]
SEED = "tests.conformance.planted.seed"
HERE = "tests.conformance.planted.plain"
FAULTS = [
    ("seed.reset-repeatable", f"{SEED}:UnseededStart", 1),
    ("seed.trace-repeatable", f"{SEED}:UnseededPush", 1),
    ("seed.trace-repeatable", f"{SEED}:UnseededPush", 2),
    ("seed.followup-repeatable", f"{SEED}:UnseededFollowup", 1),
    ("seed.history-independent", f"{SEED}:Smoothing", 1),
    ("seed.timing-independent", f"{SEED}:Impatient", 1),
    ("lanes.solo-equal", f"{HERE}:Windy", 2),
    ("space.obs-contained", f"{HERE}:Outside", 1),
    ("space.obs-no-nan", f"{HERE}:Nowhere", 1),
    ("value.reward-finite", f"{HERE}:Priceless", 1),
    ("space.member-accepted", f"{HERE}:Refusing", 1),
    ("py.flag-types", f"{HERE}:Flagged", 1),
    ("py.no-alias", f"{HERE}:Aliased", 1),
]


def settings(check: str, lanes: int = 1) -> Settings:
    return Settings(only=(check,), seed=4, time=4.0, examples=6, shrink_time=0.5, lanes=lanes)


@functools.cache
def found(check: str, source: str, lanes: int) -> Outcome:
    """A run of one check on an env of this process, told as if a process of its own had served it."""
    target = LocalTarget(load_object(source), lanes=lanes, where="inline")
    outcome = trio.run(lambda: run_checks([target], settings(check, lanes), checks=load_checks()))
    told = [attrs.evolve(finding, target=source) for finding in outcome.targets[0].findings]
    return attrs.evolve(
        outcome,
        targets=(attrs.evolve(outcome.targets[0], name=source, kind="factory", findings=tuple(told)),),
    )


def failure(outcome: Outcome, check: str) -> Finding:
    (finding,) = [one for one in outcome.findings if one.check == check]
    assert finding.verdict in ("fail", "warn"), finding
    return finding


def again(check: str, source: str, lanes: int, blob: str) -> Finding:
    """What trying *blob* comes to."""

    async def run() -> TargetOutcome:
        target = LocalTarget(load_object(source), lanes=lanes, where="inline")
        async with target.running():
            return await retried(decode_blob(blob), target, settings(check, lanes), load_checks(), runs=3)

    return trio.run(run).findings[0]


def run_script(path: str) -> subprocess.CompletedProcess[str]:
    """Run a plain script as an author would, from the project, and see to it that nothing of this package is needed."""
    spy = "import runpy, sys\nsys.modules['rlmesh_trio'] = None\nrunpy.run_path(sys.argv[1], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", spy, os.path.abspath(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("check", "source", "lanes"), FAULTS)
def test_a_failure_is_seen_again_in_four_ways(check: str, source: str, lanes: int, tmp_path: Path) -> None:
    outcome = found(check, source, lanes)
    finding = failure(outcome, check)
    made = reproductions_of(outcome, folder=tmp_path)
    told = made.found[check, source]
    assert made.remarks == ()

    # the seed: the same failure is found again
    if "Unseeded" in source:
        repeated = failure(found.__wrapped__(check, source, lanes), check)
        assert repeated.evidence
        assert finding.evidence
        assert repeated.evidence.signature == finding.evidence.signature
    # the blob
    assert told.again.startswith(f"rlmesh-trio conform try '{told.blob}' {source}")
    assert again(check, source, lanes, told.blob).verdict == finding.verdict
    # the file: whole, and the case is in it
    assert verify(told.file).problems == ()
    assert encode_case(told) == told.blob
    # the plain script
    assert told.plain_lines == Path(told.plain).read_text().count("\n")
    ran = run_script(told.plain)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.strip()


def encode_case(told: Reproduction) -> str:
    with open_recording(told.file) as recording:
        return encode_blob(blob_in(told.file).check, blob_in(told.file).case, recording.header.contract)


def test_a_recording_holds_what_was_answered(tmp_path: Path) -> None:
    check, source = "seed.trace-repeatable", f"{SEED}:UnseededPush"
    outcome = found(check, source, 2)
    evidence = failure(outcome, check).evidence
    assert evidence is not None
    told = reproductions_of(outcome, folder=tmp_path).found[check, source]
    answers = [answer for trace in evidence.traces for answer in trace.answers]
    with open_recording(told.file) as recording:
        ticks = list(recording.ticks())
        assert recording.header.level == "full"
        assert len(recording.episodes()) == 2 * len(evidence.traces)
    assert len(ticks) == len(answers) > 0
    for tick, answer in zip(ticks, answers, strict=True):
        assert tick.reply is not None
        assert tuple(bytes(leaf) for leaf in tick.reply.observation or ()) == answer.raw_leaves
        assert tuple(tick.reply.rewards) == answer.rewards


@pytest.mark.parametrize("check", ["seed.trace-repeatable", "seed.history-independent"])
def test_a_script_of_an_env_without_the_fault_says_nothing(check: str, tmp_path: Path) -> None:
    faulty = {"seed.trace-repeatable": "UnseededPush", "seed.history-independent": "Smoothing"}[check]
    outcome = found(check, f"{SEED}:{faulty}", 1)
    told = reproductions_of(outcome, folder=tmp_path).found[check, f"{SEED}:{faulty}"]
    mended = tmp_path / "mended.py"
    mended.write_text(Path(told.plain).read_text().replace(faulty, "Walk"))
    ran = run_script(str(mended))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert again(check, f"{SEED}:Walk", 1, told.blob).verdict == "pass"


def test_what_only_a_server_does_has_no_plain_script_and_a_reason(tmp_path: Path) -> None:
    outcome = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 1)
    target = outcome.targets[0]
    assert target.contract is not None
    finding = failure(outcome, "seed.reset-repeatable")
    assert finding.evidence is not None
    served = attrs.evolve(finding, evidence=attrs.evolve(finding.evidence, blame="server"))
    nameless = lambda: None  # noqa: E731 - a name is what it must not have
    for one, source, why in (
        (served, target.name, "the fault is the server's"),
        (attrs.evolve(finding, check="wire.close"), target.name, "the fault is the server's"),
        (attrs.evolve(finding, check="acct.once"), target.name, "what a server makes of the env"),
        (finding, nameless, "no name to import it by"),
    ):
        with pytest.raises(NoPlainScript, match=why):
            plain_script(one, source, target.contract)
    running = attrs.evolve(outcome, targets=(attrs.evolve(target, kind="wire"),))
    made = reproductions_of(running, folder=tmp_path)
    assert made.found["seed.reset-repeatable", target.name].plain == ""
    assert "is not known here" in made.remarks[0]


def test_a_blob_of_another_env_or_of_an_unknown_check_is_refused() -> None:
    outcome = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 1)
    contract = outcome.targets[0].contract
    assert contract is not None
    blob = encode_blob("seed.reset-repeatable", failure(outcome, "seed.reset-repeatable").case, contract)
    with pytest.raises(BlobError, match=r"made for .* with 1 lane; here is .* with 2 lanes"):
        again("seed.reset-repeatable", f"{SEED}:UnseededStart", 2, blob)
    with pytest.raises(InvalidSpec, match=r"mine\.gone, a check that is not known here"):
        again("mine.gone", f"{SEED}:UnseededStart", 1, encode_blob("mine.gone", (), contract))


def test_no_failure_writes_no_file_and_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    passed = found("seed.reset-repeatable", f"{SEED}:Walk", 1)
    assert reproductions_of(passed, folder=tmp_path / "none").found == {}
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    failed = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 1)
    made = reproductions_of(failed, folder=tmp_path / "file")
    (told,) = made.found.values()
    assert (told.file, told.plain) == ("", "")
    assert told.blob
    assert "no files to show failures" in made.remarks[0]


def test_settings_that_decide_a_judgement_go_with_the_command(tmp_path: Path) -> None:
    outcome = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 2)
    told = attrs.evolve(outcome.settings, ulps=4, options=(("level", 2),), token="secret", ignored_leaves=("obs.a",))
    made = reproductions_of(attrs.evolve(outcome, settings=told), folder=tmp_path, modules=("my.checks",))
    (one,) = made.found.values()
    for option in ("--checks=my.checks", "--lanes=2", "--tolerance=ulp=4", "--options=level=2", "--ignore-leaf=obs.a"):
        assert option in one.again
    assert "secret" not in one.again


@pytest.mark.parametrize(
    "value",
    [
        np.int64(2),
        np.float32(0.1),
        np.array([0.1, -0.0], np.float32),
        np.array([np.nan, np.inf], np.float64),
        np.arange(40, dtype=np.uint8).reshape(5, 8),
        np.array(3, np.int8),
        {"a": (np.int64(1), "text"), "b": [1.5, float("inf")]},
        (np.array([True]),),
    ],
    ids=repr,
)
def test_a_value_is_made_again_to_the_last_bit(value: Any) -> None:
    made: Any = eval(literal(value), {"np": np})
    assert same(made, value)


def same(a: Any, b: Any) -> bool:
    if hasattr(b, "dtype"):
        one, other = (np.asarray(each).view(np.uint8) if np.ndim(each) else np.asarray([each]) for each in (a, b))
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and one.tobytes() == other.tobytes()
    return repr(a) == repr(b)


def test_evidence_without_traces_has_no_recording_to_speak_of(tmp_path: Path) -> None:
    outcome = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 1)
    finding = attrs.evolve(
        failure(outcome, "seed.reset-repeatable"), evidence=Evidence(("nothing was played",), "nothing")
    )
    target = attrs.evolve(outcome.targets[0], findings=(finding,))
    made = reproductions_of(attrs.evolve(outcome, targets=(target,)), folder=tmp_path)
    (told,) = made.found.values()
    with open_recording(told.file) as recording:
        assert list(recording.ticks()) == []
    assert blob_in(told.file).case == finding.case
