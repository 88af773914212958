"""A Text space that admits any characters, which the wire can declare and gymnasium cannot."""

from typing import Any

from gymnasium import spaces

__all__ = ("OpenText",)


class OpenText(spaces.Text):
    """Texts of ``min_length`` to ``max_length`` characters of any kind; samples keep to gymnasium's alphabet."""

    def contains(self, x: Any) -> bool:
        """Whether *x* is a text of an admitted length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"OpenText({self.min_length}, {self.max_length})"
