"""Packages that an extra brings, loaded when something that needs them is made or asked for."""

import importlib
from typing import Any

from rlmesh_trio.errors import SessionError

__all__ = ("MissingExtra", "load_extra")


class MissingExtra(SessionError):
    """What was asked for needs a package that is not installed; the message names the extra that brings it."""


def load_extra(module: str, *, extra: str, wanted_by: str) -> Any:
    """Import *module*, or raise :exc:`MissingExtra` that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtra(
            f"{wanted_by} needs the package {package}, which is not installed: pip install 'rlmesh_trio[{extra}]'"
        ) from error
