"""What `lmi serve` says: the start while it goes on, and what to do next. What it serves that has no
serving.properties."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from lmi.handler.commands.serve import next_steps

from ...demo.model import question
from ...kit.api.dialects import receive
from ...kit.api.options import typed_settings
from ...kit.api.types import ParsedRequest, Request
from ...kit.hosts.host import FAST, Server, with_parrot
from ...kit.installed import LMI
from ...kit.paths import USER_CODE
from ...kit.rows import each_row
from ...kit.typed import CTRL_C, Typed
from ...kit.waiting import until

pytestmark = pytest.mark.processes

LINK = "lmi: serving on http://127.0.0.1:"


@pytest.fixture
def loading(tmp_path: Path) -> Path:
    """The model directory of an engine that loads until there is a file `go`."""
    for name in ("echo.py", "loads.py"):
        shutil.copy(USER_CODE / name, tmp_path)
    (tmp_path / "serving.properties").write_text("option.backend=loads:Loads\n")
    return tmp_path


Begin = Callable[..., Typed]


@pytest.fixture
def begin(loading: Path) -> Iterator[Begin]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(Typed([*LMI, "serve", str(loading), "--port", "0", *arguments]))


def test_a_start_on_a_terminal(begin: Begin, loading: Path) -> None:
    """How far it is, the link, and what to do next; of vLLM's lines warnings."""
    server = begin()
    server.expect("lmi: starting the engine for")
    server.expect("vLLM logs at WARNING")
    server.expect("75% Completed | 3/4")
    (loading / "go").touch()
    server.expect(LINK)
    server.expect("Ctrl-C ends it")
    assert "\x1b" not in server.raw
    port = server.text.rpartition(LINK)[2].split()[0]
    assert f"chat http://127.0.0.1:{port}" in server.text
    assert httpx.get(f"http://127.0.0.1:{port}/ping").status_code == 200
    server.keys(CTRL_C)
    server.expect("shutting down")
    assert server.end() == 0


def test_a_start_that_fails_on_a_terminal(begin: Begin, loading: Path) -> None:
    """What the engine said, all of it where that is asked for, and why."""
    server = begin("--verbose")
    server.expect("vLLM logs at None")
    server.expect("3/4")
    (loading / "go").write_text("what went before")
    assert server.end() == 1
    assert "what went before" in server.text
    assert server.text.strip().splitlines()[-1].startswith("lmi: ")
    assert "the weights do not fit" in server.text.strip().splitlines()[-1]


def test_ctrl_c_while_it_starts(begin: Begin) -> None:
    server = begin()
    server.expect("3/4")
    family = psutil.Process(server.pid).children(recursive=True)
    assert family
    server.keys(CTRL_C)
    assert server.end() == 0
    assert LINK not in server.text
    until(lambda: not any(process.is_running() for process in family))


def test_next_steps() -> None:
    """A request that can be sent as it is written; the key by its variable, as process lists show arguments."""
    url = "http://127.0.0.1:8080"
    page, chat, curl, _ = next_steps(url, typed_settings(model_id="a-hub/id"), key=False, page=True)
    assert page.split() == ["in", "a", "browser", f"{url}/"]
    assert chat.endswith(f"chat {url}")
    assert json.loads(curl.rpartition(" -d ")[2].strip("'"))["stream"] is True
    key, _, curl, _ = next_steps(url, typed_settings(model_id="a-hub/id"), key=True, page=False)
    assert key == "  set LMI_API_KEY to the key"
    assert '"Authorization: Bearer $LMI_API_KEY"' in curl


@each_row(("task", "path"), [("embed", "/v1/embeddings"), ("rank", "/v1/rerank"), ("classify", "/classify")])
def test_next_steps_of_models_that_generate_nothing(task: str, path: str) -> None:
    settings = typed_settings(model_id="a-hub/id", task=task)
    curl, _ = next_steps("http://127.0.0.1:8080", settings, key=False, page=False)
    assert f"http://127.0.0.1:8080{path} " in curl
    body = curl.rpartition(" -d ")[2].strip("'")
    assert isinstance(receive(Request(body.encode(), path=path), settings), ParsedRequest)


# --- A hub id, a directory of a model's files: with the engine. No hub is reached: the demo model lies where Hugging
# Face's libraries keep what they have downloaded ---

PLAIN = question("plain")
SET = [word for name, value in FAST.items() for word in ("--set", f"{name}={value}")]
NAME = "acme/demo-1.0"


def without_properties(demo_model: Path, target: Path) -> Path:
    shutil.copytree(demo_model, target, ignore=shutil.ignore_patterns("serving.properties"))
    return target


@pytest.fixture
def hub(demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the hub (huggingface_hub, Understand caching), with the demo model; no other model can be had."""
    commit = "1" * 40
    model = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    without_properties(demo_model, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    for name, value in {"HF_HOME": tmp_path, "HF_HUB_CACHE": tmp_path / "hub", "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def asked(server: Server) -> tuple[str, str]:
    """The model's name and its answer."""
    body = {"messages": [{"role": "user", "content": PLAIN.prompt}], "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    return answer["model"], answer["choices"][0]["message"]["content"]


@pytest.mark.engine
@pytest.mark.once
def test_a_hub_id(hub: Path) -> None:
    server = Server(Path(NAME), hub / "log", SET)
    try:
        assert httpx.get(f"{server.url}/v1/models").json()["data"][0]["id"] == NAME
        assert asked(server) == (NAME, PLAIN.answer)
    finally:
        server.stop()
    assert not Path("acme").exists()


@pytest.mark.engine
@pytest.mark.once
def test_a_directory_of_a_models_files(demo_model: Path, tmp_path: Path) -> None:
    directory = without_properties(demo_model, tmp_path / "model")
    server = Server(directory, tmp_path / "log", SET, environment=with_parrot())
    try:
        assert asked(server) == (str(directory), PLAIN.answer)
    finally:
        server.stop()


@pytest.mark.engine
@pytest.mark.once
def test_what_cannot_be_fetched(hub: Path) -> None:
    done = subprocess.run([*LMI, "serve", "acme/other"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    expected = "acme/other is no directory here, and could not be fetched from the hub: "
    assert last.startswith(f"lmi: the engine could not start, see option.model_id: {expected}"), last
