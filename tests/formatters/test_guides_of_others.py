"""What another API calls a guide: where a dialect does not know it, it is refused by name. An answer in another form
than the one that was asked for is no answer."""

from __future__ import annotations

import json
from typing import Any

from ..kit.api.dialects import GENERATING, receive
from ..kit.api.options import make_settings
from ..kit.api.types import ParsedRequest, Request
from ..kit.rows import each_row

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
GUIDES: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    "structured_outputs": {"json": SCHEMA},
    "guided_json": SCHEMA,
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= x",
    "guided_json_object": True,
    "output_format": {"type": "json_schema", "schema": SCHEMA},
    "grammar": {"type": "json", "value": SCHEMA},
}
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "model": "m"}
BODIES: dict[str, dict[str, Any]] = {
    "openai": MESSAGES,
    "azure": MESSAGES,
    "minimal": MESSAGES,
    "anthropic": MESSAGES,
    "responses": {"input": "hi"},
    "lmi": {"inputs": "hi"},
    "dynamic": {"inputs": ["hi"]},
    "tgi": {"inputs": "hi"},
}


def test_no_dialect_is_forgotten() -> None:
    assert {known.name for known in GENERATING} == {*BODIES}


@each_row("guide", GUIDES)
@each_row("dialect", BODIES)
def test_a_guide_is_served_or_refused_by_name(dialect: str, guide: str) -> None:
    """With unknown fields ignored, as is the default."""
    asked = {guide: GUIDES[guide]}
    body = BODIES[dialect] | ({"parameters": asked} if "inputs" in BODIES[dialect] else asked)
    request = Request(json.dumps(body).encode(), attributes={"dialect": dialect})
    received = receive(request, make_settings())
    if isinstance(received, ParsedRequest):
        assert received.dialect == dialect
        (generation,) = received.generations
        assert generation.sampling.structured_output is not None
        return
    assert received.failure is not None
    assert guide in received.failure.message
