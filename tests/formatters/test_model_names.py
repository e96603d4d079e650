"""`model`: any name is served, an empty one too, which SageMaker's own OpenAI route sends; and what the answer says."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from lmi.formatters import ParsedRequest, Request, receive

from ..kit.answers.events import end, feed
from ..kit.api.dialects import GENERATING
from ..kit.api.options import typed_settings
from ..kit.api.types import Delta, Event, Started
from ..kit.rows import each_row

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
AZURE = {"api-version": "2024-05-01-preview"}
NAMES = ["", "lmi", "gpt-4o", "org/model:latest", "served", "..", "é"]
ANSWER: list[Event] = [Started(1), Delta(0, "Hello", finish=end())]


@dataclass
class Form:
    body: dict[str, Any]
    path: str = "/invocations"
    dialect: str = ""
    events: list[Event] | None = None
    echoes: bool = False
    """Whether the answer has the name that was asked for, where there is one."""
    streams: bool = True


FORMS = {
    "chat": Form(CHAT),
    "chat by its path": Form(CHAT, "/v1/chat/completions"),
    "text": Form({"prompt": "Hi"}),
    "text by its path": Form({"prompt": "Hi"}, "/v1/completions"),
    "anthropic": Form({**CHAT, "max_tokens": 5}, "/v1/messages", streams=False),
    "responses": Form({"input": "Hi"}, streams=False),
    "responses by its path": Form({"input": "Hi"}, "/v1/responses", streams=False),
    "azure": Form(CHAT, "/chat/completions", "azure"),
    "minimal": Form(CHAT, "/chat/completions", "minimal", echoes=True),
    "embeddings": Form(
        {"input": "Hi"}, "/v1/embeddings",
        events=[Started(1), Delta(0, "", finish=end(), vector=struct.pack("<f", 1.0))], streams=False,
    ),
}  # fmt: skip


def parsed(form: Form, **fields: Any) -> ParsedRequest:
    embeds = {"task": "embed"} if form.events else {}
    # An unknown field would be refused.
    settings = typed_settings(model_name="served", unknown_parameters="error", **embeds)
    request = Request(
        json.dumps({**form.body, **fields}).encode(),
        path=form.path,
        query=AZURE if form.dialect == "azure" else {},
        attributes={"dialect": form.dialect} if form.dialect else {},
    )
    call = receive(request, settings)
    assert isinstance(call, ParsedRequest), call.body
    return call


def test_every_dialect_that_names_its_model_is_there() -> None:
    """But for those whose answers have no generated text."""
    asked = {parsed(form, model="any").dialect for form in FORMS.values()}
    assert asked == {known.name for known in GENERATING if known.names_model}


@each_row("model", NAMES)
@each_row("name", FORMS)
def test_any_name_is_served(name: str, model: str) -> None:
    form = FORMS[name]
    (body,) = feed(parsed(form, model=model).reply, *(form.events or ANSWER))
    assert json.loads(body)["model"] == ((model if form.echoes else "") or "served")


@each_row("model", ["", "any"])
@each_row("name", [name for name, form in FORMS.items() if form.streams and not form.echoes])
def test_any_name_is_served_in_streams(name: str, model: str) -> None:
    records = feed(parsed(FORMS[name], model=model, stream=True).reply, *ANSWER)
    chunks = [json.loads(record[6:]) for record in records if b"[DONE]" not in record]
    assert {chunk["model"] for chunk in chunks} == {"served"}


@each_row("fields", [{}, {"model": None}], ids=["none", "null"])
@each_row("name", [name for name, form in FORMS.items() if not form.echoes])
def test_none_is_needed(name: str, fields: dict[str, Any]) -> None:
    form = FORMS[name]
    (body,) = feed(parsed(form, **fields).reply, *(form.events or ANSWER))
    assert json.loads(body)["model"] == "served"
