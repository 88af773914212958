"""The exit statuses besides 0, which means done."""

__all__ = ("FAILED", "INTERRUPTED", "KIT_FAULT", "NOT_STARTED")

FAILED = 1
NOT_STARTED = 2
KIT_FAULT = 4
"""A fault of the conformance kit itself."""
INTERRUPTED = 130
