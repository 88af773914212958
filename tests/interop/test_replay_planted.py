"""Runs on servers, recorded and played again: what is planted in a served env is found and named, and whose it is."""

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from tests.cli.program import Ran, run, started
from tests.cli.test_serve import ready
from tests.interop.conftest import StartPeer
from tests.peers import start_env_peer

ENV = "tests.replay.planted:Planted-v0"
POLICY = ("--model", "tests.replay.planted:steady")
SEEDS = ",".join(map(str, range(101, 110)))

Run = Callable[..., Ran]


@contextmanager
def served(by: str, plant: str, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The address of a server, ours or a real rlmesh one, of the env with this planted in it."""
    monkeypatch.setenv("PLANT", plant)
    if by == "rlmesh":
        with start_env_peer("--kind", "single", "--env", ENV) as peer:
            yield peer.address
    else:
        with started("serve", ENV) as process:
            yield ready(process)


@pytest.fixture(scope="module", params=["rlmesh", "ours"])
def by(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: run(capsys, *map(str, args))


@pytest.fixture(scope="module")
def recorded(by: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a server in which nothing is planted, recorded."""
    path = tmp_path_factory.mktemp(by) / "run.mcap"
    words = (*POLICY, "--seeds", SEEDS, "--record", str(path), "--record-level", "full", "--quiet")
    with (
        pytest.MonkeyPatch.context() as patch,
        served(by, "Walker", patch) as address,
        started("run", address, *words) as ran,
    ):
        assert ran.wait(30) == 0
    return path


@attrs.frozen
class Planted:
    """How what is planted shows: where, in which leaf, how the rest is told, and what plays less of it."""

    place: str
    leaf: str
    shape: str
    told: tuple[str, ...]
    again: str


ALONE = "diverges also by itself"
TABLE = {
    "Noise": Planted(
        "episode 4 of 9 (seed 104)  step 2 of 7", "obs.qpos  index [1]", "sudden", (ALONE,), "--episode 4 --until 2"
    ),
    "Deaf": Planted(
        "episode 5 of 9 (seed 105)  step 0 (the reset) of 5",
        "obs.qpos",
        "differs from the first observation",
        (ALONE,),
        "--episode 5 --until 0",
    ),
    "Greedy": Planted(
        "episode 6 of 9 (seed 106)  step 3 of 6",
        "obs.qpos",
        "sudden and large: a random draw",
        (ALONE,),
        "--episode 6 --until 3",
    ),
    "Worn": Planted(
        "episode 7 of 9 (seed 107)  step 1 of 4",
        "obs.qpos",
        "the reset is equal and the first step is not",
        ("episode 7 diverges only after episode 2 on the same lane",),
        "--episode 2 --episode 7",
    ),
    "Rounding": Planted(
        "episode 3 of 9 (seed 103)  step 2 of 6",
        "obs.qpos  index [1]",
        "starts at one ulp",
        ("   1 ulp, rel ",),
        "--episode 3 --until 2",
    ),
    "Flipped": Planted(
        "episode 8 of 9 (seed 108)  step 3 of 4", "reward", "only the reward differs", (ALONE,), "--episode 8 --until 3"
    ),
    "Gossip": Planted(
        "episode 3 of 9 (seed 103)  step 2 of 6", "info.height", "only infos differ", (ALONE,), "--episode 3 --until 2"
    ),
}


ON_BOTH = ("Noise", "Worn", "Rounding")


@pytest.mark.parametrize(
    ("by", "plant"),
    [*(("rlmesh", plant) for plant in TABLE), *(("ours", plant) for plant in ON_BOTH)],
    indirect=["by"],
)
def test_what_is_planted_in_a_served_env_is_named(
    by: str, plant: str, recorded: Path, program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = TABLE[plant]
    with served(by, plant, monkeypatch) as address:
        ran = program("replay", recorded, address, *POLICY, "--blame")
        lines = ran.out.splitlines()
        assert (ran.status, ran.err) == (1, "")
        assert lines[0].startswith(f"DIVERGED  mode (i)  {case.place}  ")
        assert lines[1].startswith(f"  leaf {case.leaf} ")
        assert next(line for line in lines if line.startswith("  shape: ")).startswith(f"  shape: {case.shape}")
        for told in case.told:
            assert told in ran.out
        assert "blame: the env" in lines
        assert lines[-1].startswith(f"next: rlmesh-trio replay {recorded} {address} {case.again}")
        again = program(*shlex.split(lines[-1])[2:])
        assert again.status == 1
        assert "mode (ii)" in again.out


def test_a_served_env_that_repeats_and_one_that_is_another(
    by: str, recorded: Path, program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(by, "Walker", monkeypatch) as address:
        for words in ((address, *POLICY), (address,)):
            ran = program("replay", recorded, *words)
            assert (ran.status, ran.err, ran.out[:5]) == (0, "", "EQUAL")
    with served(by, "Renewed", monkeypatch) as address:
        ran = program("replay", recorded, address, *POLICY)
        assert (ran.status, ran.out.splitlines()[0]) == (1, "CONTRACT CHANGED  1 field")


def test_a_served_model_is_asked_again(
    shared_env: StartPeer, shared_model: StartPeer, program: Run, tmp_path: Path
) -> None:
    env = shared_env("--kind", "lanes", "--num-envs", "3", "--env", "CartPole-v1").address
    model, other = (shared_model("--policy", policy).address for policy in ("cartpole", "counter"))
    path = tmp_path / "run.mcap"
    words = ("--model", model, "--episodes", "4", "--seed", "3", "--max-steps", "60")
    assert program("run", env, *words, "--record", path, "--record-level", "full").status == 0
    for live in ((env, "--model", model), ("--model", model), (env,)):
        ran = program("replay", path, *live)
        assert (ran.status, ran.out[:5]) == (0, "EQUAL")
    ran = program("replay", path, env, "--model", other, "--blame")
    assert ran.status == 1
    assert "blame: the model" in ran.out.splitlines()
    assert "it repeats itself, and answers otherwise than recorded" in ran.out


def test_a_served_model_that_depends_on_its_batch(
    shared_env: StartPeer, shared_model: StartPeer, program: Run, tmp_path: Path
) -> None:
    env = shared_env("--kind", "lanes", "--num-envs", "3", "--length", "6").address
    model = shared_model("--kind", "batch", "--policy", "crowded").address
    path, words = tmp_path / "run.mcap", ("--model", model, "--merge-rows")
    assert program("run", env, *words, "--episodes", "6", "--record", path, "--record-level", "full").status == 0
    ran = program("replay", path, *words)
    assert (ran.status, ran.out[:5]) == (0, "EQUAL")
    assert "its answers hang on the batch it is asked in" in ran.out
