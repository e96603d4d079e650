"""A headless Chromium without a driver: its DevTools protocol over a pipe.

    Browser -> fd 3 -> chromium     commands, JSON ended by NUL
    Browser <- fd 4 <- chromium     answers and events, the same

Chromium is Debian's package of that name.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..paths import REQUIRED

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # it does not start as root otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    # Nothing but the test's own requests.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# The pipe's two ends become the numbers that Chromium reads and writes.
LAUNCH = """
import os, sys
reading, writing, *command = sys.argv[1:]
os.dup2(int(reading), 3)
os.dup2(int(writing), 4)
os.execv(command[0], command)
"""

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
"""Windows' numbers, which Chromium goes by."""


def program() -> str | None:
    """The path of Chromium, or None; raises BrowserError where LMI_REQUIRE says that it must be there."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and "chromium" in REQUIRED:
        raise BrowserError("chromium is not on PATH, which LMI_REQUIRE asks for")
    return found


class BrowserError(RuntimeError):
    """The browser did not start, has ended, or refused a command."""


class Browser:
    """A running Chromium with a profile of its own in `folder`; a context manager."""

    def __init__(self, folder: Path, timeout: float = 60.0, flags: Sequence[str] = ()) -> None:
        path = program()
        if path is None:
            raise BrowserError(f"none of {', '.join(NAMES)} is on PATH")
        self._timeout = timeout
        self._log = folder / "log"
        self._commands = 0
        self._buffer = b""
        self._page = ""
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        # Above 4, so that neither is overwritten before it is copied.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]
        command = [path, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *map(str, ends), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=ends,
                start_new_session=True,
            )
        for end in (read, write, *ends):
            os.close(end)

    def open(self, url: str) -> None:
        """Opens a page, in place of the one before; returns when it has loaded."""
        self._page = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._page = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")
        if error := self._ask("Page.navigate", url=url).get("errorText"):
            raise BrowserError(f"{url}: {error}")
        self._loaded()

    def reload(self) -> None:
        """Loads the page anew; returns when it has loaded.

        A page that reloads itself (`location.reload()`) does so at some later time: what is asked of it meanwhile is
        answered by the old page, or by an error.
        """
        self._ask("Page.reload")
        self._loaded()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise is waited for."""
        answer = self._ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """The size of the page that was opened, in pixels."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, **features: str) -> None:
        """What its user prefers, as `color_scheme="dark"`."""
        listed = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self._ask("Emulation.setEmulatedMedia", features=listed)

    def picture(self, *, whole: bool = False) -> bytes:
        """What is seen of the page, or all of it: a PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def press(self, key: str, modifiers: int = 0) -> None:
        """A key that has a name (DOM, KeyboardEvent.key); modifiers: 2 is Control."""
        told = {"key": key, "code": key, "modifiers": modifiers, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" and not modifiers else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **told)

    def put_files(self, selector: str, *files: Path) -> None:
        """Files into a field for such, as choosing them does."""
        field = self._ask("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]
        self._ask("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=field["objectId"])

    def close(self) -> None:
        """Ends the browser and all its processes; may be called twice."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for end in (self._in, self._out):
            with suppress(OSError):
                os.close(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._commands += 1
        command: dict[str, Any] = {"id": self._commands, "method": method, "params": parameters}
        if self._page:
            command["sessionId"] = self._page
        try:
            os.write(self._out, json.dumps(command).encode() + b"\0")
        except BrokenPipeError:
            raise self._failure(f"{method}: the browser has ended") from None
        deadline = time.monotonic() + self._timeout
        while True:
            message = self._message(deadline)
            if message.get("id") == self._commands:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return dict(message["result"])

    def _loaded(self) -> None:
        deadline = time.monotonic() + self._timeout
        while self._message(deadline).get("method") != "Page.loadEventFired":
            pass

    def _message(self, deadline: float) -> dict[str, Any]:
        """The next answer or event."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._in, selectors.EVENT_READ)
            while b"\0" not in self._buffer:
                if not selector.select(deadline - time.monotonic()):
                    raise self._failure(f"the browser said nothing for {self._timeout:.0f} s")
                read = os.read(self._in, 1 << 16)
                if not read:
                    raise self._failure("the browser has ended")
                self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _failure(self, why: str) -> BrowserError:
        return BrowserError(f"{why}\n{self._log.read_text(errors='replace')[-3000:]}")
