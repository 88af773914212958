"""A headless Chromium, driven through its debugging pipe: what a reader would see and do, without a browser library."""

import base64
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic, sleep
from typing import Any

__all__ = ("Browser", "chromium", "open_browser")

_PATIENCE = 30.0
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


def chromium() -> str | None:
    """Where Chromium is, if it is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One page. ``requests`` are the addresses it asked for, ``complaints`` what it had to say of the page."""

    def __init__(self, reads: int, writes: int) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._reads, self._writes = reads, writes
        self._target: str | None = None
        self._session: str | None = None
        self._number = 0
        self._rest = b""
        self._loaded = False

    def open(self, path: Path, *, width: int = 1300, height: int = 900, dark: bool = False) -> None:
        """Show the file *path* in a window of this size."""
        before, self._session = self._target, None
        self._target = self.send("Target.createTarget", url="about:blank")["targetId"]
        if before is not None:
            self.send("Target.closeTarget", targetId=before)
        self._session = self.send("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.send("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript *expression*; raises :exc:`AssertionError` when it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release *key*: a character, ``Tab`` or ``Enter``."""
        told: dict[str, Any] = {"key": key}
        told |= {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        told |= {"windowsVirtualKeyCode": 9} if key == "Tab" else {}
        told |= {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **told)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def screenshot(self) -> bytes:
        """What is seen, as a PNG file."""
        return base64.b64decode(self.send("Page.captureScreenshot")["data"])

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        ends = monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            assert select([self._reads], [], [], max(0.0, ends - monotonic()))[0], "Chromium does not answer"
            chunk = os.read(self._reads, 1 << 20)
            assert chunk, "Chromium has gone"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, told: dict[str, Any]) -> None:
        match event:
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case _:
                pass


@contextmanager
def open_browser(profile: Path) -> Generator[Browser]:
    """A Chromium of its own with its files in the directory *profile*, ended with the block."""
    program = chromium()
    assert program is not None
    ours, theirs = _two_pipes()
    # Chromium reads from descriptor 3 and writes to 4.
    pid = os.posix_spawn(
        program,
        [program, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs[0], 3),
            (os.POSIX_SPAWN_DUP2, theirs[1], 4),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    for end in theirs:
        os.close(end)
    try:
        yield Browser(*ours)
    finally:
        for end in ours:
            os.close(end)
        _wait_for(pid)


def _wait_for(pid: int) -> None:
    """Wait for Chromium, which ends when its pipe does, and end it if it does not."""
    ends = monotonic() + _PATIENCE
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if monotonic() >= ends:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        sleep(0.02)


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Ends to read from and to write to, ours and theirs; none of them is 3 or 4."""
    to_it, from_it = os.pipe(), os.pipe()
    theirs = fcntl.fcntl(to_it[0], fcntl.F_DUPFD_CLOEXEC, 10), fcntl.fcntl(from_it[1], fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(to_it[0])
    os.close(from_it[1])
    return (from_it[0], to_it[1]), theirs
