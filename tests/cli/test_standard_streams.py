"""Standard streams that are closed, on a full disk, or a pipe that nobody reads."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import LIMIT, PROGRAM, ROOT

RUN = "run CartPole-v1 --episodes 2"
RETRIED = "run tests.cli.toys:BrokenWalk --seeds 1,2,3 --on-env-error retry"
ENVIRONMENT = {"PYTHONUNBUFFERED": "", "PYTHONIOENCODING": "utf-8"}
FULL = Path("/dev/full")


def said(line: str, *, stderr: int = subprocess.PIPE, **environment: str) -> tuple[int, str, str | None]:
    """What the program comes to when a shell starts it with the redirections of *line*: status, output, errors."""
    if str(FULL) in line and not FULL.exists():
        pytest.skip("needs /dev/full")
    done = subprocess.run(
        ["sh", "-c", f"'{PROGRAM[0]}' {' '.join(PROGRAM[1:])} {line}"],
        check=False,
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=LIMIT,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f"{RUN} >&-", "standard output could not be written: Bad file descriptor"),
        (f"{RUN} --json - >&-", "the report could not be written: Bad file descriptor"),
        (f"{RUN} --json - >/dev/full", "the report could not be written: No space left on device"),
        ("inspect CartPole-v1 --json >/dev/full", "standard output could not be written: No space left on device"),
    ],
)
def test_output_that_cannot_be_written_is_a_failure_told_in_one_line(line: str, complaint: str) -> None:
    assert said(line) == (1, "", f"error: {complaint}\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_so_it_is_however_python_writes(unbuffered: str) -> None:
    complaint = "error: standard output could not be written: No space left on device\n"
    assert said("--version >/dev/full", PYTHONUNBUFFERED=unbuffered) == (1, "", complaint)


def test_who_prints_nothing_needs_no_output() -> None:
    assert said(f"{RUN} --quiet >&-") == (0, "", "")


@pytest.mark.parametrize("lost", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("line", "status"), [(RETRIED, 0), ("run nope", 2), ("", 2)])
def test_errors_that_cannot_be_written_change_nothing_else(line: str, status: int, lost: str) -> None:
    found, out, _ = said(f"{line} {lost}")
    assert (found, "1 retry" in out) == (status, status == 0)


@pytest.mark.parametrize(("line", "status"), [(RETRIED, 0), ("run nope", 2)])
def test_neither_do_those_nobody_reads(line: str, status: int) -> None:
    unread, pipe = os.pipe()
    os.close(unread)
    try:
        found, out, _ = said(line, stderr=pipe)
    finally:
        os.close(pipe)
    assert (found, "1 retry" in out) == (status, status == 0)


def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    status, out, errors = said("run --help", PYTHONIOENCODING="latin-1")
    assert (status, errors) == (0, "")
    assert r"--seeds A,B,\u2026" in out
