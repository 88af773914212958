"""What pytest loads of rlmesh_trio in every run: its options and fixtures, and nothing else until they are used.

Everything that does something is in :mod:`rlmesh_trio.conformance.pytest_plugin`, which is imported by who uses it.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlmesh_trio.conformance.pytest_plugin import Conform
    from rlmesh_trio.conformance.traces import Trace

__all__ = (
    "conform",
    "conform_trace",
    "pytest_addoption",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_pyfunc_call",
    "pytest_unconfigure",
    "pytest_xdist_make_scheduler",
    "rlmesh_target",
)

_MARK = "conform_script"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each starts with ``--rlmesh-``."""
    group = parser.getgroup("rlmesh", "conformance of env servers (rlmesh_trio)")
    group.addoption("--rlmesh-target", metavar="TARGET", help="Address, gymnasium id or module:factory to test.")
    group.addoption("--rlmesh-lanes", metavar="L", type=int, help="Copies of an env that is started here.")
    group.addoption("--rlmesh-time", metavar="X", default="60s", help="How long all conform items may take.  [60s]")
    group.addoption("--rlmesh-examples", metavar="N", type=int, help="Cases a check is tried on.  [by the time]")
    group.addoption("--rlmesh-seed", metavar="N", type=int, help="What all cases follow from.  [drawn]")
    group.addoption("--rlmesh-checks", metavar="MODULE", action="append", default=[], help="A module of your checks.")
    group.addoption("--rlmesh-baseline", metavar="FILE", help="Accepted failures.  [conform-baseline.toml, if there]")
    group.addoption("--rlmesh-strict", action="store_true", help="A failed should fails its item too.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of :func:`~rlmesh_trio.conformance.pytest_plugin.conform_script`."""
    config.addinivalue_line("markers", f"{_MARK}(blob): judge the case of a blob again (rlmesh_trio)")
    if config.getoption("--rlmesh-target"):
        from rlmesh_trio.conformance.pytest_plugin import prepare

        prepare(config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add an item for each check when ``--rlmesh-target`` is given."""
    report = yield
    if isinstance(collector, pytest.Session) and collector.config.getoption("--rlmesh-target"):
        from rlmesh_trio.conformance.pytest_plugin import ConformCollector

        report.result.append(ConformCollector.of(collector))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give one worker of xdist all items that test one running server."""
    if not config.getoption("--rlmesh-target"):
        return None
    from rlmesh_trio.conformance.pytest_plugin import scheduler_of

    return scheduler_of(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Judge the case that a test is marked with before the test."""
    if pyfuncitem.get_closest_marker(_MARK) is not None:
        from rlmesh_trio.conformance.pytest_plugin import judge_marked

        judge_marked(pyfuncitem)
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started."""
    import sys

    plugin: Any = sys.modules.get("rlmesh_trio.conformance.pytest_plugin")
    if plugin is not None:
        plugin.close(config)


@pytest.fixture(scope="session")
def rlmesh_target(request: pytest.FixtureRequest) -> object:
    """What is tested: ``--rlmesh-target``, or ``None``. Override it to test something else."""
    return request.config.getoption("--rlmesh-target")


@pytest.fixture
def conform(request: pytest.FixtureRequest, rlmesh_target: object) -> "Conform":
    """Runs checks on the target: ``conform.check("lanes.*", time="20s")``. Skips without a target."""
    from rlmesh_trio.conformance.pytest_plugin import Conform

    return Conform(request.config, rlmesh_target)


@pytest.fixture
def conform_trace(request: pytest.FixtureRequest, rlmesh_target: object) -> "Trace":
    """What the target answers to the last script of the blob that the test is marked with. Skips without a target."""
    from rlmesh_trio.conformance.pytest_plugin import trace_of_marked

    return trace_of_marked(request, rlmesh_target)
