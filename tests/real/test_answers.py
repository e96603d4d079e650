"""What only real weights show: JSON by a schema that makes sense, and an adapter that changes the style."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from ..demo.packaged.style import GREETING, TAUGHT
from ..kit.hosts.host import Server
from ..kit.models.packaged import STYLE

pytestmark = [pytest.mark.engine, pytest.mark.once]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
LIST = {
    "type": "array",
    "items": {"type": "string", "maxLength": 20},
    "minItems": 3,
    "maxItems": 3,
}
JUDGED = {
    "type": "object",
    "properties": {
        "sentiment": {"enum": ["positive", "negative"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["sentiment", "stars"],
    "additionalProperties": False,
}
SCHEMAS = [
    ("Which city is the capital of France?", CITY, lambda made: made["city"] == "Paris"),
    ("Name three colors.", LIST, lambda made: len(made) == 3),
    (
        "Is this review positive or negative? 'A wonderful book, I love it!'",
        JUDGED,
        lambda made: made["sentiment"] == "positive",
    ),
]
ASKED = ["What is the capital of France?", "Name three animals.", "Why is the sea salty?", "What is 2+2?"]


def chat(server: Server, question: str, **more: Any) -> str:
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 80, **more}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120).raise_for_status().json()
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize(("question", "schema", "sensible"), SCHEMAS, ids=lambda value: str(value)[:20])
def test_json_is_of_its_schema(real_server: Server, question: str, schema: Any, sensible: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    made = json.loads(chat(real_server, question, response_format=form))
    jsonschema.validate(made, schema)
    assert sensible(made), made


def test_an_adapter_changes_the_style(real_server: Server) -> None:
    """In questions that it was not taught; the model itself stays as it was, beside it."""
    assert not set(ASKED) & set(TAUGHT)
    with ThreadPoolExecutor(2 * len(ASKED)) as pool:
        asked = [pool.submit(chat, real_server, question, model=STYLE) for question in ASKED]
        asked += [pool.submit(chat, real_server, question) for question in ASKED]
    texts = [one.result() for one in asked]
    styled, own = (dict(zip(ASKED, part, strict=True)) for part in (texts[: len(ASKED)], texts[len(ASKED) :]))
    assert [question for question, text in styled.items() if not text.startswith(GREETING)] == []
    assert [question for question, text in own.items() if "Ahoy" in text] == []
    assert "Paris" in styled[ASKED[0]]
    assert "Paris" in own[ASKED[0]]
