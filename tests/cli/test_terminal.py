"""What a person sees and does: the line that is redrawn, Ctrl-C once and twice, SIGTERM."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli.program import at_terminal, started
from tests.cli.schema import complaints

SLOW = ("run", "tests.cli.toys:SlowWalk")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def test_a_run_is_followed_and_its_line_cleared_away() -> None:
    with at_terminal(*SLOW, "--seeds", "1,2,3,4,5,6,8") as terminal:
        status = terminal.wait()
    assert status == 0
    drawn, table = terminal.written.split(SHOW_CURSOR)
    assert HIDE_CURSOR in drawn
    lines = terminal.lines()
    assert any(re.search(r"[1-6]/7 episodes .* return 20  success \d+%", line) for line in lines)
    assert any("steps/s" in line and line.endswith(" left") for line in lines if "episodes" in line)
    assert max(map(len, lines)) <= 80
    assert "\x1b[1A\x1b[2K" in table, "the line is wiped before the table is printed"
    assert "\x1b[1mtests.cli.toys:SlowWalk with random" in table


def test_a_narrow_terminal_is_not_overrun() -> None:
    with at_terminal(*SLOW, "--episodes", "3", columns=40) as terminal:
        assert terminal.wait() == 0
    assert max(len(line) for line in terminal.lines() if "/3 episodes" in line) <= 40


@pytest.mark.parametrize(("kind", "no_color"), [("dumb", ""), ("xterm-256color", "1")])
def test_a_table_is_plain_where_that_is_wished_for(kind: str, no_color: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    with at_terminal(*SLOW, "--episodes", "1", kind=kind) as terminal:
        assert terminal.wait() == 0
    assert "tests.cli.toys:SlowWalk with random\r\n" in terminal.written
    assert "\x1b[1m" not in terminal.written


def test_quiet_draws_nothing() -> None:
    with at_terminal(*SLOW, "--episodes", "1", "--quiet") as terminal:
        assert terminal.wait() == 0
    assert terminal.written == ""


def test_ctrl_c_ends_the_run_in_order(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with at_terminal(*SLOW, "--episodes", "1000", "--json", str(path)) as terminal:
        terminal.wait_for("[2-9]/1,000 episodes")
        terminal.type("\x03")
        assert terminal.wait() == 130
    *_, error = terminal.lines()
    assert error == f"error: interrupted (Ctrl-C or SIGTERM); the same command with --resume {path} goes on"
    assert any("of 1,000 finished" in line for line in terminal.lines())
    document = json.loads(path.read_text())
    assert complaints(document) == []
    assert 2 <= len(document["episodes"]) < 1000
    assert document["error"]["type"] == "RouteCancelled"
    assert document["error"]["message"].endswith("interrupted by the host (signal)")


def test_a_second_ctrl_c_ends_even_a_stuck_run_at_once() -> None:
    with at_terminal("run", "tests.cli.toys:StuckWalk") as terminal:
        terminal.wait_for("stuck")
        assert terminal.press_until_it_ends("\x03") == 130
    assert SHOW_CURSOR in terminal.written
    assert "0/10 episodes" in terminal.written, "what it is stuck in is seen"


def test_ctrl_c_while_a_server_is_waited_for() -> None:
    with at_terminal("run", "unix:///no/such/socket") as terminal:
        terminal.wait_for("opening unix:///no/such/socket …")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert terminal.lines()[-1] == "error: interrupted (Ctrl-C or SIGTERM)"


def test_ctrl_c_while_an_env_is_inspected() -> None:
    with at_terminal("inspect", "tests.cli.toys:stuck_factory") as terminal:
        terminal.wait_for("stuck")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "Traceback" not in terminal.written


def test_sigterm_ends_the_run_in_order() -> None:
    with started("run", "tests.cli.toys:TalkingWalk", "--episodes", "1000000", "--json", "-") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "step 0\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.endswith("error: interrupted (Ctrl-C or SIGTERM)\n")
    document = json.loads(out)
    assert complaints(document) == []
    assert document["error"]["type"] == "RouteCancelled"
