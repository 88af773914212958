"""Listeners worth having, ready made; several at once through :class:`HookGroup`."""

from rlmesh_trio.observers.extras import MissingExtra
from rlmesh_trio.observers.group import HookGroup
from rlmesh_trio.observers.journal import Journal, JournalEnding, JournalHeader, JournalHooks, read_journal
from rlmesh_trio.observers.logs import LoggingHooks
from rlmesh_trio.observers.opentelemetry import OpenTelemetryHooks
from rlmesh_trio.observers.tensorboard import TensorBoardHooks

__all__ = (
    "HookGroup",
    "Journal",
    "JournalEnding",
    "JournalHeader",
    "JournalHooks",
    "LoggingHooks",
    "MissingExtra",
    "OpenTelemetryHooks",
    "TensorBoardHooks",
    "read_journal",
)
