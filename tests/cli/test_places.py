"""What a name on the command line opens, and with which words."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from rlmesh_trio import Limits, open_local_env, open_local_model
from tests.cli.program import run

Opened = dict[str, dict[str, Any]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The words with which each address was opened; behind an address stands something of this process."""
    words: Opened = {}

    def answering(
        made: Callable[[], AbstractAsyncContextManager[Any]],
    ) -> Callable[..., AbstractAsyncContextManager[Any]]:
        @asynccontextmanager
        async def connect(address: str, **given: Any) -> AsyncGenerator[Any]:
            words[address] = given
            async with made() as it:
                yield it

        return connect

    monkeypatch.setattr("rlmesh_trio.cli.places.connect_env", answering(lambda: open_local_env("tests.cli.toys:Walk")))

    async def describe(address: str, **given: Any) -> Any:
        async with answering(lambda: open_local_env("tests.cli.toys:Walk"))(address, **given) as env:
            return env

    monkeypatch.setattr("rlmesh_trio.cli.inspect_command.describe_env", describe)
    monkeypatch.setattr("rlmesh_trio.cli.places.connect_model", answering(lambda: open_local_model("zero")))
    return words


@pytest.mark.parametrize("address", ["host:5555", "tcp://host:5555", "[::1]:5555", "unix:///tmp/env.sock"])
def test_an_address_is_connected_to(address: str, opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "run", address).status == 0
    assert list(opened) == [address]


def test_limits_reach_both_servers(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--step-timeout", "1s", "--reset-timeout", "2s", "--predict-timeout", "3s")
    assert run(capsys, "run", "env:1", "--model", "model:1", *limits).status == 0
    assert opened["env:1"]["limits"] == opened["model:1"]["limits"]
    assert opened["env:1"]["limits"] == Limits(
        env_connect_timeout=10.0,
        model_connect_timeout=10.0,
        env_step_timeout=1.0,
        env_reset_timeout=2.0,
        model_predict_timeout=3.0,
    )


@pytest.mark.parametrize(
    ("options", "variable", "token"),
    [
        ([], None, None),
        (["--token", "from the option"], None, "from the option"),
        ([], "from the variable", "from the variable"),
        (["--token", "from the option"], "from the variable", "from the option"),
    ],
)
def test_the_token_reaches_the_env_and_nobody_else(
    options: list[str],
    variable: str | None,
    token: str | None,
    opened: Opened,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is not None:
        monkeypatch.setenv("RLMESH_TRIO_TOKEN", variable)
    assert run(capsys, "run", "env:1", "--model", "model:1", *options).status == 0
    assert opened["env:1"]["token"] == token
    assert "token" not in opened["model:1"]
    opened.clear()
    assert run(capsys, "inspect", "env:1", *options).status == 0
    assert opened["env:1"]["token"] == token


@pytest.mark.parametrize("merge_rows", [False, True])
def test_rows_are_merged_only_on_request(merge_rows: bool, opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--merge-rows"] if merge_rows else []
    assert run(capsys, "run", "env:1", "--model", "model:1", *options).status == 0
    assert opened["model:1"]["merge_rows"] is merge_rows


def test_rows_of_a_policy_run_here_are_not_for_merging(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "run", "CartPole-v1", "--model", "zero", "--merge-rows")
    assert outcome.status == 2
    assert "--merge-rows is for a model server" in outcome.err


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ("", "inline"),
        ("--on-env-error retry", "inline"),
        ("--on-timeout fail", "inline"),
        ("--on-timeout quarantine", "thread"),
        ("--step-timeout 9s", "thread"),
        ("--where thread", "thread"),
        ("--where process", "process"),
        ("--where process --on-timeout quarantine", "process"),
    ],
)
def test_a_local_env_runs_where_it_is_asked_to(
    options: str, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def opened(source: object, **given: Any) -> AbstractAsyncContextManager[Any]:
        asked.append(given)
        return open_local_env(source, **given)

    monkeypatch.setattr("rlmesh_trio.cli.places.open_local_env", opened)
    assert run(capsys, "run", "tests.cli.toys:Walk", "--lanes", "3", *options.split()).status == 0
    assert asked == [{"lanes": 3, "where": where}]
