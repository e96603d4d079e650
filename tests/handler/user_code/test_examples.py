"""Code as docs/ shows it, and as README showed it before names changed: both are run as they stand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import lmi.handler

from ...kit.api.handler import Exchange
from ...kit.api.types import Delta, Finish, Started
from ...kit.djl import hosting
from ...kit.pages import blocks_of
from ...kit.paths import DOCS, USER_CODE
from ...kit.rows import each_row
from ...kit.user_code.service import MakeScripted
from ...kit.waiting import until

TIMEOUT = 30.0
FORMER = USER_CODE / "former"


def python_of(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return [block.text for block in blocks_of(DOCS / page) if block.language == "python"]


def name_of(code: str) -> str:
    """The file that a block is for: its first line says so."""
    return code.removeprefix("# ").partition(".py")[0] + ".py"


FILES = {
    "today": {name_of(code): code for code in python_of("custom-code.md") if name_of(code) != "model.py"},
    "former": {name: (FORMER / name).read_text("utf-8") for name in ("haiku.py", "guard.py")},
}
MODELS = {
    **{f"today {number}": code for number, code in enumerate(python_of("migrating.md"))},
    **{name: (FORMER / name).read_text("utf-8") for name in ("model.py", "model_rolling.py", "model_async.py")},
}


def finished(exchange: Exchange) -> dict[str, Any]:
    """The body of a whole response, once it is there."""
    until(lambda: exchange.finished)
    body: dict[str, Any] = json.loads(exchange.take_all())
    return body


@each_row("files", FILES.values(), ids=FILES)
def test_a_dialect_and_a_content_filter(files: dict[str, str], scripted: MakeScripted) -> None:
    assert set(files) == {"haiku.py", "guard.py"}
    made = scripted(files, output_formatter="haiku:Haiku", content_filter="guard:judge")
    exchange = made.open({"about": "rain"})
    made.submitted(1)
    assert made.engine.generations[0].prompt == "Write a haiku about rain."
    made.engine.say(0, Started(1), Delta(0, "Drops "), Delta(0, "fall.", finish=Finish("eos", generated_tokens=3)))
    assert finished(exchange) == {"haiku": "Drops fall.", "why_it_ended": "eos"}
    for body, message in (
        ({"about": 5}, "about: expected a string, got 5"),
        ({"about": "a volcano"}, "prompt: flagged by the content filter: about volcanoes"),
    ):
        refused = made.open(body)
        assert finished(refused) == {"problem": message}
        assert refused.call.reply.status == 400


def test_the_page_of_a_content_filter(scripted: MakeScripted) -> None:
    """docs/examples/content-filter.md: a number in several pieces, and digits that are no number of a card."""
    (code,) = python_of("examples/content-filter.md")
    made = scripted({"cards.py": code}, content_filter="cards:judge")
    refused = made.open({"inputs": "My card is 4111 1111 1111 1111."})
    assert "flagged by the content filter: a card number" in finished(refused)["error"]
    asked = made.open({"inputs": "My order is 4111 1111 1111 1112.", "parameters": {"details": True}})
    made.submitted(1)
    pieces = [Delta(0, text) for text in ("Take ", "4111-1111", "-1111-", "1111", " instead.")]
    made.engine.say(0, Started(1), *pieces, Delta(0, "", finish=Finish("eos", generated_tokens=9)))
    answer = finished(asked)
    assert "1111-1111-1111" not in answer["generated_text"]
    assert answer["details"]["finish_reason"] == "content_filter"


def test_the_page_of_a_dialect(scripted: MakeScripted) -> None:
    """docs/examples/own-dialect.md."""
    (code,) = python_of("examples/own-dialect.md")
    made = scripted({"ollama.py": code}, output_formatter="ollama:Generate")
    whole = {"model": "any", "prompt": "Why?", "stream": False, "options": {"num_predict": 3, "temperature": 0}}
    asked = [made.open({**whole, "stream": stream}, path="/api/generate") for stream in (False, True)]
    made.submitted(2)
    assert (made.engine.generations[0].sampling.max_tokens, made.engine.generations[0].sampling.temperature) == (3, 0)
    for number in range(2):
        made.engine.say(
            number, Started(1), Delta(0, "So "), Delta(0, "be it.", finish=Finish("length", generated_tokens=3))
        )
    answer = finished(asked[0])
    assert (answer["response"], answer["done_reason"], answer["eval_count"]) == ("So be it.", "length", 3)
    until(lambda: asked[1].finished)
    lines = [json.loads(line) for line in asked[1].take_all().splitlines()]
    # What comes while the function runs comes together.
    assert ("".join(line["response"] for line in lines), lines[-1]["done"]) == ("So be it.", True)
    assert asked[1].call.reply.content_type == "application/x-ndjson"
    for wrong, message in (
        ({"prompt": 5}, "prompt: expected a string, got 5"),
        ({"options": {"temprature": 1}}, "options.temprature: expected one of temperature,"),
        ({"options": {"seed": "x"}}, "options.seed: expected a number, got 'x'"),
    ):
        refused = made.open({**whole, **wrong}, path="/api/generate")
        assert message in finished(refused)["error"]
        assert refused.call.reply.status == 400


@pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))
def test_a_handle(scripted: MakeScripted) -> None:
    (code,) = [code for code in python_of("custom-code.md") if name_of(code) == "model.py"]
    with hosting.djl_python():
        made = scripted({"model.py": code}, entryPoint="lmi.handler")
        refused = made.open(headers={"tenant": "closed"})
        assert finished(refused)["error"] == "this tenant is closed"
        assert refused.call.reply.status == 403
        made.open()
        made.submitted(1)


def test_names_of_the_examples() -> None:
    """The page imports from the one module whose names stay, the former files from where the names were."""
    assert "from lmi.handler.api import" in FILES["today"]["haiku.py"]
    assert "MARK" not in FILES["today"]["haiku.py"]
    assert "from lmi.formatters import Answer, Call, Route" in FILES["former"]["haiku.py"]
    assert "MARK" in FILES["former"]["haiku.py"]


class Answering:
    """A worker that gives back what it is called with: where there is an event loop, as an awaitable."""

    def handle(self, inputs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return inputs
        return asyncio.sleep(0, inputs)


@each_row("code", MODELS.values(), ids=MODELS)
def test_a_model_py(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `handle` passes calls on, in rolling batch and in async mode."""
    monkeypatch.setattr(lmi.handler, "_worker", Answering())
    names: dict[str, Any] = {}
    exec(compile(code, "model.py", "exec"), names)  # as DJL's worker imports it
    handle = names["handle"]

    async def awaited() -> Any:
        return await handle("called")

    assert asyncio.run(awaited()) == "called"
    if "async def" not in code:
        assert handle("called") == "called"
