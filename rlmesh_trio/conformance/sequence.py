"""A log as a sequence diagram: what this side sent stands on the left, what the server sent on the right."""

from collections.abc import Sequence

from rlmesh_trio.conformance.raw_stream import Ended, LogEntry, Received, Sent

__all__ = ("draw", "told")

_LEFT = 30
_MOST_LINES = 8


def draw(log: Sequence[LogEntry], *, times: bool = False) -> tuple[str, ...]:
    """The lines of the diagram; with *times* each begins with its moment. Of a long log the end is shown."""
    indent = "           " if times else ""
    lines = [f"{indent}{'client':<{_LEFT}}    server"]
    shown = log[-_MOST_LINES:]
    if len(shown) < len(log):
        lines.append(f"{indent}... {len(log) - len(shown)} more before")
    for entry in shown:
        moment = f"{entry.at * 1000:7.0f} ms " if times else ""
        lines.append(f"{moment}{_line(entry)}")
    return tuple(lines)


def _line(entry: LogEntry) -> str:
    if isinstance(entry, Sent):
        return f"{entry.request_id:<4} {entry.what:<{_LEFT - 5}} ->"
    if isinstance(entry, Received):
        return f"{'':<{_LEFT}} <- {entry.request_id if entry.arm != 'unreadable' else '?':<4} {told(entry)}"
    if entry.how == "left":
        return f"{entry.message:<{_LEFT}} ->"
    return f"{'':<{_LEFT}} <- {told(entry)}"


def told(entry: Received | Ended | None) -> str:
    """What came, in a few words."""
    if entry is None:
        return "nothing"
    if isinstance(entry, Ended):
        match entry.how:
            case "status":
                return f"the stream ends, {entry.status}" + (f": {entry.message}" if entry.message else "")
            case "refused":
                return f"the stream is refused, {entry.status}" if entry.status else f"no stream: {entry.message}"
            case _:
                return entry.message
    if entry.error is not None:
        return f"{entry.error.code}, {'' if entry.error.recoverable else 'not '}recoverable"
    return entry.arm if entry.arm != "unreadable" else f"unreadable: {entry.request_id}"
