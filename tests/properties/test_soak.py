import io

import pytest

from rlmesh_trio.engine.route import Route
from rlmesh_trio.testing import soak
from rlmesh_trio.testing.world import World


def test_it_goes_on_for_so_long_and_says_what_it_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--seconds", "0.2", "--start", "501"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("seeds 501 to ")
    assert "kept every promise" in line
    assert "success" in line


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "_REPORT_EVERY", 0.0)
    out = io.StringIO()
    assert soak.soak(500, 0.05, out) is None
    assert "seeds 500 to 500  1 " in out.getvalue().splitlines()[0]


def test_a_broken_promise_is_named_by_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_too_many(self: Route, count: int) -> tuple[int, ...]:
        return self._take(count)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(Route, "claim", one_too_many)
    assert soak.main(["--seconds", "60"]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("World.from_seed(")
    seed = int(first.removeprefix("World.from_seed(").partition(")")[0])
    assert rest[-1] == f"as an expression: {World.from_seed(seed)!r}"


def test_a_world_that_does_not_end_is_named_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def endless(self: World) -> None:
        while True:
            pass

    monkeypatch.setattr(soak, "_REAL_LIMIT", 0.02)
    monkeypatch.setattr(World, "run", endless)
    assert soak.main(["--seconds", "60", "--start", "3"]) == 1
    assert capsys.readouterr().out.startswith("World.from_seed(3) broke its promises:\n  it does not end: not done in ")
