"""How `lmi serve` begins: the port is its own at once and refuses until somebody answers; whom it answers then."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from ...kit.hosts.host import free_port
from ...kit.installed import LMI
from ...kit.paths import USER_CODE
from ...kit.waiting import until

pytestmark = pytest.mark.processes

WAITS = """
import time
from pathlib import Path

HERE = Path(__file__).parent
(HERE / "loading").touch()
while not (HERE / "go").exists():
    time.sleep(0.05)
"""
"""Code of the user's that takes its time, as an engine does."""


class Serving:
    """`lmi serve` of an engine that says what it is asked."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder.with_suffix(".log")
        folder.mkdir()
        shutil.copy(USER_CODE / "echo.py", folder)
        (folder / "model.py").write_text(WAITS)
        (folder / "serving.properties").write_text("option.backend=echo:Echo\n")
        self.folder = folder
        with self._log.open("w") as log:
            command = [*LMI, "serve", str(folder), *arguments]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until((folder / "loading").exists)

    def log(self) -> str:
        return self._log.read_text()

    def url(self) -> str:
        """Where it is served, once it is."""
        (self.folder / "go").touch()
        until(lambda: "serving on" in self.log())
        (url,) = re.findall(r"^lmi: serving on (http://\S+)$", self.log(), re.MULTILINE)
        return str(url)


Begin = Callable[..., Serving]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as stack:

        def started(*arguments: str) -> Serving:
            serving = Serving(tmp_path / "model", *arguments)
            stack.callback(serving.process.wait, 20)
            stack.callback(serving.process.terminate)
            return serving

        yield started


def test_the_port_is_taken_before_the_engine_starts(begin: Begin) -> None:
    port = free_port()
    serving = begin("--port", str(port), "--no-playground")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
    began = time.monotonic()
    second = subprocess.run(
        [*LMI, "serve", str(serving.folder), "--port", str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == f"lmi: --host 127.0.0.1 --port {port}: the port is in use\n"
    assert time.monotonic() - began < 30
    assert "serving on" not in serving.log()
    url = serving.url()
    assert url == f"http://127.0.0.1:{port}"
    # Without a second try: what the line says is so.
    assert httpx.get(f"{url}/ping").json() == {"status": "Healthy"}
    assert httpx.get(f"{url}/").status_code == 405
    assert "in a browser" not in serving.log()


def test_any_port_and_whom_it_answers(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints the port that it was given; on loopback it answers to loopback's names and to those it is told.

    The playground is opened by the browser that the environment names (Python's webbrowser), once there is a server.
    """
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    serving = begin(
        "--port", "0", "--open", "--allowed-host", "model.example", "--allowed-origin", "https://app.example"
    )
    assert not opened.exists()
    url = serving.url()
    until(opened.exists)
    until(lambda: opened.read_text() == f"{url}/\n")
    assert "<title>Playground</title>" in httpx.get(f"{url}/").text
    said = serving.log().splitlines()
    assert [line.partition(" for ")[0] for line in said if line.startswith("lmi: ")] == [
        "lmi: starting the engine", f"lmi: serving on {url}",
    ]  # fmt: skip
    assert [line.split("  ")[1] for line in said[said.index(f"lmi: serving on {url}") + 1 :]][:4] == [
        "in a browser", "in a terminal", "with curl", "Ctrl-C ends it",
    ]  # fmt: skip
    with httpx.Client(base_url=url) as http:
        for host, status in {"model.example": 200, "localhost": 200, "rebound.example": 403}.items():
            assert http.get("/v1/models", headers={"Host": host}).status_code == status
        answer = http.post("/v1/chat/completions", json={"messages": []}, headers={"Host": "rebound.example"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert http.get("/ping", headers={"Host": "rebound.example"}).status_code == 200
        for origin, status in {"https://app.example": 200, "https://other.example": 403}.items():
            assert http.get("/v1/models", headers={"Origin": origin}).status_code == status
    serving.process.terminate()
    assert serving.process.wait(30) == 0
