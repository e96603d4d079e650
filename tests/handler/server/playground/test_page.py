"""The page in a real Chromium: each dialect, streams, errors, the key, stopping, what is folded, what is written."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from ....kit.api.engine import Adapter
from ....kit.api.handler import Access
from ....kit.api.types import CallDelta, Delta, EngineEvent, EngineInfo, Finish, Started, Token, TopToken
from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.clients.scripts import OURS, run_python
from ....kit.hosts.local_server import Make, Running
from ....kit.rows import each_row
from ....kit.waiting import until

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

SAID = ["William", " Shake", "speare", " wrote", " Hamlet", "."]
PARSERS = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}


def token(number: int, text: str) -> Token:
    return Token(number, text, -0.1 * number, top=(TopToken(number, text, -0.1 * number), TopToken(99, " other", -3.0)))


def spoken(texts: list[str]) -> list[EngineEvent]:
    """An answer of these tokens."""
    finish = Finish("eos", generated_tokens=len(texts), cumulative_logprob=-1.0)
    return [
        Started(5),
        *(
            Delta(0, text, (token(at, text),), finish=finish if at == len(texts) - 1 else None)
            for at, text in enumerate(texts)
        ),
    ]


def open_page(browser: Browser, server: Running) -> Playground:
    return Playground(browser, f"http://127.0.0.1:{server.port}/").requests()


TITLES = [
    "Chat completions", "Text completions", "Responses", "Messages", "LMI", "Text Generation Inference",
    "Azure AI Model Inference",
    "Minimal chat ·", "Minimal chat, as events",
]  # fmt: skip


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_each_dialect(browser: Browser, running: Make, streamed: bool) -> None:
    server = running()
    server.engine.submit_then = spoken(SAID)
    page = open_page(browser, server)
    asked = 0
    for title in page.dialects:
        page.choose(title)
        if title.startswith("Minimal chat, as events"):
            assert page.ask("document.getElementById('streamed').disabled")
        else:
            page.stream(streamed)
        if not page.body:
            continue
        page.send()
        status = page.ended()
        if not status.startswith("Done"):
            # What asks for no generation, and this engine cannot do.
            assert title not in TITLES, (title, status, page.text("failure"))
            continue
        asked += 1
        if title.startswith(tuple(TITLES)):
            assert page.text("text") == "".join(SAID), title
            always = title.startswith("Minimal chat, as events")
            assert (
                page.text("wire-count") != "1 record" if streamed or always else page.text("wire-count") == "1 record"
            )
    assert asked >= len(TITLES)
    assert all(any(one.startswith(title) for one in page.dialects) for title in TITLES)


def test_a_stream_is_seen_as_it_comes(browser: Browser, running: Make) -> None:
    server = running()
    page = open_page(browser, server)
    page.send()
    until(lambda: server.engine.generations)
    *events, last = spoken(SAID)
    seen = ""
    server.engine.say(0, events[0])
    for event, text in zip(events[1:], SAID[:-1], strict=True):
        server.engine.say(0, event)
        seen += text
        page.until(f"document.getElementById('text').textContent === {json.dumps(seen)}")
        assert page.text("status") == "Streaming …"
        assert page.text("figure-total") == "–"
    server.engine.say(0, last)
    assert page.ended().startswith("Done in ")
    assert page.text("text") == "".join(SAID)
    # The head, six tokens, the end, the usage, [DONE].
    assert page.records[-1] == "data: [DONE]"
    assert page.text("figure-tokens") == "6"
    assert page.text("figure-prompt") == "5"
    assert page.text("figure-first").endswith("s")
    assert float(page.text("figure-rate")) > 0
    page.click("#wire .row", -1 + int(page.ask("document.querySelectorAll('#wire .row').length")))
    assert "data: [DONE]\n\n" in page.text("record")


def test_tokens_have_the_colours_of_their_log_probabilities(browser: Browser, running: Make) -> None:
    server = running()
    server.engine.submit_then = spoken(SAID)
    page = open_page(browser, server)
    page.click("#form .switches input")
    assert page.body["logprobs"] is True
    page.send()
    page.ended()
    assert page.seen("tokens-view")
    page.until("document.querySelectorAll('#tokens .token').length === 6")
    classes = page.ask("[...document.querySelectorAll('#tokens .token')].map((one) => one.className)")
    assert classes == [f"token p{step}" for step in (0, 0, 1, 1, 2, 2)]
    page.ask("document.getElementById('tokens').focus()")
    page.browser.press("End")
    page.browser.press("ArrowLeft")
    assert page.text("token").startswith('Token 5: " Hamlet", log-probability -0.400')
    assert '" other"5.0 %' in page.text("token")


def test_reasoning_and_calls_are_folded(browser: Browser, running: Make) -> None:
    server = running(**PARSERS)
    calls = (CallDelta(0, "call-1", "get_weather", '{"city": '), CallDelta(0, arguments='"Rome"}'))
    server.engine.submit_then = [
        Started(5),
        Delta(0, "", reasoning="\nRome has"),
        Delta(0, "", reasoning=" weather."),
        Delta(0, "I look.", calls=calls[:1]),
        Delta(0, "", calls=calls[1:], finish=Finish("eos", generated_tokens=9, reasoning_tokens=4)),
    ]
    page = open_page(browser, server)
    page.click("#form .switches input", 1)
    assert page.body["tools"][0]["function"]["name"] == "get_weather"
    for streamed in (True, False):
        page.stream(streamed)
        page.send()
        assert page.ended().endswith("ended by tool_calls")
        assert page.text("text") == "I look."
        assert page.text("folded") == "ReasoningRome has weather."
        assert page.text("called") == 'Tool call get_weather call-1{"city": "Rome"}'
        assert page.ask("[...document.querySelectorAll('#response details')].every((one) => !one.open)")


@each_row("title", TITLES)
def test_an_error_is_shown_as_clients_see_it(browser: Browser, running: Make, title: str) -> None:
    page = open_page(browser, running())
    page.choose(title)
    field = "parameters.temperature" if "parameters" in page.body else "temperature"
    page.write(f"#field-{field.replace('.', '-')}", "-3")
    page.send()
    status = page.ended()
    assert "temperature" in page.text("failure-message")
    assert "temperature" in page.text("failure-body")
    if title.startswith("Minimal chat, as events"):
        # EventSource reads no other status.
        assert status == "Failed: An error in the stream"
    else:
        code = status.removeprefix("Failed: HTTP ")[:3]
        assert code in ("400", "422", "424")
        page.click("#tab-head")
        assert f"HTTP {code}" in page.text("head")
        assert "x-request-id" in page.text("head")
    assert page.text("wire-count").endswith("record") or title.startswith("Minimal")


def test_an_error_in_the_middle_of_a_stream(browser: Browser, running: Make) -> None:
    server = running()
    page = open_page(browser, server)
    page.send()
    until(lambda: server.engine.generations)
    server.engine.say(0, *spoken(SAID)[:3])
    page.until("document.getElementById('text').textContent !== ''")
    server.engine.close()
    assert page.ended() == "Failed: An error in the stream"
    assert page.text("text") == "William Shake"
    assert "shutting down" in page.text("failure-message")


def test_what_is_no_json_is_sent_as_it_is(browser: Browser, running: Make) -> None:
    page = open_page(browser, running())
    page.edit('{"messages": [')
    assert page.text("json-fault").startswith("Not JSON")
    assert "edit it as JSON" in page.text("form")
    page.send()
    assert page.ended().startswith("Failed: HTTP 4")
    assert page.code("curl").endswith("-d '{\"messages\": ['\n")


def test_stop_ends_it_here_and_there(browser: Browser, running: Make) -> None:
    server = running()
    page = open_page(browser, server)
    for number in range(2):
        page.send()
        until(lambda: server.engine.running)
        server.engine.say(number, *spoken(SAID)[:3])
        page.until("document.getElementById('text').textContent === 'William Shake'")
        assert page.ask("document.getElementById('send').hidden")
        page.browser.press("Escape") if number else page.click("#stop")
        assert page.ended().startswith("Stopped after ")
        until(lambda: not server.engine.running)
    assert server.engine.aborted == [0, 1]
    assert page.text("text") == "William Shake"


def test_the_key(browser: Browser, running: Make) -> None:
    """The page is open, asks for the key, and the tab keeps it; nothing of it is in the code."""
    server = running(access=Access("a secret, тайна"))
    server.engine.submit_then = spoken(SAID)
    url = f"http://127.0.0.1:{server.port}/"
    page = Playground(browser, url)
    page.until("!document.getElementById('key-form').hidden")
    assert not page.seen("work")
    page.write("#key", "wrong")
    page.click("#key-form button")
    page.until("document.getElementById('key-fault').textContent !== ''")
    assert not page.seen("work")
    page.write("#key", "a secret, тайна")
    page.click("#key-form button")
    page.requests()
    page.send()
    assert page.ended().startswith("Done")
    assert "$LMI_API_KEY" in page.code("curl")
    assert 'os.environ["LMI_API_KEY"]' in page.code("python")
    assert "a secret, тайна" not in page.ask("document.documentElement.outerHTML")
    page.browser.reload()
    page.requests()
    page.until("document.getElementById('forget')?.checkVisibility()")
    page.click("#forget")
    page.until("document.getElementById('key-form')?.checkVisibility()")
    assert page.ask("sessionStorage.length") == 0


def test_form_and_json_are_in_step(browser: Browser, running: Make) -> None:
    page = open_page(browser, running())
    page.write("#message-0", "Hello")
    page.write("#field-temperature", "0.5")
    assert page.body["messages"] == [{"role": "user", "content": "Hello"}]
    assert page.body["temperature"] == 0.5
    page.write("#field-temperature", "")
    assert "temperature" not in page.body
    page.click("#form .conversation > button")
    assert page.ask("document.activeElement.id") == "message-1"
    assert page.body["messages"][1] == {"role": "assistant", "content": ""}
    page.edit({**page.body, "seed": 7, "stream": False})
    assert page.ask("document.getElementById('field-seed').value") == "7"
    assert not page.ask("document.getElementById('streamed').checked")
    page.stream(True)
    assert page.body["stream_options"] == {"include_usage": True}
    page.choose("LMI")
    page.click("#form .switches input", 1)
    assert page.body["parameters"] == {"max_new_tokens": 256, "details": True, "logprobs": 5}
    assert page.ask("document.querySelector('#form .switches input').checked")


def test_a_conversation_goes_on(browser: Browser, running: Make) -> None:
    server = running()
    server.engine.submit_then = spoken(SAID)
    page = open_page(browser, server)
    page.send()
    page.ended()
    page.click("#continue")
    assert page.body["messages"][1:] == [
        {"role": "assistant", "content": "".join(SAID)},
        {"role": "user", "content": ""},
    ]
    assert page.ask("document.activeElement.id") == "message-2"
    page.choose("Azure")
    assert len(page.body["messages"]) == 3


def test_a_session(browser: Browser, running: Make) -> None:
    server = running(enable_stateful_sessions="true")
    server.engine.submit_then = spoken(SAID)
    page = open_page(browser, server)
    page.click(".session button")
    page.until("document.querySelector('.session button').textContent === 'Close it'")
    session = page.ask("document.querySelector('.session [role=status]').textContent")
    assert f"SessionId={json.dumps(session)}" in page.code("boto3")
    assert session in page.code("curl")
    page.send()
    assert page.ended().startswith("Done")
    page.click("#tab-form")
    page.click(".session button")
    page.until("document.querySelector('.session button').textContent === 'New session'")
    assert session not in page.code("curl")


def test_adapters(browser: Browser, running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is named by `model` where the dialect has it, and by `adapters` elsewhere."""
    server = running()
    adapters = (Adapter("formal", 1, "/formal"), Adapter("short", 2, "/short"))
    info = EngineInfo(engine="scripted", version="0", context=9, adapters=adapters)
    monkeypatch.setattr(server.service, "_info", info)
    page = open_page(browser, server)
    usual = page.body["model"]
    names = "[...document.getElementById('adapter').options].map((one) => one.value)"
    assert page.ask(names) == ["", "formal", "short"]
    page.write("#adapter", "short", "change")
    assert page.body["model"] == "short"
    page.write("#adapter", "", "change")
    assert page.body["model"] == usual
    page.choose("LMI")
    page.write("#adapter", "formal", "change")
    assert page.body["adapters"] == "formal"


MARK = "next script"
RUN_ALL = f"""
import json, sys
for script in json.loads(sys.argv[1]):
    print({MARK!r})
    exec(script, {{}})
"""


def test_the_code_says_the_same(browser: Browser, running: Make, tmp_path: Path) -> None:
    """curl and Python's clients, run as they are written; boto3's is compiled."""
    server = running()
    server.engine.submit_then = spoken(SAID)
    page = open_page(browser, server)
    scripts: list[str] = []
    for title in TITLES:
        page.choose(title)
        for streamed in (False, True):
            page.stream(streamed) if title != TITLES[-1] else None
            body = page.body
            if title == "Messages":
                body["temperature"] = 0.5
                page.edit(body)
            compile(page.code("boto3"), "boto3", "exec")
            script = page.code("python")
            compile(script, "python", "exec")
            curl = page.code("curl")
            done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (curl, done.stderr)
            assert " Hamlet" in done.stdout, (curl, done.stdout)
            # Azure's client is in .venv-clients alone, Anthropic's comes with vLLM.
            if "azure" not in script and ("anthropic" not in script or find_spec("anthropic")):
                scripts.append(script)
            assert page.body == body
    # One process: what the clients import takes longer than what they do.
    outputs = run_python(OURS, ["-c", RUN_ALL, json.dumps(scripts)]).split(MARK)[1:]
    assert len(outputs) == len(scripts)
    for script, output in zip(scripts, outputs, strict=True):
        assert " Hamlet" in output, script


def test_the_record_list_is_short_in_the_document(browser: Browser, running: Make) -> None:
    server = running()
    server.engine.submit_then = spoken(["word "] * 2000)
    page = open_page(browser, server)
    page.send()
    page.ended()
    assert int(page.text("wire-count").split()[0]) >= 2000
    assert page.ask("document.querySelectorAll('#wire .row').length") < 30
    page.ask("document.getElementById('wire').focus()")
    page.browser.press("Home")
    page.browser.press("ArrowDown")
    assert page.text("record").startswith("Record 2,")
    assert page.ask("document.getElementById('wire').getAttribute('aria-activedescendant')") == "record-1"
