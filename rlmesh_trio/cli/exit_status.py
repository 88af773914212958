"""The exit statuses besides 0, which means done."""

__all__ = ("FAILED", "INTERRUPTED", "NOT_STARTED")

FAILED = 1
NOT_STARTED = 2
INTERRUPTED = 130
