"""The playground in a browser, as its user has it: what is chosen, edited, sent, and seen."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .browser import Browser

__all__ = ["Playground"]

TIMEOUT_S = 30.0
SLICE_S = 0.02


class Playground:
    """The page at `url`, opened anew."""

    def __init__(self, browser: Browser, url: str, *, width: int = 1400, height: int = 900) -> None:
        self.browser = browser
        browser.open(url)
        browser.resize(width, height)
        browser.prefer(reduced_motion="reduce")

    def ask(self, expression: str) -> Any:
        return self.browser.evaluate(expression)

    def until(self, expression: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ask(expression):
            assert time.monotonic() < deadline, (expression, self.text("status"), self.text("lost"))
            time.sleep(SLICE_S)

    def ready(self) -> Playground:
        """Waits for the page to know the model."""
        self.until("document.getElementById('dialect')?.options.length > 0")
        return self

    def requests(self) -> Playground:
        """The page as it shows requests, once it is there."""
        self.ready().click("#tab-request")
        return self

    def text(self, place: str) -> str:
        """What stands in the element of this id, seen or folded."""
        return str(self.ask(f"document.getElementById({json.dumps(place)}).textContent"))

    def seen(self, place: str) -> bool:
        return bool(self.ask(f"document.getElementById({json.dumps(place)}).checkVisibility()"))

    def click(self, selector: str, number: int = 0) -> None:
        self.ask(f"document.querySelectorAll({json.dumps(selector)})[{number}].click()")

    def write(self, selector: str, text: str, event: str = "input") -> None:
        """Into a field, as typing it would."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{field}.value = {json.dumps(text)}; {field}.dispatchEvent(new Event({json.dumps(event)}))")

    @property
    def dialects(self) -> list[str]:
        """What is offered: titles with paths."""
        return [str(one) for one in self.ask("[...document.getElementById('dialect').options].map((one) => one.text)")]

    def choose(self, title: str) -> None:
        numbers = [at for at, one in enumerate(self.dialects) if one.startswith(title)]
        assert numbers, self.dialects
        self.write("#dialect", str(numbers[0]), "change")

    @property
    def body(self) -> Any:
        return json.loads(self.ask("document.getElementById('json').value"))

    def edit(self, body: object) -> None:
        """Replaces it; a text as it is."""
        self.write("#json", body if isinstance(body, str) else json.dumps(body, indent=2))

    def stream(self, on: bool) -> None:
        if self.ask("document.getElementById('streamed').checked") is not on:
            self.click("#streamed")

    def attach(self, *files: Path) -> None:
        """Files to the message of the conversation that is being written; waits until they are there, or refused."""
        count = "document.querySelectorAll('#attached li').length"
        expected = self.ask(count) + len(files)
        self.browser.put_files("#files", *files)
        self.until(f"{count} === {expected} || document.getElementById('attach-fault').textContent !== ''")

    def names(self, place: str) -> list[str]:
        """Of the images, audio and videos that are shown there, the names; [TYPE] of what is not shown."""
        name = "one.getAttribute('alt') ?? one.getAttribute('aria-label') ?? one.textContent"
        found = f"document.querySelectorAll({json.dumps(f'{place} :is(img, audio, video, li > span)')})"
        return [str(one) for one in self.ask(f"[...{found}].map((one) => {name})")]

    def send(self) -> None:
        self.click("#send")

    def say(self, text: str) -> None:
        """A message of the conversation."""
        self.write("#message", text)
        self.click("#say")

    @property
    def turns(self) -> list[tuple[str, str]]:
        """The conversation's turns: whose each is, and its text."""
        pair = "[one.children[0].textContent, (one.querySelector('.text') ?? one.children[1]).textContent]"
        listed = f"[...document.querySelectorAll('#turns .turn')].map((one) => {pair})"
        return [(str(who), str(text)) for who, text in self.ask(listed)]

    def ended(self) -> str:
        """Waits for the end of what was sent; what is said of it."""
        self.until("!document.getElementById('send').hidden")
        return self.text("status")

    @property
    def records(self) -> list[str]:
        """Those of the wire that are in sight."""
        return [
            str(one)
            for one in self.ask("[...document.querySelectorAll('#wire .record')].map((one) => one.textContent)")
        ]

    def code(self, kind: str) -> str:
        self.click("#tab-code")
        return self.text(f"code-{kind}")

    @property
    def overflow(self) -> int:
        """Pixels that the page is wider than what is seen of it."""
        return int(self.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
