"""The page for all who use it: at 400 and 1,400 pixels, light and dark, by keyboard, to axe, and while much arrives.

With LMI_PICTURES=1 in the environment the pictures of docs/playground.md are written anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from ....kit.api.handler import Access
from ....kit.api.types import CallDelta, Delta, EngineEvent, Finish, Started, Token, TopToken
from ....kit.clients.axe import axe_faults
from ....kit.clients.browser import Browser, program
from ....kit.clients.playground import Playground
from ....kit.hosts.local_server import Make, Running
from ....kit.paths import DOCS
from ....kit.waiting import until

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

PICTURES = DOCS / "pictures"
WRITES = os.environ.get("LMI_PICTURES") == "1"
SIZES = ((1400, 900), (400, 860))
SCHEMES = ("light", "dark")
PARSERS = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_stateful_sessions": "true"}
NAME = {"served_model_name": "demo-model"}
SHOWN = {("conversation", "light", 1400), ("tokens", "light", 1400), ("folded", "dark", 400), ("code", "light", 1400)}
"""What docs/playground.md shows."""
PACE_S = 0.02
LONGEST_TASK_MS = 100.0
MANY = 5000

SAID = (
    ("Hamlet", -0.02), (" was", -0.3), (" written", -0.05), (" by", -0.01), (" William", -0.2), (" Shakespeare", -0.01),
    (",", -0.8), (" probably", -2.4), (" between", -1.1), (" 1599", -0.5), (" and", -0.05), (" 1601", -0.4),
    (".", -0.1),
    (" It", -1.3), (" is", -0.5), (" his", -1.0), (" longest", -0.4), (" play", -0.1), (".", -0.2),
)  # fmt: skip
OTHERS = ((" perhaps", -1.2), (" most", -1.9), (" around", -2.9), (" or", -3.4))


def spoken() -> list[EngineEvent]:
    """An answer with log-probabilities, some of them low."""
    events: list[EngineEvent] = [Started(14)]
    for at, (text, logprob) in enumerate(SAID):
        listed = sorted([(text, logprob), *OTHERS], key=lambda one: -one[1])
        top = tuple(TopToken(at + 100 * rank, *one) for rank, one in enumerate(listed))
        (number,) = [one.id for one in top if one.text == text and one.logprob == logprob]
        finish = Finish("eos", generated_tokens=len(SAID), cumulative_logprob=-9.0) if at == len(SAID) - 1 else None
        events.append(Delta(0, text, (Token(number, text, logprob, top=top),), finish=finish))
    return events


CALLED: list[EngineEvent] = [
    Started(14),
    Delta(0, "", reasoning="The user asks for the weather in Rome, which only the tool knows."),
    Delta(0, "Let me look that up."),
    Delta(
        0,
        "",
        calls=(CallDelta(0, "chatcmpl-tool-5a", "get_weather", '{"city": "Rome"}'),),
        finish=Finish("eos", generated_tokens=31, reasoning_tokens=15),
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser"), flags=["--hide-scrollbars"]) as one:
        yield one


def open_page(browser: Browser, server: Running, scheme: str, width: int, height: int) -> Playground:
    page = Playground(browser, f"http://127.0.0.1:{server.port}/", width=width, height=height)
    browser.prefer(color_scheme=scheme, reduced_motion="reduce")
    return page.requests()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_overflows_and_axe_finds_nothing(
    browser: Browser, running: Make, scheme: str, width: int, height: int
) -> None:
    server = running(**PARSERS, **NAME)
    page = open_page(browser, server, scheme, width, height)

    def look(state: str) -> None:
        assert page.overflow <= 0, state
        assert axe_faults(browser) == [], state
        if WRITES and (state, scheme, width) in SHOWN:
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / f"playground-{state}.png").write_bytes(browser.picture())

    def send(events: list[EngineEvent], ask: Callable[[], None] = page.send) -> None:
        number = len(server.engine.generations)
        ask()
        until(lambda: len(server.engine.generations) > number)
        for event in events:
            time.sleep(PACE_S)
            server.engine.say(number, event)
        assert page.ended().startswith("Done")

    look("request")
    page.click("#tab-conversation")
    look("begin")
    page.click("#talk summary")
    send(CALLED, lambda: page.say("What is the weather in Rome?"))
    page.ask("document.querySelectorAll('#turns details').forEach((one) => (one.open = true))")
    look("folded turn")
    page.click("#talk summary")
    page.click("#anew")
    page.click("#colours")
    send(spoken(), lambda: page.say("Who wrote Hamlet?"))
    page.until(f"document.querySelectorAll('#turns .token').length === {len(SAID)}")
    page.click("#turns .token", 7)
    look("conversation")
    page.click("#as-request")
    send(spoken())
    page.until(f"document.querySelectorAll('#tokens .token').length === {len(SAID)}")
    page.click("#tokens .token", 7)
    look("tokens")
    page.click("#tab-json")
    send(CALLED)
    page.ask("document.querySelectorAll('#response details').forEach((one) => (one.open = true))")
    page.click("#wire .row", 2)
    page.ask("document.getElementById('title-answer').scrollIntoView()")
    look("folded")
    page.click("#tab-code")
    look("code")
    page.edit({**page.body, "temperature": -3, "user": "a" * 300})
    page.send()
    assert page.ended().startswith("Failed")
    look("error")
    page.click("#tab-conversation")
    page.click("#say")
    page.say("Why?")
    assert page.ended().startswith("Failed")
    look("failed turn")
    page.click("#tab-request")
    page.choose("LMI")
    page.click("#tab-form")
    look("lmi")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_question_for_the_key(browser: Browser, running: Make, scheme: str) -> None:
    server = running(access=Access("a secret"))
    for width, height in SIZES:
        page = Playground(browser, f"http://127.0.0.1:{server.port}/", width=width, height=height)
        browser.prefer(color_scheme=scheme)
        page.until("document.getElementById('key-form').checkVisibility()")
        assert page.ask("document.activeElement.id") == "key"
        assert page.overflow <= 0
        assert axe_faults(browser) == []


def test_it_can_be_used_by_keyboard_alone(browser: Browser, running: Make) -> None:
    """The first stop leads to the content; tabs are one stop, and arrows choose; Ctrl-Enter sends from anywhere."""
    server = running(**PARSERS)
    page = open_page(browser, server, "light", *SIZES[0])
    page.ask("document.querySelector('.skip').focus()")
    browser.press("Tab")
    assert page.ask("document.activeElement.id") == "tab-request"
    browser.press("ArrowLeft")
    assert page.seen("talk")
    browser.press("ArrowRight")
    assert page.seen("work")
    page.ask("document.querySelector('.skip').focus()")
    browser.press("Enter")
    assert page.ask("document.activeElement.id") == "main"
    browser.press("Tab")
    assert page.ask("document.activeElement.id") == "dialect"
    browser.press("Tab")
    assert page.ask("document.activeElement.id") == "tab-form"
    browser.press("ArrowRight")
    assert page.ask("document.activeElement.id") == "tab-json"
    browser.press("Tab")
    assert page.ask("document.activeElement.id") == "json"
    browser.press("Enter", modifiers=2)
    until(lambda: server.engine.generations)
    server.engine.say(0, *spoken())
    assert page.ended().startswith("Done")
    page.ask("document.getElementById('send').focus()")
    browser.press("Enter")
    until(lambda: len(server.engine.generations) > 1)
    page.until("document.activeElement.id === 'stop'")
    browser.press("Enter")
    assert page.ended().startswith("Stopped")
    assert page.ask("document.activeElement.id") == "send"


WATCH = """
window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({type: "longtask"});
window.said = 0;
new MutationObserver(() => (said += 1)).observe(document.getElementById("STATUS"), {childList: true});
"""


@pytest.mark.timing
@pytest.mark.parametrize("paced", [False, True], ids=["at once", "in steps"])
@pytest.mark.parametrize("title", ["Conversation", "Chat completions", "LMI"])
def test_thousands_of_tokens_hold_nothing_up(browser: Browser, running: Make, title: str, paced: bool) -> None:
    """Chromium tells of tasks above 50 ms. A screen reader is told of what begins and ends, and of no token."""
    server = running()
    page = open_page(browser, server, "light", *SIZES[0])
    turns = title == "Conversation"
    if not turns:
        page.choose(title)
    if title == "Chat completions":
        page.click("#form .switches input")
    limit = "parameters-max_new_tokens" if title == "LMI" else "max_tokens"
    page.write(f"#field-{limit}", "2000")
    if turns:
        page.click("#tab-conversation")
        page.click("#colours")
    status, place = ("told", "#turns .tokens") if turns else ("status", "#tokens")
    page.ask(WATCH.replace("STATUS", status))
    page.say("Count.") if turns else page.send()
    until(lambda: server.engine.generations)
    server.engine.say(0, Started(5))
    step = 10
    for at in range(0, MANY, step):
        last = at + step >= MANY
        finish = Finish("length", generated_tokens=MANY, cumulative_logprob=-1.0)
        tokens = [
            Token(n, f" word{n % 97}", -0.5, top=tuple(TopToken(k, " w", -1.0) for k in range(5))) for n in range(step)
        ]
        deltas = [Delta(0, one.text, (one,), finish=finish if last and one is tokens[-1] else None) for one in tokens]
        server.engine.say(0, *deltas)
        if paced:
            time.sleep(0.005)
    assert page.ended().startswith("Done")
    page.until(f"document.querySelectorAll('{place} .token').length === {MANY}")
    for off_and_on in ("#colours", "#colours") if turns else ("#tab-text", "#tab-tokens"):
        page.click(off_and_on)
    time.sleep(0.2)
    tasks = page.ask("tasks")
    print("tasks of", [round(one) for one in tasks], "ms")
    assert max(tasks, default=0.0) <= LONGEST_TASK_MS
    assert page.ask("said") <= 3
