"""The behaviours shared with the public rlmesh runtime are numbered, and each number has its test."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.engine.peer import peer

TESTS = Path(__file__).parents[1]
BEHAVIOURS = range(1, 82)


def numbers(tree: ast.Module) -> Iterator[int]:
    """The number of each test that ``@peer(number)`` names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                match mark:
                    case ast.Call(func=ast.Name(id="peer"), args=[ast.Constant(value=int(number))]):
                        yield number
                    case _:
                        pass


def test_each_shared_behaviour_has_exactly_one_test() -> None:
    found = Counter(number for path in TESTS.rglob("test_*.py") for number in numbers(ast.parse(path.read_bytes())))
    assert found == Counter(BEHAVIOURS)


def test_the_number_is_part_of_the_test_s_name() -> None:
    _, [case] = peer(7).args
    assert case.id == "peer-7"
