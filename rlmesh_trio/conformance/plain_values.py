"""Values as the Python that makes them again, to the last bit."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

__all__ = ("literal",)

_FEW = 16


def literal(value: object) -> str:
    """*value* as an expression over ``np``: arrays, scalars of numpy and Python, texts, mappings and sequences."""
    match value:
        case np.ndarray():
            return _array(cast("np.ndarray[Any, Any]", value))
        case np.generic():
            scalar = cast("np.generic[Any]", value)
            known = f"np.{scalar.dtype.name}({scalar.item()!r})"
            return f"{_array(np.asarray(scalar))}[()]" if _is_odd(scalar) else known
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return f"{{{', '.join([f'{literal(key)}: {literal(part)}' for key, part in items])}}}"
        case tuple():
            parts = [literal(part) for part in cast("tuple[object, ...]", value)]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        case list():
            return f"[{', '.join([literal(part) for part in cast('list[object]', value)])}]"
        case float() if not np.isfinite(value):
            return f'float("{value}")'
        case _:
            return repr(value)


def _is_odd(value: Any) -> bool:
    """Whether Python has no literal for some part of *value*."""
    return value.dtype.kind not in "biuf" or not bool(np.isfinite(value).all())


def _array(array: np.ndarray[Any, Any]) -> str:
    if array.size <= _FEW and not _is_odd(array):
        return f'np.array({array.tolist()!r}, "{array.dtype.name}")'
    told = f'np.frombuffer(bytes.fromhex("{array.tobytes().hex()}"), "{array.dtype.str}")'
    return f"{told}.reshape({array.shape}).copy()"
