"""The names others build on. A change here is a change of the public interface."""

import subprocess
import sys
from importlib.metadata import entry_points, version

import rlmesh_trio
from rlmesh_trio import cli


def test_the_public_names() -> None:
    assert set(rlmesh_trio.__all__) == {
        "Adaptive",
        "EagerScheduler",
        "EpisodeSummary",
        "FullBatch",
        "Hooks",
        "Incident",
        "Limits",
        "LocalEnv",
        "LocalModel",
        "PatientScheduler",
        "Recovery",
        "RemoteEnv",
        "RemoteModel",
        "Report",
        "Scheduler",
        "Session",
        "SessionError",
        "SessionSpec",
        "connect_env",
        "connect_model",
        "errors",
        "events",
        "open_local_env",
        "open_local_model",
        "open_session",
        "run_local",
        "run_session",
    }


def test_the_version_is_that_of_the_package() -> None:
    assert rlmesh_trio.__version__ == version("rlmesh_trio")


def test_the_program_is_installed() -> None:
    (program,) = entry_points(group="console_scripts", name="rlmesh-trio")
    assert program.load() is cli.main


def test_what_is_heavy_and_seldom_needed_is_not_imported() -> None:
    listing = "import sys, rlmesh_trio.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    assert {"hypothesis", "rich", "pytest", "rlmesh"} & set(loaded) == set()
    assert "gymnasium" in loaded
