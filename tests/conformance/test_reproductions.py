"""Each failure can be seen again in four ways: by the seed, the blob, the recording, and a plain script."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio

from rlmesh_trio.conformance import serving_process
from rlmesh_trio.conformance.blob import BlobError, decode_blob, encode_blob
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.plain_script import NoPlainScript, plain_script
from rlmesh_trio.conformance.plain_values import literal
from rlmesh_trio.conformance.reports.material import Reproduction
from rlmesh_trio.conformance.reproductions import reproductions_of
from rlmesh_trio.conformance.retrial import retried
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.targets import ServedTarget, Target, WireTarget
from rlmesh_trio.conformance.trace_recording import blob_in
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import open_recording, verify
from tests.conformance.broken_server import ScriptedServer, scripted_server
from tests.conformance.planted.contract import Handshaker
from tests.conformance.planted_runs import FAULTS, OF_SERVERS, PLANTED, failure, found, run_of, settings, target_of

ROOT = Path(__file__).parents[2]
SEED = f"{PLANTED}.seed"
FIRST = {check.partition(".")[0]: (check, env, lanes) for check, env, lanes in reversed(FAULTS)}.values()
"""One of each family, which is found once more."""


def tried(target: Target, check: str, blob: str, lanes: int = 1) -> Finding:
    """What trying *blob* on *target* comes to."""

    async def run() -> TargetOutcome:
        async with target.running():
            return await retried(decode_blob(blob), target, settings(lanes), load_checks(), runs=3)

    return trio.run(run).findings[0]


def again(check: str, source: str, lanes: int, blob: str) -> Finding:
    return tried(target_of(source, lanes), check, blob, lanes)


def ran(path: str) -> object:
    """What a plain script ends with, which knows nothing of this package: the reason it gives, if any."""
    text = Path(path).read_text()
    assert "rlmesh_trio" not in text
    before = sys.path[:]
    try:
        with np.printoptions():
            exec(compile(text, path, "exec"), {"__name__": "__main__"})
    except SystemExit as exit:
        return exit.code
    except Exception as failure:
        return failure
    finally:
        sys.path[:] = before
    return None


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


def seen_by_seed_blob_and_file(first: Finding, repeated: Finding, retried: Finding, told: Reproduction) -> None:
    """The same failure comes of the same seed and of the blob, and the case is in the file."""
    assert first.evidence
    assert repeated.evidence
    assert repeated.evidence.signature == first.evidence.signature
    assert (retried.verdict, retried.evidence and retried.evidence.signature) == (
        first.verdict,
        first.evidence.signature,
    )
    assert verify(told.file).problems == ()
    assert encode_case(told) == told.blob


@pytest.mark.parametrize(("check", "env", "lanes"), FAULTS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_failure_is_seen_again_in_four_ways(check: str, env: str, lanes: int, tmp_path: Path) -> None:
    source = f"{PLANTED}.{env}"
    outcome = found(check, source, lanes)
    first = failure(outcome, check)
    reproductions = reproductions_of(outcome, folder=tmp_path)
    assert reproductions.remarks == ()
    told = reproductions.found[check, source]
    assert told.again.startswith(f"rlmesh-trio conform try '{told.blob}' {source}")
    repeated = failure(found.__wrapped__(check, source, lanes), check) if (check, env, lanes) in FIRST else first
    seen_by_seed_blob_and_file(first, repeated, again(check, source, lanes, told.blob), told)
    assert repeated.scripts == first.scripts
    assert told.plain_lines == Path(told.plain).read_text().count("\n")
    assert ran(told.plain), Path(told.plain).read_text()


@pytest.mark.parametrize(("check", "target"), OF_SERVERS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_failure_of_a_server_is_seen_again_in_three_ways(check: str, target: Target, tmp_path: Path) -> None:
    why = "the fault is in the server's answer"
    outcome = run_of(check, target, 2)
    reproductions = reproductions_of(outcome, folder=tmp_path)
    told = reproductions.found[check, target.name]
    repeated = failure(run_of(check, target, 2), check)
    seen_by_seed_blob_and_file(failure(outcome, check), repeated, tried(target, check, told.blob, 2), told)
    assert (told.plain, told.no_plain) == ("", why)
    assert reproductions.remarks == (f"no plain script of {check}: {why}",)


@pytest.mark.parametrize(
    ("check", "server"),
    [
        ("wire.close", ScriptedServer("close is answered twice")),
        ("contract.refuses-foreign", Handshaker(manners="welcomes all")),
    ],
)
def test_a_failure_of_the_protocol_is_seen_again_in_three_ways(
    check: str, server: ScriptedServer, tmp_path: Path
) -> None:
    async def twice() -> None:
        async with scripted_server(server) as address:
            target = WireTarget(address)
            known = {check: load_checks()[check]}
            first, second = [await run_checks([target], settings(), checks=known) for _ in range(2)]
            told = reproductions_of(first, folder=tmp_path).found[check, address]
            retrial = await retried(decode_blob(told.blob), target, settings(), load_checks(), runs=3)
            seen_by_seed_blob_and_file(failure(first, check), failure(second, check), retrial.findings[0], told)
            assert failure(first, check).case == failure(second, check).case
            assert (told.plain, told.no_plain) == ("", "the fault is in the server's answer")

    trio.run(twice)


def test_pictures_are_seen_again_in_four_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_process, "_NESTS", 1)  # nothing is started again
    check, source = "render.frame", f"{PLANTED}.render:Grows"
    outcome = run_of(check, ServedTarget(source), 1)
    told = reproductions_of(outcome, folder=tmp_path).found[check, source]
    retrial = tried(ServedTarget(source), check, told.blob)
    seen_by_seed_blob_and_file(failure(outcome, check), retrial, retrial, told)
    assert "frames of several sizes" in str(ran(told.plain))


def test_a_script_runs_where_this_package_is_not(tmp_path: Path) -> None:
    check, source = "seed.trace-repeatable", f"{SEED}:UnseededPush"
    told = reproductions_of(found(check, source, 1), folder=tmp_path).found[check, source]
    ran = run_script(told.plain)
    assert ran.returncode == 1, ran.stderr
    assert "and then" in ran.stderr


def test_a_check_of_ones_own_has_a_script_that_prints_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check, source = "space.obs-contained", f"{PLANTED}.plain:Outside"
    outcome = found(check, source, 1)
    own = attrs.evolve(failure(outcome, check), check="mine.calm")
    renamed = attrs.evolve(outcome, targets=(attrs.evolve(outcome.targets[0], findings=(own,)),))
    told = reproductions_of(renamed, folder=tmp_path).found["mine.calm", source]
    assert ran(told.plain) is None
    assert "1.5" in capsys.readouterr().out


def test_nothing_that_goes_wrong_takes_anything_else_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise LookupError("a fault of the kit's own\nin two lines")

    check, source = "seed.reset-repeatable", f"{SEED}:UnseededStart"
    outcome = found(check, source, 1)
    for name, left in (
        ("record_traces", ("again", "blob", "plain")),
        ("plain_script", ("again", "blob", "file")),
        ("encode_blob", ("file", "plain")),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"rlmesh_trio.conformance.reproductions.{name}", fails)
            reproductions = reproductions_of(outcome, folder=tmp_path)
        told = reproductions.found[check, source]
        assert tuple(way for way in ("again", "blob", "file", "plain") if getattr(told, way)) == left
        assert len(reproductions.remarks) == 1
        assert reproductions.remarks[0].endswith("LookupError: a fault of the kit's own")


def test_when_the_time_is_over_there_are_no_more_files_but_all_the_words(tmp_path: Path) -> None:
    check, source = "seed.reset-repeatable", f"{SEED}:UnseededStart"
    left = iter([1.0, 0.0])
    reproductions = reproductions_of(found(check, source, 1), folder=tmp_path, left=lambda: next(left))
    told = reproductions.found[check, source]
    assert (bool(told.blob), bool(told.again), bool(told.plain), told.file) == (True, True, True, "")
    assert reproductions.remarks == (f"no recording of {check}: the time was over, --time gives more",)


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
        (served, target.name, "the fault is in the server's answer"),
        (attrs.evolve(finding, check="wire.close"), target.name, "the fault is in the server's answer"),
        (attrs.evolve(finding, check="acct.once"), target.name, "the fault is in the server's answer"),
        (finding, nameless, "no name to import it by"),
    ):
        with pytest.raises(NoPlainScript, match=why):
            plain_script(one, source, target.contract)
    running = attrs.evolve(outcome, targets=(attrs.evolve(target, kind="wire"),))
    reproductions = reproductions_of(running, folder=tmp_path)
    assert reproductions.found["seed.reset-repeatable", target.name].plain == ""
    assert "is not known here" in reproductions.remarks[0]


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
    reproductions = reproductions_of(failed, folder=tmp_path / "file")
    (told,) = reproductions.found.values()
    assert (told.file, told.plain) == ("", "")
    assert told.blob
    assert "cannot write to" in reproductions.remarks[0]


def test_settings_that_decide_a_judgement_go_with_the_command(tmp_path: Path) -> None:
    outcome = found("seed.reset-repeatable", f"{SEED}:UnseededStart", 2)
    told = attrs.evolve(outcome.settings, ulps=4, options=(("level", 2),), token="secret", ignored_leaves=("obs.a",))
    reproductions = reproductions_of(attrs.evolve(outcome, settings=told), folder=tmp_path, modules=("my.checks",))
    (one,) = reproductions.found.values()
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
    reproductions = reproductions_of(attrs.evolve(outcome, targets=(target,)), folder=tmp_path)
    (told,) = reproductions.found.values()
    with open_recording(told.file) as recording:
        assert list(recording.ticks()) == []
    assert blob_in(told.file).case == finding.case
