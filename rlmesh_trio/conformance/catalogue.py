"""The checks there are: those shipped, one module a family, and those of a user's own modules."""

import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping

from rlmesh_trio.conformance import checks as shipped
from rlmesh_trio.conformance.registry import CHECKS, Check
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.errors import InvalidSpec

__all__ = ("load_checks", "refuse_unknown")


def load_checks(modules: Iterable[str] = ()) -> Mapping[str, Check]:
    """Every check by id: the shipped ones, and those that importing *modules* registers.

    Modules are looked for in the working directory too. Raises :exc:`InvalidSpec` for one that cannot be imported or
    registers no check.
    """
    for module in sorted(module.name for module in pkgutil.iter_modules(shipped.__path__)):
        importlib.import_module(f"{shipped.__name__}.{module}")
    for name in modules:
        _load(name)
    return CHECKS


def refuse_unknown(settings: Settings, checks: Mapping[str, Check]) -> None:
    """Raise :exc:`InvalidSpec` for an id, family or pattern of *settings* that stands for none of *checks*."""
    for pattern in (*settings.only, *settings.skip):
        if not any(Settings(only=(pattern,)).selects(id) for id in checks):
            families = {check.family for check in checks.values()}
            close = difflib.get_close_matches(pattern, [*checks, *sorted(families)], n=3, cutoff=0.5)
            hint = f" (did you mean {', '.join(close)}?)" if close else ""
            raise InvalidSpec(f"there is no check {pattern!r}{hint}; rlmesh-trio conform list shows all")


def _load(name: str) -> None:
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    before = len(CHECKS)
    known = name in sys.modules
    try:
        importlib.import_module(name)
    except Exception as failure:
        raise InvalidSpec(f"cannot load the checks of {name!r}: {type(failure).__name__}: {failure}") from failure
    if len(CHECKS) == before and not known:
        raise InvalidSpec(f"the module {name!r} registers no check: decorate a judge with @check(...)")
