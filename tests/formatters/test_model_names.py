"""`model`: any name is served, an empty one too, which SageMaker's own OpenAI route sends; and what the answer says."""

from __future__ import annotations

import json
import struct
from typing import Any

from ..kit.answers.events import end, feed
from ..kit.answers.forms import FORMS
from ..kit.api.dialects import WITHOUT_TEXT, named
from ..kit.api.options import typed_settings
from ..kit.api.types import Delta, Event, Started
from ..kit.rows import each_row

NAMES = ["", "lmi", "gpt-4o", "org/model:latest", "served", "..", "é"]
SETTINGS = typed_settings(model_name="served", unknown_parameters="error")
NAMING = [name for name, form in FORMS.items() if named(form.dialect).names_model and form.dialect not in WITHOUT_TEXT]
ECHOES = {"minimal"}
"""Whose answers have the name that was asked for, where there is one."""
CHUNKED = ("chat", "text", "azure")
"""Whose streams have it in each record."""
ANSWER: list[Event] = [Started(1), Delta(0, "Hello", finish=end(), vector=struct.pack("<f", 1.0))]


def answered(form: str, **fields: Any) -> list[bytes]:
    return feed(FORMS[form].asked(SETTINGS, **fields).reply, *ANSWER)


@each_row("model", NAMES)
@each_row("name", NAMING)
def test_any_name_is_served(name: str, model: str) -> None:
    (body,) = answered(name, model=model)
    assert json.loads(body)["model"] == ((model if name in ECHOES else "") or "served")


@each_row("model", ["", "any"])
@each_row("name", CHUNKED)
def test_any_name_is_served_in_streams(name: str, model: str) -> None:
    chunks = [json.loads(record[6:]) for record in answered(name, model=model, stream=True) if b"[DONE]" not in record]
    assert {chunk["model"] for chunk in chunks} == {"served"}


@each_row("fields", [{}, {"model": None}], ids=["none", "null"])
@each_row("name", [name for name in NAMING if name not in ECHOES])
def test_none_is_needed(name: str, fields: dict[str, Any]) -> None:
    (body,) = answered(name, **fields)
    assert json.loads(body)["model"] == "served"
