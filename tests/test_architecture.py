"""Which module may know which: read from the source, since importing the package loads everything anyway."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rlmesh_trio"
GENERATED = PACKAGE / "wire" / "pb"
MAX_LINES = 450

VOCABULARY = {
    f"rlmesh_trio.{name}"
    for name in ("messages", "contract", "spec", "report", "errors", "events", "hooks", "editions", "recovery")
}
PURE_MODULES = {
    "rlmesh_trio.engine.route",
    "rlmesh_trio.engine.chunks",
    "rlmesh_trio.engine.recoveries",
    "rlmesh_trio.engine.seeds",
    "rlmesh_trio.engine.relay",
    "rlmesh_trio.engine.merged_rows",
    "rlmesh_trio.engine.final_infos",
    "rlmesh_trio.telemetry.aggregate",
    "rlmesh_trio.telemetry.reservoir",
}
PURE_PACKAGES = ("rlmesh_trio.wire", "rlmesh_trio.spaces")
IMPURE = {"trio", "asyncio", "socket", "time", "random", "grpclib", "trio_asyncio", "outcome", "threading", "selectors"}
CHANCE = {"random", "secrets", "time", "uuid", "uuid_utils"}
STOPWATCH = "time.perf_counter_ns"  # It measures and decides nothing.
CHANCE_BY_DEFAULT = {"rlmesh_trio.engine.session": {"time", "uuid_utils"}}  # Ids and wall-clock times are handed in.
ABOVE = {
    "recording": ("replay", "export", "conformance", "one_call"),
    "replay": ("export", "conformance"),
    "export": ("replay", "conformance", "one_call"),
    "conformance": ("replay", "export", "one_call"),
}
ASYNCIO_WORLD = {"asyncio", "grpclib", "trio_asyncio"}
ASYNCIO_PACKAGES = ("rlmesh_trio.transport", "rlmesh_trio.serve")


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@attrs.frozen
class Source:
    """One hand-written module of the package."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))

    def imports(self) -> Iterator[str]:
        """Every name imported anywhere in the module, in full: ``a.b`` also for ``from a import b``."""
        package = self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([base] if base else [])])
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def roots(self) -> set[str]:
        return {name.partition(".")[0] for name in self.imports()}

    def own_modules(self) -> set[str]:
        """The modules of this package it imports, each by its longest known name."""
        found: set[str] = set()
        for name in self.imports():
            if within(name, "rlmesh_trio"):
                candidates = [module for module in MODULES if within(name, module)]
                found.add(max(candidates, key=len))
        return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def hand_written(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if GENERATED not in path.parents)


SOURCES = [Source(module_name(path), path, ast.parse(path.read_bytes())) for path in hand_written(PACKAGE)]
# Generated modules count as names that can be imported, though they are not read.
MODULES = {source.name for source in SOURCES} | {module_name(path) for path in GENERATED.rglob("*.py")}


def is_pure(name: str) -> bool:
    return name in PURE_MODULES or within(name, *PURE_PACKAGES)


def sources(*names: str) -> pytest.MarkDecorator:
    chosen = [source for source in SOURCES if source.name in names]
    return pytest.mark.parametrize("source", chosen, ids=[source.name for source in chosen])


each_source = sources(*(source.name for source in SOURCES))
each_pure = sources(*(source.name for source in SOURCES if is_pure(source.name)))
each_public = sources(*(source.name for source in SOURCES if source.is_public))


def test_the_package_was_found() -> None:
    assert {source.name for source in SOURCES} >= VOCABULARY | {"rlmesh_trio", "rlmesh_trio.engine"}


def example(text: str) -> Source:
    return Source("rlmesh_trio.engine.example", PACKAGE / "engine" / "example.py", ast.parse(text))


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import trio.lowlevel, time as t", ["trio.lowlevel", "time"]),
        ("def f():\n    from time import monotonic", ["time.monotonic"]),
        ("from rlmesh_trio import errors", ["rlmesh_trio.errors"]),
        ("from ..endpoints.env import Env", ["rlmesh_trio.endpoints.env.Env"]),
        ("from . import session", ["rlmesh_trio.engine.session"]),
    ],
)
def test_imports_are_seen_wherever_and_however_they_are_written(text: str, imported: list[str]) -> None:
    assert list(example(text).imports()) == imported


def test_what_is_imported_is_traced_to_its_module() -> None:
    text = "from rlmesh_trio.endpoints.env import Env\nfrom rlmesh_trio import errors, run_session\nimport attrs"
    assert example(text).own_modules() == {"rlmesh_trio.endpoints.env", "rlmesh_trio.errors", "rlmesh_trio"}


def test_public_names_are_those_without_underscore() -> None:
    text = (
        "import attrs\nT = TypeVar('T')\n__all__ = ('f',)\nA, _B = 1, 2\nC: int = 3\nclass D: x = 1\nasync def f(): ..."
    )
    exported, defined, imported = public_names(ast.parse(text))
    assert isinstance(exported, ast.Tuple)
    assert (defined, imported) == ({"A", "C", "D", "f"}, {"attrs"})


@sources(*VOCABULARY)
def test_the_vocabulary_imports_only_itself(source: Source) -> None:
    assert source.own_modules() <= VOCABULARY
    assert source.roots() - sys.stdlib_module_names <= {"rlmesh_trio", "attrs", "gymnasium", "uuid_utils"}
    assert not source.roots() & IMPURE


@each_pure
def test_pure_modules_know_no_task_socket_clock_or_global_random(source: Source) -> None:
    assert not source.roots() & IMPURE
    assert not any(within(name, "numpy.random") for name in source.imports())


@each_pure
def test_pure_modules_build_on_pure_modules_only(source: Source) -> None:
    assert {name for name in source.own_modules() if name not in VOCABULARY and not is_pure(name)} == set()


@each_source
def test_the_engine_knows_endpoints_by_their_protocols_only(source: Source) -> None:
    if within(source.name, "rlmesh_trio.engine"):
        endpoints = {name for name in source.own_modules() if within(name, "rlmesh_trio.endpoints")}
        assert endpoints <= {"rlmesh_trio.endpoints.env", "rlmesh_trio.endpoints.model"}
        assert not any(within(name, "rlmesh_trio.transport", "rlmesh_trio.wire") for name in source.own_modules())
        assert "rlmesh_trio" not in source.own_modules(), "the package's front door leads to the endpoints"


@each_source
def test_the_engine_draws_no_numbers_ids_or_times_of_its_own(source: Source) -> None:
    if within(source.name, "rlmesh_trio.engine"):
        drawn = {name for name in source.imports() if name.partition(".")[0] in CHANCE and name != STOPWATCH}
        assert drawn <= CHANCE_BY_DEFAULT.get(source.name, set())
        assert not any(within(name, "numpy.random", "os.urandom") for name in source.imports())


@each_source
def test_asyncio_stays_behind_the_seam(source: Source) -> None:
    if not within(source.name, *ASYNCIO_PACKAGES):
        assert not source.roots() & ASYNCIO_WORLD


@each_source
def test_nothing_builds_on_the_command_line_or_the_test_kit(source: Source) -> None:
    for package in ("rlmesh_trio.cli", "rlmesh_trio.testing"):
        if not within(source.name, package, "rlmesh_trio.__main__"):
            assert not any(within(name, package) for name in source.own_modules())


@pytest.mark.parametrize("room", ABOVE)
def test_a_room_of_recordings_knows_no_room_that_builds_on_it(room: str) -> None:
    above = tuple(f"rlmesh_trio.{name}" for name in ABOVE[room])
    inside = [source for source in SOURCES if within(source.name, f"rlmesh_trio.{room}")]
    assert inside
    assert {(source.name, name) for source in inside for name in source.own_modules() if within(name, *above)} == set()


@each_public
def test_a_public_module_says_exactly_what_it_offers(source: Source) -> None:
    exported, defined, imported = public_names(source.tree)
    if source.path.stem == "__init__" and not defined | imported:
        return  # A room with nothing but a docstring on its door.
    assert isinstance(exported, ast.Tuple), "__all__ is a tuple"
    names: list[object] = [ast.literal_eval(element) for element in exported.elts]
    assert len(names) == len(set(names)), "__all__ names nothing twice"
    offered = defined | imported if source.path.stem == "__init__" else defined
    assert {name for name in names if name not in defined | imported} == set(), "__all__ names what exists"
    assert offered - set(names) == set(), "what is not in __all__ begins with an underscore"


def public_names(tree: ast.Module) -> tuple[ast.expr | None, set[str], set[str]]:
    """The value of ``__all__``, and the names without underscore that the module's top level defines and imports."""
    exported: ast.expr | None = None
    defined: set[str] = set()
    imported: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            if "__all__" in names:
                exported = node.value
            if not is_conventional(node):
                defined |= names
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    hidden = {name for name in defined | imported if name.startswith("_")}
    return exported, defined - hidden, imported - hidden


def is_conventional(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether an assignment makes a type variable or the module's logger, which everybody names plainly."""
    if not isinstance(node.value, ast.Call):
        return False
    maker = node.value.func
    name = maker.attr if isinstance(maker, ast.Attribute) else maker.id if isinstance(maker, ast.Name) else ""
    return name in {"TypeVar", "ParamSpec", "TypeVarTuple", "getLogger"}


@each_source
def test_every_module_says_what_it_is_for(source: Source) -> None:
    assert ast.get_docstring(source.tree)


@pytest.mark.parametrize("folder", ["rlmesh_trio", "tests", "benchmarks"])
def test_no_hand_written_file_outgrows_one_idea(folder: str) -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in hand_written(ROOT / folder)}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}
