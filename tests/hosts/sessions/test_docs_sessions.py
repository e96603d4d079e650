"""The Python of docs/sessions.md, run as it stands: boto3's calls against a host, the formatters in a service.

The page's command is run by test_docs_examples.py.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ...kit.api.handler import started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.clients.bridge import Bridge, found_by, serving
from ...kit.clients.scripts import OURS, run_python
from ...kit.hosts.host import Host
from ...kit.pages import PAGES, blocks_of
from ...kit.user_code.engine import ScriptedEngine

(PAGE,) = (page for page in PAGES if page.name == "sessions.md")
CALLS, FORMATTERS = [block.text for block in blocks_of(PAGE) if block.language == "python"]
HEADER = "x-amzn-sagemaker-session-id"


@pytest.mark.engine
@pytest.mark.hosts
def test_boto3s_calls(chat_server: Host) -> None:
    with serving(Bridge(chat_server.url).app) as url:
        assert run_python(OURS, ["-c", CALLS], found_by(url)) == "William Shakespeare wrote Hamlet.\n"


def test_formatters(tmp_path: Path) -> None:
    (tmp_path / "memory.py").write_text(FORMATTERS)
    options = [line.rpartition("option.")[2] for line in FORMATTERS.splitlines()[0].split(" and ")]
    engine = ScriptedEngine()
    engine.submit_then = [Started(1), Delta(0, "there", finish=Finish("eos", generated_tokens=1))]
    given = dict(option.split("=") for option in options)
    service = started_service(engine, tmp_path, **given, sessions_path="sessions")

    def ask(session: str, **body: str) -> dict[str, object]:
        opened = service.open(Request(json.dumps(body).encode(), headers={HEADER: session} if session else {}))
        deadline = time.monotonic() + 30
        while not opened.finished:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        answer: dict[str, object] = json.loads(opened.take_all())
        return answer

    session = str(ask("", requestType="NEW_SESSION")["result"]).split()[1]
    assert ask(session, inputs="b", remember="a")["count"] == 1
    assert ask(session, inputs="c")["count"] == 2
    assert ask("", inputs="d") == {"generated_text": "there"}
    assert [generation.prompt for generation in engine.generations] == ["ab", "ac", "d"]
    service.close()
