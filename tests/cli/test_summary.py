import attrs
import pytest

from rlmesh_trio.cli.summary import print_rows, summary_rows
from rlmesh_trio.report import Incident, Report
from tests.cli.reports import episode, report


def table(run: Report, **fields: int) -> dict[str, str]:
    return dict(summary_rows(run, 2.0, **{"asked": len(run.episodes), "lanes": 1, "resumed": 0, **fields}))


def test_a_finished_run() -> None:
    episodes = [
        episode(1, step_count=10, cumulative_reward=1.0, success=True),
        episode(2, step_count=30, cumulative_reward=4.0, success=False),
    ]
    assert table(report(episodes, round_ms=1.0)) == {
        "episodes": "2",
        "return": "2.5 ± 2.121 (min 1, max 4)",
        "length": "20 ± 14.14 (min 10, max 30)",
        "success": "1 of 2: 50 % (95 % confidence 9.45 to 90.5 %)",
        "steps": "40 in 2 s, 20 steps/s",
        "time per step": "env 0.5 ms, model 0.2 ms, engine 0.3 ms",
    }


def test_a_run_cut_short() -> None:
    rows = table(report([episode(1)]), asked=1000)
    assert rows["episodes"] == "1 of 1,000 finished"
    assert rows["return"] == "1 (min 1, max 1)"


def test_a_run_without_a_finished_episode_has_no_means() -> None:
    assert table(report(), asked=3) == {"episodes": "0 of 3 finished", "steps": "0 in 2 s, 0 steps/s"}


def test_success_names_the_episodes_that_report_it() -> None:
    assert table(report([episode(1)]))["success"] == "not reported by this env"
    assert table(report([episode(1, success=True), episode(2)]))["success"].startswith("1 of 1 that report it: 100 %")


def test_with_lanes_the_rest_is_also_waiting() -> None:
    assert "engine and waiting" in table(report([episode(1)], round_ms=1.0), lanes=2)["time per step"]


def test_what_an_earlier_run_finished_is_counted_but_not_timed() -> None:
    slow = {"step_count": 1000, "step_ms": 80.0, "predict_ms": 90.0}
    episodes = [episode(1, **slow), episode(2, **slow), episode(3, step_count=10), episode(4, step_count=30)]
    rows = table(report(episodes, round_ms=1.0), resumed=2)
    assert (rows["episodes"], rows["resumed"]) == ("4", "2 of them, 2,000 steps")
    assert rows["length"].endswith("(min 10, max 1,000)")
    assert rows["steps"] == "40 in 2 s, 20 steps/s"
    assert rows["time per step"] == "env 0.5 ms, model 0.2 ms, engine 0.3 ms"
    assert table(report(episodes), resumed=2, asked=9)["episodes"] == "4 of 9 finished"
    assert table(report(episodes), resumed=4)["steps"] == "0 in 2 s, 0 steps/s"


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ("", None),
        ("retry", "1 retry"),
        ("retry retry reconnect", "2 retries, 1 reconnect"),
        ("quarantine retry quarantine reconnect reconnect", "1 retry, 2 lanes quarantined, 2 reconnects"),
        ("quarantine", "1 lane quarantined"),
    ],
)
def test_what_was_recovered_from_is_told_if_there_is_any(kinds: str, told: str | None) -> None:
    incidents = [Incident(kind, None, None, None, 1, "EnvRpcError", "") for kind in kinds.split()]  # pyright: ignore[reportArgumentType]
    rows = table(attrs.evolve(report([episode(1)]), incidents=incidents))
    assert rows.get("recovered") == told
    assert told is None or list(rows)[-1] == "recovered"


def test_numbers_of_any_size_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    huge = {
        "step_count": 10**12,
        "cumulative_reward": -1.23456789e300,
        "step_ms": 299999.9999,
        "predict_ms": 299999.9999,
    }
    episodes = [episode(k, **huge, success=bool(k % 2)) for k in range(7)]
    run = report(episodes, round_ms=900000.0)
    print_rows("x" * 200, summary_rows(run, 1e6, asked=10**9, lanes=64, resumed=3))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert not any("\x1b" in line for line in lines), "plain where it is no terminal"
