"""A server of `lmi chat`'s own: nobody else has its key, and nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from lmi.handler.commands.chat.local import local_server

from ....kit.api.errors import OptionError
from ....kit.installed import LMI
from ....kit.paths import USER_CODE
from ....kit.rows import each_row
from ....kit.waiting import until

pytestmark = pytest.mark.processes


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """The model directory of an engine that says what it is asked."""
    shutil.copy(USER_CODE / "echo.py", tmp_path)
    (tmp_path / "serving.properties").write_text("option.backend=echo:Echo\n")
    return tmp_path


def test_its_key(echo: Path) -> None:
    with local_server(echo, ["log_requests=false"]) as (url, key):
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 401
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.json()["choices"][0]["message"]["content"] == "Hi"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/ping")


def test_standard_output_is_the_answers(echo: Path) -> None:
    """Whatever the engine writes there."""
    (echo / "echo.py").write_text((echo / "echo.py").read_text() + "\nprint('what the engine prints', flush=True)\n")
    done = subprocess.run(
        [*LMI, "chat", str(echo)], input="Hi\nHello", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "Hi\nHello\n")
    assert "what the engine prints" in done.stderr


@each_row("task", ["text-embedding", "text-ranking", "text-classification"])
def test_a_model_that_generates_nothing(echo: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine is started for it."""
    monkeypatch.setattr("lmi.handler.commands.chat.local.service_for", lambda *_: pytest.fail("it starts an engine"))
    expected = f"expected a model that generates text, found option.task={task}"
    with pytest.raises(OptionError, match=expected), local_server(echo, [f"task={task}"]):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_it(echo: Path, number: int) -> None:
    """However it ends."""
    with subprocess.Popen(
        [*LMI, "chat", str(echo)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as talk:
        assert talk.stdin is not None
        assert talk.stdout is not None
        talk.stdin.write(b"Hi\n")
        talk.stdin.flush()
        assert talk.stdout.readline() == b"Hi\n"
        family = psutil.Process(talk.pid).children(recursive=True)
        assert family
        os.kill(talk.pid, number)
        talk.wait(30)
    until(lambda: not any(process.is_running() for process in family))
