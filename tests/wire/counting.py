"""How often something costly happens."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ("patterns_made",)


@contextmanager
def patterns_made() -> Generator[list[Any]]:
    """The regular expressions that are compiled in the block."""
    made: list[Any] = []
    compiled = re.compile

    def counted(pattern: Any, *flags: Any) -> Any:
        made.append(pattern)
        return compiled(pattern, *flags)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(re, "compile", counted)
        yield made
