"""The infos of an episode as columns, where they are plain: a row is the reset or a step. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlmesh_trio.messages import MetaValue

__all__ = ("has_place", "info_columns")


def has_place(key: str) -> bool:
    """Whether HDF5 has a place for something named *key*."""
    return key not in ("", ".") and "/" not in key and "\0" not in key


def info_columns(rows: Sequence[Mapping[str, MetaValue]], path: str = "") -> tuple[dict[str, Any], list[str]]:
    """By key the values of all *rows*: an array of numbers, a list of texts, or a dict of these for a nested mapping.

    Where a row lacks a key its number is NaN, its text empty. The list tells which keys are left out, as what they hold
    is neither, or of another shape from row to row, or as HDF5 has no place for them; *path* is what these begin with.
    """
    columns: dict[str, Any] = {}
    left_out: list[str] = []
    for key in sorted({key for row in rows for key in row}):
        cells = [row.get(key) for row in rows]
        there = [cell for cell in cells if cell is not None]
        if not has_place(key) or not there:
            left_out.append(path + key)
        elif all(isinstance(cell, Mapping) for cell in there):
            inner = [cast("Mapping[str, MetaValue]", cell or {}) for cell in cells]
            columns[key], gone = info_columns(inner, f"{path}{key}.")
            left_out += gone
        elif all(isinstance(cell, str) and "\0" not in cell for cell in there):
            columns[key] = [cell or "" for cell in cells]
        elif (numbers := _numbers(cells, there)) is not None:
            columns[key] = numbers
        else:
            left_out.append(path + key)
    return {key: column for key, column in columns.items() if not isinstance(column, dict) or column}, left_out


def _numbers(cells: Sequence[MetaValue], there: Sequence[MetaValue]) -> Any:
    """*cells* as an array, NaN for ``None``; ``None`` where those that are *there* are no numbers of one shape."""
    try:
        dense = np.array(there)
    except (ValueError, OverflowError):
        return None
    if dense.dtype.kind not in "biuf" or not dense.size:
        return None
    if len(there) == len(cells):
        return dense
    filled = np.full((len(cells), *dense.shape[1:]), math.nan)
    filled[[cell is not None for cell in cells]] = dense
    return filled
