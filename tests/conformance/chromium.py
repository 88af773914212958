"""A headless Chromium, driven through its debugging pipe: what a reader would see and do, without a browser library."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic
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
        self._session: str | None = None
        self._number = 0
        self._rest = b""
        self._loaded = False

    def open(self, path: Path, *, width: int = 1300, height: int = 900, dark: bool = False) -> None:
        """Show the file *path* in a window of this size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
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

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the *whole* page, to a PNG file."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

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
    to_it, our_end = os.pipe()
    our_ear, from_it = os.pipe()
    command = [program, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    # Chromium reads from descriptor 3 and writes to 4.
    redirected = ["sh", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "sh", *command]
    process = subprocess.Popen(redirected, pass_fds=(to_it, from_it), stderr=subprocess.DEVNULL)
    os.close(to_it)
    os.close(from_it)
    try:
        yield Browser(our_ear, our_end)
    finally:
        os.close(our_end)
        os.close(our_ear)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
