"""The plain fields, `text` and `reasoning`: what they set, what the response repeats, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ...kit.answers.events import end
from ...kit.answers.openai import STRICT
from ...kit.answers.responses import asked, reply, whole
from ...kit.api.dialects import responses
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import Delta, Request, StructuredOutput
from ...kit.rows import each_row

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
LOGPROBS = "message.output_text.logprobs"


@each_row(
    ("fields", "sampling"),
    [
        ({}, {"temperature": None, "top_p": None, "max_tokens": None, "logprobs": None, "truncate": None}),
        ({"temperature": 0, "top_p": 0.5, "max_output_tokens": 7}, {"temperature": 0, "top_p": 0.5, "max_tokens": 7}),
        ({"include": [LOGPROBS]}, {"logprobs": 0}),
        ({"include": [LOGPROBS], "top_logprobs": 3}, {"logprobs": 3}),
        ({"include": ["reasoning.encrypted_content"], "top_logprobs": 0}, {"logprobs": None}),
        ({"truncation": "auto"}, {"truncate": -1}),
        ({"truncation": "disabled"}, {"truncate": None}),
        # Of chats.
        ({"stop": "a", "seed": 7, "top_k": 5, "min_tokens": 2}, {"stop": ("a",), "seed": 7, "top_k": 5}),
        ({"text": {"format": {"type": "text"}}}, {"structured_output": None}),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"structured_output": StructuredOutput(json_object=True)},
        ),
    ],
)
def test_what_is_sampled(fields: dict[str, Any], sampling: dict[str, Any]) -> None:
    (generation,) = asked(**fields).generations
    assert {name: getattr(generation.sampling, name) for name in sampling} == sampling
    assert (generation.overflow, generation.stream) == ("refuse", False)


GIVEN: dict[str, Any] = {
    "instructions": "Be brief.", "max_output_tokens": 5, "max_tool_calls": 3, "parallel_tool_calls": False,
    "temperature": 0.5, "top_p": 0.5, "truncation": "auto", "user": "u", "safety_identifier": "s",
    "prompt_cache_key": "k", "metadata": {"a": "b"}, "tool_choice": "none",
    "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "reasoning": {"effort": "low", "summary": None},
}  # fmt: skip


def test_what_the_response_repeats() -> None:
    body = whole(reply(**GIVEN, service_tier="flex", prompt_cache_retention="24h"), Delta(0, "{}", finish=end()))
    assert {name: body[name] for name in GIVEN} == GIVEN | {
        "text": {"format": {"type": "json_object"}, "verbosity": "low"}
    }
    assert (body["service_tier"], body["model"], body["store"]) == ("default", "/opt/ml/model", False)
    plain = whole(reply(), Delta(0, "", finish=end()))
    assert (plain["tool_choice"], plain["truncation"], plain["temperature"]) == ("auto", "disabled", None)
    assert (plain["metadata"], plain["text"]) == ({}, {"format": {"type": "text"}})


@each_row(
    ("fields", "kind", "param"),
    [
        ({"top_logprobs": 3}, ParameterError, "top_logprobs"),
        ({"top_logprobs": 21, "include": [LOGPROBS]}, ParameterError, "top_logprobs"),
        ({"include": ["nothing"]}, ParameterError, "include[0]"),
        ({"include": "a"}, PayloadError, "include"),
        ({"truncation": "left"}, ParameterError, "truncation"),
        ({"stream_options": {"include_obfuscation": True}}, ParameterError, "stream_options"),
        ({"background": True}, UnsupportedError, "background"),
        ({"conversation": "conv_1"}, UnsupportedError, "conversation"),
        ({"prompt": {"id": "p"}}, UnsupportedError, "prompt"),
        ({"context_management": []}, UnsupportedError, "context_management"),
        ({"moderation": {"model": "m"}}, UnsupportedError, "moderation"),
        ({"metadata": 5}, PayloadError, "metadata"),
        ({"metadata": {"a": 5}}, PayloadError, "metadata.a"),
        ({"metadata": {"a": "b" * 513}}, ParameterError, "metadata.a"),
        ({"metadata": {"a" * 65: "b"}}, ParameterError, "metadata." + "a" * 64),
        ({"metadata": {str(number): "" for number in range(17)}}, ParameterError, "metadata"),
        ({"text": "json"}, PayloadError, "text"),
        ({"text": {"verbosity": "none"}}, ParameterError, "text.verbosity"),
        ({"text": {"format": {"type": "grammar"}}}, ParameterError, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, PayloadError, "text.format.schema"),
        ({"text": {"format": {"type": "json_object", "schema": SCHEMA}}}, ParameterError, "text.format.schema"),
        ({"text": {"format": {"type": "text", "schema": SCHEMA}}}, ParameterError, "text.format.schema"),
        # By the names of other APIs, whatever is done about unknown fields.
        *(
            ({"text": {"format": {**form, name: SCHEMA}}}, ParameterError, f"text.format.{name}")
            for form in ({"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "schema": SCHEMA})
            for name in ("value", "json_schema")
        ),
        ({"text": {"format": {"type": "json_schema", "name": 5, "schema": SCHEMA}}}, PayloadError, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": 1}}}, PayloadError,
         "text.format.strict"),
        ({"reasoning": "high"}, PayloadError, "reasoning"),
        ({"reasoning": {"effort": 5}}, PayloadError, "reasoning.effort"),
        ({"previous_response_id": "resp_1"}, UnsupportedError, "previous_response_id"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(fields: dict[str, Any], kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as caught:
        asked(**fields)
    assert type(caught.value) is kind
    assert caught.value.param == param


@each_row(
    ("fields", "param"),
    [
        ({"max_tokens": 5}, "max_tokens"),
        ({"text": {"form": {}}}, "text.form"),
        ({"text": {"format": {"type": "text", "schemas": {}}}}, "text.format.schemas"),
        ({"reasoning": {"efort": "low"}}, "reasoning.efort"),
        ({"tools": [{"type": "function", "name": "f", "returns": {}}]}, "tools[].returns"),
        ({"input": [{"role": "user", "content": "a", "name": "b"}]}, "input[].name"),
    ],
)
def test_what_nobody_knows_is_refused_where_that_is_wanted(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        responses.parse({"input": "hi", **fields}, Request(b""), STRICT)
    assert caught.value.param == param
