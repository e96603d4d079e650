"""The types that OpenAI's client and vLLM's server read by, as oracles of what is sent and of what is read."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import pytest

from lmi.formatters.responses.items import ITEM, MESSAGE, PARTS
from lmi.formatters.responses.offers import CALLED, NAMESPACE
from lmi.formatters.responses.parameters import ROWS

from ...kit.answers.events import end
from ...kit.answers.responses import TOOL, conversation, events_of, reply, whole
from ...kit.api.types import CallDelta, Delta, Event, Failed, Started, Token, TopToken, said
from ...kit.clients.types import unknown_fields

pytestmark = pytest.mark.engine

TOKEN = Token(5, "so", -1.5, top=(TopToken(5, "so", -1.5, b"so"),), raw=b"so")
CALLS = (CallDelta(0, "call_1", "f", "{}"), CallDelta(1, "call_2", "g", '{"a": 1}'))
ALL = Delta(0, "so", (TOKEN,), end(count=9, reasoning_tokens=4), reasoning="hm", calls=CALLS)
KINDS = (CallDelta(0, "call_3", "agents__f", "{}"), CallDelta(1, "call_4", "patch", '{"input": "a\\nb"}'))
ENDS: dict[str, Event] = {
    "all": ALL,
    "kinds": Delta(0, "", finish=end(), calls=KINDS),
    "text": Delta(0, "a", finish=end()),
    "length": Delta(0, "a", finish=end("length")),
    "filtered": Delta(0, "", finish=end("content_filter")),
}
AGENTS = {"type": "namespace", "name": "agents", "description": "d", "tools": [{"type": "function", "name": "f"}]}
PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}
OF_KINDS: dict[str, Any] = {"tools": [TOOL, AGENTS, PATCH], "tool_choice": {"type": "custom", "name": "patch"}}
ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tools": {"tools": [TOOL], "tool_choice": {"type": "function", "name": "get_weather"}},
    "required": {"tools": [TOOL, {"type": "function", "name": "g"}], "tool_choice": "required"},
    "schema": {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}}},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
    "all": {
        "instructions": "Be brief.", "max_output_tokens": 5, "max_tool_calls": 3, "parallel_tool_calls": False,
        "temperature": 0.5, "top_p": 0.5, "truncation": "auto", "user": "u", "safety_identifier": "s",
        "prompt_cache_key": "k", "metadata": {"a": "b"}, "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "service_tier": "auto",
    },
}  # fmt: skip


FORMS = {
    "ResponseInputTextParam": PARTS["user"]["input_text"],
    "ResponseInputImageParam": PARTS["user"]["input_image"],
    "ResponseOutputTextParam": PARTS["assistant"]["output_text"],
    "ResponseOutputRefusalParam": PARTS["assistant"]["refusal"],
    "ResponseReasoningItemParam": ITEM.forms["reasoning"],
    "ResponseFunctionToolCallParam": ITEM.forms["function_call"],
    "response_input_item_param.FunctionCallOutput": ITEM.forms["function_call_output"],
    "ResponseCustomToolCallParam": ITEM.forms["custom_tool_call"],
    "ResponseCustomToolCallOutputParam": ITEM.forms["custom_tool_call_output"],
    "response_input_item_param.AdditionalTools": ITEM.forms["additional_tools"],
    "FunctionToolParam": CALLED["function"],
    "CustomToolParam": CALLED["custom"],
    "NamespaceToolParam": NAMESPACE,
}


@pytest.mark.once
@pytest.mark.parametrize("name", FORMS)
def test_every_field_of_openais_client_is_known(name: str) -> None:
    from openai.types import responses

    assert unknown_fields(attrgetter(name)(responses), FORMS[name].fields) == set()


@pytest.mark.once
def test_every_field_of_its_requests_is_known() -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsBase

    assert unknown_fields(ResponseCreateParamsBase, ROWS, "stream") == set()


@pytest.mark.once
@pytest.mark.parametrize("role", MESSAGE.forms)
def test_every_field_of_its_messages_is_known(role: str) -> None:
    from openai.types import responses

    for theirs in (responses.EasyInputMessageParam, responses.ResponseOutputMessageParam):
        assert unknown_fields(theirs, MESSAGE.forms[role].fields, "role") == set()


NEWER = {**ASKED, "kinds": OF_KINDS}
"""With what vLLM 0.23 does not have."""


@pytest.mark.parametrize("asked", NEWER)
@pytest.mark.parametrize("name", ENDS)
def test_a_response_is_one(asked: str, name: str) -> None:
    from openai.types.responses import Response

    body = whole(reply(**NEWER[asked]), Started(3), ENDS[name])
    read = Response.model_validate(body)
    # Of its examples, if not of its types.
    assert {*body} - {"store"} <= {*Response.model_fields}
    plain = [name for name, value in body.items() if not isinstance(value, dict | list)]
    assert {name: getattr(read, name) for name in plain} == {name: body[name] for name in plain}
    assert [type(item).__name__ for item in read.output] == [TYPES[item["type"]] for item in body["output"]]


TYPES = {
    "message": "ResponseOutputMessage",
    "reasoning": "ResponseReasoningItem",
    "function_call": "ResponseFunctionToolCall",
    "custom_tool_call": "ResponseCustomToolCall",
}


@pytest.mark.parametrize("asked", NEWER)
@pytest.mark.parametrize("name", ["failed", *ENDS])
def test_each_event_is_one(asked: str, name: str) -> None:
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    last = ENDS[name] if name != "failed" else Failed("GenerationError", "no")
    begun = (Started(3), Delta(0, "", (), reasoning="h"), Delta(0, "x", (TOKEN,)))
    events = events_of(reply(stream=True, **NEWER[asked]), *begun, last)
    for event in events:
        read = reader.validate_python(event)
        assert read.type == event["type"]
        # The name of a function that is done: newer ones have it.
        assert {*event} <= {*type(read).model_fields, "name"}


def test_what_a_response_gave_is_read_as_vllm_reads_it() -> None:
    from openai.types.responses import Response
    from vllm.entrypoints.openai.responses.utils import construct_chat_messages_with_tool_call

    body = whole(reply(), Started(3), ALL)
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "5"}
        for item in body["output"]
        if item["type"] == "function_call"
    ]
    items: list[Any] = [*Response.model_validate(body).output, *outputs]
    theirs = [dict(message) for message in construct_chat_messages_with_tool_call(items)]
    ours = said(conversation([*body["output"], *outputs]))
    assert ours[0].pop("reasoning_content") == ours[0]["reasoning"]
    assert ours == theirs


def test_calls_of_all_kinds_are_read_as_vllm_reads_them() -> None:
    """vLLM 0.26 leaves calls of custom tools as they are."""
    from openai.types.responses import Response
    from vllm.entrypoints.openai.responses.utils import construct_chat_messages_with_tool_call

    body = whole(reply(**OF_KINDS), Started(3), ENDS["kinds"])
    theirs: list[Any] = [*construct_chat_messages_with_tool_call([*Response.model_validate(body).output])]
    unread = {item.name for item in theirs if not isinstance(item, dict)}
    calls = [call for message in theirs if isinstance(message, dict) for call in message["tool_calls"]]
    assert calls
    every = said(conversation(body["output"], **OF_KINDS))[0]["tool_calls"]
    ours = [call for call in every if call["function"]["name"] not in unread]
    assert [call["function"]["name"] for call in ours] == [call["function"]["name"] for call in calls]
    assert [json.loads(call["function"]["arguments"]) for call in ours] == [
        json.loads(call["function"]["arguments"]) for call in calls
    ]


def test_what_is_taken_vllm_takes() -> None:
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    for fields in ASKED.values():
        assert ResponsesRequest.model_validate({"input": "hi", **fields}).input == "hi"
