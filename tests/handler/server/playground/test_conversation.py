"""The page as a conversation: turns, the system prompt, Stop, Regenerate, colours, the request that it is."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ....kit.api.types import Delta, EngineEvent, Finish, Started, Token, TopToken
from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.hosts.local_server import Make, Running
from ....kit.rows import each_row
from ....kit.waiting import until

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

SAID = ["Paris", " it", " is", "."]
WHOLE = "".join(SAID)
CONTROL = 2
POOLS = ("embed", "text-ranking", "text-classification")


def spoken(texts: Sequence[str] = SAID, prompt: int = 9) -> list[EngineEvent]:
    """An answer of these tokens, each less likely than the one before it."""
    tokens = [Token(at, text, -0.4 * at, top=(TopToken(at, text, -0.4 * at), TopToken(99, " other", -3.0)))
              for at, text in enumerate(texts)]  # fmt: skip
    *but_last, last = (Delta(0, one.text, (one,)) for one in tokens)
    finish = Finish("eos", generated_tokens=len(texts), cumulative_logprob=-1.0)
    return [Started(prompt), *but_last, Delta(0, last.text, last.tokens, finish=finish)]


@pytest.fixture
def server(running: Make) -> Running:
    """One that says SAID to all."""
    server = running()
    server.engine.submit_then = spoken()
    return server


def open_page(browser: Browser, server: Running) -> Playground:
    return Playground(browser, f"http://127.0.0.1:{server.port}/").ready()


def begun(server: Running, count: int) -> None:
    """Waits for so many requests in all."""
    until(lambda: len(server.engine.generations) == count)


def roles(page: Playground) -> str:
    """Who says what of the request, as `s`ystem, `u`ser and `a`ssistant, with the texts' first words."""
    return " ".join(f"{one['role'][0]}:{one['content'].split()[0]}" for one in page.body["messages"])


def test_it_is_what_the_page_begins_with(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    assert page.seen("talk")
    assert not page.seen("work")
    assert page.ask("document.activeElement.id") == "message"
    page.click("#tab-request")
    assert page.seen("work")
    assert not page.seen("talk")
    assert page.ask("document.getElementById('dialect').selectedOptions[0].text").startswith("Chat completions")


@each_row("task", POOLS)
def test_what_generates_no_text_has_none(browser: Browser, running: Make, task: str) -> None:
    page = open_page(browser, running(task=task))
    assert page.seen("work")
    assert not page.seen("talk")
    assert not page.seen("sides")


def test_several_turns(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    said = []
    for text in ("Where?", "Sure?", "Really?"):
        page.say(text)
        assert page.ended().startswith("Done")
        said += [("You", text), ("Assistant", WHOLE)]
        assert page.turns == said
    assert roles(page) == "u:Where? a:Paris u:Sure? a:Paris u:Really?"
    assert page.body["stream"] is True
    assert "logprobs" not in page.body
    foot = page.ask("document.querySelector('#turns .turn:last-child .foot').textContent")
    assert "first token after" in foot
    assert "4 tokens · prompt of 9" in foot
    page.click("#anew")
    assert page.turns == []
    assert page.seen("begin")
    page.say("New?")
    page.ended()
    assert roles(page) == "u:New?"


def test_an_answer_is_seen_as_it_comes_and_can_be_stopped(browser: Browser, running: Make) -> None:
    """What was said until then is kept; a message without an answer gives way to the next one."""
    server = running()
    page = open_page(browser, server)
    page.say("Where?")
    begun(server, 1)
    seen = ""
    for event, text in zip(spoken()[:3], ["", *SAID], strict=False):
        server.engine.say(0, event)
        seen += text
        page.until(f"document.querySelector('#turns .text')?.textContent === {json.dumps(seen)}")
    assert page.text("told") == "Streaming …"
    assert page.seen("halt")
    page.browser.press("Escape")
    assert page.ended().startswith("Stopped")
    until(lambda: server.engine.aborted == [0])
    assert page.turns[-1] == ("Assistant", "Paris it")
    assert "tokens/s" in page.ask("document.querySelector('#turns .foot').textContent")
    for number, text in enumerate(("Never?", "Again?"), start=2):
        page.say(text)
        begun(server, number)
        page.click("#halt")
        assert page.ended().startswith("Stopped")
    assert roles(page) == "u:Where? a:Paris u:Again?"
    assert page.text("again") == "Try again"


def test_another_answer_and_another_question(browser: Browser, server: Running) -> None:
    """Regenerate sends the same messages; an edited message takes the place of the last one."""
    page = open_page(browser, server)
    page.say("Where?")
    page.ended()
    before = page.body
    server.engine.submit_then = spoken(["Rome", "."])
    page.click("#again")
    page.ended()
    assert page.turns == [("You", "Where?"), ("Assistant", "Rome.")]
    assert page.body == before
    page.click("#edit")
    assert page.ask("document.getElementById('message').value") == "Where?"
    page.click("#cancel")
    assert page.ask("document.getElementById('message').value") == ""
    page.click("#edit")
    page.say("When?")
    page.ended()
    assert page.turns == [("You", "When?"), ("Assistant", "Rome.")]
    assert roles(page) == "u:When?"


def test_a_system_prompt(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    assert not page.seen("system")
    page.say("Where?")
    page.ended()
    assert roles(page) == "u:Where?"
    page.write("#system", "Be brief.")
    page.say("Sure?")
    page.ended()
    assert roles(page) == "s:Be u:Where? a:Paris u:Sure?"
    page.write("#system", "")
    page.click("#again")
    page.ended()
    assert roles(page) == "u:Where? a:Paris u:Sure?"


def test_keys(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    page.write("#message", "Where?")
    page.browser.press("Enter")
    page.until("document.querySelectorAll('#turns .turn').length === 2")
    page.ended()
    page.write("#message", "Sure?")
    page.ask("document.getElementById('colours').focus()")
    page.browser.press("Enter", modifiers=CONTROL)
    page.until("document.querySelectorAll('#turns .turn').length === 4")
    page.ended()
    page.browser.press("Enter")
    page.ask("document.getElementById('message').focus()")
    page.browser.press("Enter")
    assert len(page.turns) == 4, "there is nothing to send"


def test_starts_and_what_follows_them(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    offered = page.ask("[...document.querySelectorAll('#starts .chip')].map((one) => one.textContent)")
    starts: list[list[str]] = next(one["starts"] for one in facts(page)["requests"] if one["starts"])
    assert offered == [first for first, *_ in starts]
    longest = max(starts, key=len)
    assert len(longest) > 1
    page.click("#starts .chip", starts.index(longest))
    for text in longest[1:]:
        page.ended()
        assert page.text("next") == text
        page.click("#next .chip")
    page.ended()
    assert page.text("next") == ""
    assert [text for who, text in page.turns if who == "You"] == longest


def facts(page: Playground) -> Any:
    return page.ask("fetch('playground/setup.json').then((one) => one.json())")


def test_colours_are_asked_for_and_shown_or_not(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    page.click("#colours")
    assert (page.body["logprobs"], page.body["top_logprobs"]) == (True, 5)
    page.say("Where?")
    page.ended()
    tokens = "#turns .tokens .token"
    page.until(f"document.querySelectorAll('{tokens}').length === {len(SAID)}")
    classes = page.ask(f"[...document.querySelectorAll('{tokens}')].map((one) => one.className)")
    assert classes == [f"token p{step}" for step in (0, 2, 3, 3)]
    page.click(tokens, 2)
    page.ask("document.querySelector('#turns .tokens').focus()")
    page.browser.press("ArrowRight")
    detail = page.ask("document.querySelector('#turns [id^=likely]').textContent")
    assert detail.startswith('Token 4: ".", log-probability -1.200')
    assert '" other"5.0 %' in detail
    page.click("#colours")
    assert "logprobs" not in page.body
    assert not page.ask("document.querySelector('#turns .tokens').checkVisibility()")
    assert page.turns[-1] == ("Assistant", WHOLE)
    page.say("Sure?")
    page.ended()
    page.click("#colours")
    shown = "[...document.querySelectorAll('#turns .tokens')].map((one) => one.checkVisibility())"
    assert page.ask(shown) == [True, False], "the second answer came without"


def test_the_request_is_the_same(browser: Browser, server: Running) -> None:
    """What the request's view shows, and what it makes of it: another message, another answer, another dialect."""
    page = open_page(browser, server)
    page.say("Where?")
    page.ended()
    page.click("#as-request")
    assert page.seen("work")
    assert page.text("text") == WHOLE
    until(lambda: page.records[-1:] == ["data: [DONE]"])
    server.engine.submit_then = spoken(["Rome", "."])
    page.send()
    page.ended()
    page.click("#tab-conversation")
    assert page.turns == [("You", "Where?"), ("Assistant", "Rome.")]
    page.click("#tab-request")
    page.write("#message-0", "When?")
    page.click("#tab-conversation")
    assert page.turns == []
    assert page.ask("document.getElementById('message').value") == "When?"
    page.click("#say")
    page.ended()
    page.click("#tab-request")
    page.choose("LMI")
    page.send()
    page.ended()
    page.click("#tab-conversation")
    assert page.turns == [("You", "When?"), ("Assistant", "Rome.")]
    assert roles(page) == "u:When?"
    page.click("#tab-request")
    page.choose("Azure")
    page.edit({**page.body, "messages": [{"role": "system", "content": "Be brief."}, *page.body["messages"]]})
    page.send()
    page.ended()
    page.click("#continue")
    page.write("#message-3", "Why?")
    page.click("#tab-conversation")
    assert page.turns == [("You", "When?"), ("Assistant", "Rome.")]
    assert page.ask("document.getElementById('system').value") == "Be brief."
    page.click("#say")
    page.ended()
    assert roles(page) == "s:Be u:When? a:Rome. u:Why?"


@each_row("body", ["{", "[]", '{"messages": [null]}', '{"messages": 3}', '{"inputs": "Where?"}'])
def test_what_is_no_conversation_leaves_it_as_it_was(browser: Browser, server: Running, body: str) -> None:
    page = open_page(browser, server)
    page.say("Where?")
    page.ended()
    page.click("#tab-request")
    page.edit(body)
    page.click("#tab-conversation")
    assert page.turns == [("You", "Where?"), ("Assistant", WHOLE)]
    page.say("Sure?")
    page.ended()
    assert roles(page) == "u:Where? a:Paris u:Sure?"


def test_an_answer_on_its_way_is_seen_in_both(browser: Browser, running: Make) -> None:
    server = running()
    page = open_page(browser, server).requests()
    page.edit({**page.body, "messages": [{"role": "user", "content": "Where?"}]})
    page.send()
    begun(server, 1)
    first, *rest = spoken()
    server.engine.say(0, first, rest[0])
    page.until(f"document.getElementById('text').textContent === {json.dumps(SAID[0])}")
    page.click("#tab-conversation")
    page.until(f"document.querySelector('#turns .text').textContent === {json.dumps(SAID[0])}")
    server.engine.say(0, *rest[1:])
    page.ended()
    assert page.turns == [("You", "Where?"), ("Assistant", WHOLE)]
    assert page.text("text") == WHOLE


def test_a_refusal_is_shown_in_its_place(browser: Browser, server: Running) -> None:
    page = open_page(browser, server)
    page.click("#tab-request")
    page.write("#field-temperature", "-3")
    page.click("#tab-conversation")
    page.say("Where?")
    assert page.ended().startswith("Failed: HTTP 4")
    assert "temperature" in page.ask("document.querySelector('#turns .failure').textContent")
    page.click("#tab-request")
    page.write("#field-temperature", "0")
    page.click("#tab-conversation")
    page.click("#again")
    page.ended()
    assert page.turns == [("You", "Where?"), ("Assistant", WHOLE)]


def test_a_long_conversation_leaves_out_its_beginning(browser: Browser, running: Make) -> None:
    """Where the model could not read it all, by what it counted until then, nor answer."""
    server = running()
    page = open_page(browser, server)
    assert server.service.info.context == 2048
    long = " ".join(["word"] * 300)
    for number, kept in enumerate(("0", "01", "012", "123", "234")):
        server.engine.submit_then = spoken(prompt=500 * len(kept))
        page.say(f"{number} {long}")
        page.ended()
        assert "".join(text[0] for who, text in page.turns if who == "You") == kept
        assert "".join(one["content"][0] for one in page.body["messages"] if one["role"] == "user") == kept
        assert page.seen("left") is (kept[0] != "0")
    assert page.text("left").startswith("The oldest 4 messages are left out")


def test_the_page_follows_what_is_said_until_one_looks_back(browser: Browser, running: Make) -> None:
    server = running()
    page = open_page(browser, server)
    page.say("Count.")
    begun(server, 1)
    below = "document.documentElement.scrollHeight - innerHeight - scrollY"
    server.engine.say(0, Started(3), *(Delta(0, f"{one}\n", (Token(one, f"{one}\n", -0.1),)) for one in range(100)))
    page.until("document.querySelector('#turns .text').textContent.includes('99')")
    page.until(f"{below} < 2")
    # The browser tells of a scroll a frame later, when the page may have grown.
    grown = "const grown = document.createElement('p'); grown.style.height = '999px'; document.body.append(grown)"
    page.ask(f"(() => {{ {grown}; dispatchEvent(new Event('scroll')); }})()")
    server.engine.say(0, Delta(0, "more\n", (Token(1, "more\n", -0.1),)))
    page.until(f"{below} < 2")
    page.ask("scrollTo(0, 0)")
    time.sleep(0.1)
    server.engine.say(0, *(Delta(0, f"{one}\n", (Token(one, f"{one}\n", -0.1),)) for one in range(100, 200)))
    page.until("document.querySelector('#turns .text').textContent.includes('199')")
    assert page.ask("scrollY") == 0
