"""The pytest plugin, used in projects of its own: processes that know nothing of this project's settings."""

import re
import textwrap
from xml.etree import ElementTree as ET

import pytest

from tests.cli.program import started

pytest_plugins = ("pytester",)

ENVS = """
import gymnasium, numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def start(self):
        return self.np_random.normal()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.start()
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += float(action)
        return np.array([self.x], np.float32), 0.0, False, False, {}

class Unseeded(Walk):
    def start(self):
        return np.random.default_rng().normal()
"""
SEEDS = "seed.reset-repeatable or seed.trace-repeatable or lanes.permute"
QUICK = ("--rlmesh-seed", "1", "--rlmesh-time", "30s", "--rlmesh-examples", "1", "-p", "no:trio")


# One interpreter forks the servers, instead of two by turns: to start one takes longest of all.
CONFTEST = "from rlmesh_trio.conformance import serving_process\nserving_process._NESTS = 1\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a sound env and one with a fault."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(envs=ENVS)
    pytester.makeconftest(CONFTEST)
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess(*args, timeout=120)


def test_a_run_without_it_loads_nothing_and_tests_are_skipped_without_a_target(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").unlink()
    project.makepyfile(
        test_it="""
        import sys

        def test_nothing_is_loaded():
            assert not any(name == "rlmesh_trio" or name.startswith("rlmesh_trio.") for name in sys.modules)

        def test_mine(conform):
            conform.check("seed.*")
        """
    )
    ran = run(project, "-rs", "-W", "error", "--strict-markers")
    ran.assert_outcomes(passed=1, skipped=1)
    ran.stdout.fnmatch_lines(["*no target: give --rlmesh-target*"])


def test_one_item_a_check_with_k_and_junit_and_then_the_failed_one_alone(project: pytest.Pytester) -> None:
    ran = run(project, "--rlmesh-target", "envs:Unseeded", "-k", SEEDS, "-v", "-rs", "--junitxml=out.xml", *QUICK)
    ran.assert_outcomes(failed=1, skipped=2, deselected=ran.parseoutcomes()["deselected"])
    assert ran.ret == 1
    ran.stdout.fnmatch_lines(
        [
            "*conform[[]seed.reset-repeatable[]] FAILED*",
            "*conform[[]seed.trace-repeatable[]] SKIPPED*blocked by seed.re*",
            "*conform[[]lanes.permute[]] SKIPPED*blocked by seed.re*",
            "FAIL seed.reset-repeatable*",
            "*again: rlmesh-trio conform try 'c*",
            "*plain gymnasium: .rlmesh-trio/fail/seed.reset-repeatable-*.py*",
        ]
    )
    assert "Traceback" not in ran.stdout.str()
    cases = {case.get("name"): case for case in ET.parse(project.path / "out.xml").iter("testcase")}
    failure = cases["conform[seed.reset-repeatable]"].find("failure")
    assert failure is not None
    assert "reset(seed=0)" in (failure.text or "")
    assert cases["conform[lanes.permute]"].find("skipped") is not None

    again = run(project, "--rlmesh-target", "envs:Unseeded", "--lf", "-x", *QUICK)
    again.assert_outcomes(failed=1, deselected=again.parseoutcomes()["deselected"])


def test_what_the_baseline_accepts_is_expected_and_must_go_on_to_fail(project: pytest.Pytester) -> None:
    entry = '[[entry]]\nid = "seed.reset-repeatable"\nreason = "see #41"\n'
    (project.path / "conform-baseline.toml").write_text(entry)
    picked = ("-k", "seed.reset-repeatable", "-rx", *QUICK)
    ran = run(project, "--rlmesh-target", "envs:Unseeded", *picked)
    assert ran.parseoutcomes()["xfailed"] == 1
    assert ran.ret == 0
    ran.stdout.fnmatch_lines(["*in the baseline: see #41*"])

    mended = run(project, "--rlmesh-target", "envs:Walk", *picked)
    assert mended.parseoutcomes()["failed"] == 1
    mended.stdout.fnmatch_lines(["*stale entry in the baseline: seed.reset-repeatable: the check passes*"])


def test_a_fixture_for_the_target_and_tests_of_ones_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest
        from envs import Walk
        from rlmesh_trio.conformance.pytest_plugin import served

        @pytest.fixture(scope="session", params=["served", "here", "faulty"])
        def rlmesh_target(request):
            return {"served": served("envs:Walk", lanes=2), "here": Walk, "faulty": "envs:Unseeded"}[request.param]

        def test_seeds(conform):
            findings = conform.check("seed.reset-repeatable", time="20s")
            assert [one.check for one in findings] == ["seed.reset-repeatable"]

        def test_lanes(conform):
            conform.check("lanes.permute", time=20)

        def test_no_such_check(conform):
            with pytest.raises(Exception, match="there is no check 'nothing'"):
                conform.check("nothing")
        """
    )
    ran = run(project, "-v", "-rs", *QUICK)
    ran.assert_outcomes(passed=6, failed=2, skipped=1)  # what lanes.permute rests on fails, too
    ran.stdout.fnmatch_lines(["*test_seeds[[]served[]] PASSED*", "*test_lanes[[]served[]] PASSED*"])
    ran.stdout.fnmatch_lines(["*test_seeds[[]faulty[]] FAILED*", "*FAIL seed.reset-repeatable*"])
    ran.stdout.fnmatch_lines(["*nothing was tested: lanes.permute needs num_envs >= 2*"])


def test_a_case_that_was_found_is_a_regression_test_beside_pytest_trio(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        from rlmesh_trio.conformance.blob import encode_blob
        from rlmesh_trio.conformance.pytest_plugin import conform_script
        from rlmesh_trio.conformance.scripts import Reset, Script
        from rlmesh_trio.contract import EnvContract
        from rlmesh_trio.spaces import contract_from_gymnasium
        from envs import Walk

        CONTRACT = contract_from_gymnasium(
            Walk.observation_space,
            Walk.action_space,
            env_id="UnknownEnv-v1",
            metadata={},
            num_envs=1,
            autoreset_mode=3,
            render_mode="",
        )
        BLOB = encode_blob("seed.reset-repeatable", Script(1, (Reset((3,)),)), CONTRACT)
        OTHER = EnvContract(env_id="Other-v0", num_envs=2)
        FOREIGN = encode_blob("seed.reset-repeatable", Script(2, (Reset((3, 4)),)), OTHER)

        @conform_script(BLOB)
        def test_mended(conform_trace):
            assert len(conform_trace.answers) == 1

        @conform_script(BLOB)
        async def test_beside_trio(conform_trace):
            import trio
            await trio.sleep(0)
            assert conform_trace.lost is None

        @conform_script(FOREIGN)
        def test_foreign():
            raise AssertionError("the case is not for this env")
        """
    )
    args = ("--strict-markers", "-o", "trio_mode=true", "-k", "test_", "--rlmesh-time", "6s")
    good = run(project, "--rlmesh-target", "envs:Walk", *args)
    good.assert_outcomes(passed=2, failed=1, deselected=good.parseoutcomes()["deselected"])
    good.stdout.fnmatch_lines(["*the blob was made for Other-v0 with 2 lanes; here is *"])
    bad = run(project, "--rlmesh-target", "envs:Unseeded", *args)
    bad.assert_outcomes(failed=3, deselected=bad.parseoutcomes()["deselected"])
    bad.stdout.fnmatch_lines(["*FAIL seed.reset-repeatable*"])


def test_workers_have_a_server_each_or_one_worker_has_the_server(project: pytest.Pytester) -> None:
    picked = ("-k", "seed.reset-repeatable or seed.followup-repeatable", "-n", "2", "-v", *QUICK)
    ran = run(project, "--rlmesh-target", "envs:Walk", *picked)
    assert ran.parseoutcomes()["passed"] == 2
    assert workers(ran) == {"gw0", "gw1"}
    with started("serve", "CartPole-v1", "--address", "127.0.0.1:0") as server:
        assert server.stdout is not None
        assert server.stderr is not None
        address = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())
        assert address is not None
        ran = run(project, "--rlmesh-target", address[0], *picked)
    assert ran.parseoutcomes()["passed"] == 2
    assert len(workers(ran)) == 1


def workers(ran: pytest.RunResult) -> set[str]:
    return {line.split("]")[0].lstrip("[") for line in ran.outlines if "conform[" in line and line.startswith("[gw")}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--rlmesh-time", "long"), "'long' is no duration"),
        (("--rlmesh-checks", "no_such_module"), "cannot load the checks of 'no_such_module'"),
        (("--rlmesh-baseline", "nowhere.toml"), "baseline nowhere.toml: No such file"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_one_line(
    project: pytest.Pytester, args: tuple[str, ...], why: str
) -> None:
    ran = run(project, "--rlmesh-target", "envs:Walk", *args)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert why in textwrap.dedent(ran.stderr.str())
