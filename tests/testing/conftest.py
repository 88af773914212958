"""The virtual clock of these tests ends, as the engine's does."""

from tests.engine.conftest import autojump_clock

__all__ = ("autojump_clock",)
