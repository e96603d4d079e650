"""Anthropic's requests: what the engine is asked for, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.anthropic.request import TABLE, parse_messages

from ...kit.answers.anthropic import ASKED, REASONING, SETTINGS, STRICT, TOOL, USER, call
from ...kit.api.dialects import receive
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import (
    Conversation,
    Generation,
    Message,
    Request,
    Response,
    Sampling,
    Settings,
    StructuredOutput,
)
from ...kit.rows import each_row


def generation(settings: Settings = SETTINGS, **fields: Any) -> Generation:
    (made,) = call(settings, **fields).generations
    return made


def conversation(settings: Settings = SETTINGS, **fields: Any) -> Conversation:
    prompt = generation(settings, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_messages({**ASKED, **fields}, Request(b""), STRICT)
    error = caught.value
    assert error.param
    assert error.message.startswith(error.param)
    return error


# --- What is asked for ---


def test_a_plain_request() -> None:
    made = generation()
    assert made == Generation(
        request_id="req-7",
        prompt=Conversation(messages=(Message("user", "hi"),)),
        sampling=Sampling(max_tokens=100),
    )
    # The answer ends at the context, as Anthropic's do.
    assert made.overflow == "clip"


@each_row(
    ("fields", "sampling"),
    [
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5}, Sampling(temperature=0.5, top_p=0.9, top_k=5)),
        ({"temperature": 2, "top_k": -1}, Sampling(temperature=2.0, top_k=0)),
        ({"stop_sequences": ["a", "b"]}, Sampling(stop=("a", "b"))),
        ({"stop_sequences": None, "temperature": None, "top_p": None}, Sampling()),
        ({"max_tokens": 5}, Sampling(max_tokens=5)),
    ],
)
def test_sampling(fields: dict[str, Any], sampling: Sampling) -> None:
    given = generation(**fields).sampling
    assert given == Sampling(**{
        name: getattr(sampling, name) for name in Sampling.__struct_fields__ if name != "max_tokens"
    }, max_tokens=fields.get("max_tokens", 100))  # fmt: skip


@each_row("stream", [True, False, None])
def test_a_stream(stream: bool | None) -> None:
    assert generation(stream=stream).stream is bool(stream)


ON = {"enable_thinking": True, "thinking": True}
OFF = {"enable_thinking": False, "thinking": False}


@each_row(
    ("thinking", "arguments", "shown"),
    [
        (None, {}, True),
        ({"type": "enabled", "budget_tokens": 1024}, {**ON, "thinking_budget": 1024}, True),
        ({"type": "adaptive", "display": "summarized"}, ON, True),
        ({"type": "adaptive", "display": "updates"}, ON, True),
        # Its blocks are there, without their text (reply.py).
        ({"type": "adaptive", "display": "omitted"}, ON, True),
        ({"type": "disabled"}, OFF, False),
        # "Thinking turned off" (Anthropic's client, types/thinking_types.py).
        ({"type": "between_tools"}, OFF, False),
    ],
)
def test_thinking(thinking: Any, arguments: dict[str, Any], shown: bool) -> None:
    made = conversation(REASONING, thinking=thinking)
    assert (made.template_arguments, made.include_reasoning) == (arguments, shown)
    # Without a reasoning parser the model is not told to think: it would be in the text.
    silent = {name: value for name, value in arguments.items() if value is not True}
    assert conversation(thinking=thinking).template_arguments == silent


@each_row(
    ("effort", "thinking", "shown"),
    [("none", None, False), ("low", None, True), ("none", {"type": "adaptive"}, True), (None, None, True)],
)
def test_an_effort_of_none_turns_thinking_off(effort: str | None, thinking: Any, shown: bool) -> None:
    """Unless `thinking` says something else."""
    made = conversation(REASONING, output_config={"effort": effort}, thinking=thinking)
    assert made.include_reasoning is shown


@each_row(
    ("effort", "thinking", "arguments"),
    [
        *((effort, None, {**ON, "reasoning_effort": effort}) for effort in ("xhigh", "max")),
        # What is said of thinking itself goes first.
        ("none", {"type": "enabled"}, {**ON, "reasoning_effort": "none"}),
        ("high", {"type": "disabled"}, {**OFF, "reasoning_effort": "high"}),
    ],
)  # fmt: skip
def test_efforts(effort: str, thinking: Any, arguments: dict[str, Any]) -> None:
    made = conversation(REASONING, thinking=thinking, output_config={"effort": effort})
    assert made.template_arguments == arguments


def test_output() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = generation(output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}})
    assert made.sampling.structured_output == StructuredOutput(
        json_schema='{"type":"object","properties":{"a":{"type":"integer"}}}'
    )
    assert isinstance(made.prompt, Conversation)
    assert made.prompt.template_arguments == {"reasoning_effort": "high"}
    assert conversation(output_config={"effort": None, "format": None}).template_arguments == {}


FORMAT: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {}}}}


@each_row(
    ("fields", "field"),
    [
        # By the name of its first beta.
        ({"output_format": FORMAT}, "output_format.schema"),
        ({"output_format": FORMAT, "output_config": {"effort": "low"}}, "output_format.schema"),
        ({"output_format": FORMAT, "output_config": {"format": FORMAT}}, "output_config.format.schema"),
        ({"output_format": None, "output_config": {"format": FORMAT}}, "output_config.format.schema"),
    ],
)
def test_output_by_its_former_name(fields: dict[str, Any], field: str) -> None:
    made = call(STRICT, **fields)
    guide = made.generations[0].sampling.structured_output
    assert guide == StructuredOutput(json_schema='{"type":"object","properties":{"a":{}}}')
    assert made.fields.name("sampling.structured_output") == field


def test_an_answer_that_goes_on() -> None:
    made = conversation(messages=[USER, {"role": "assistant", "content": "The"}])
    assert (made.continue_final_message, made.add_generation_prompt) == (True, False)


def test_tools_are_in_the_conversation() -> None:
    made = conversation(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert (len(made.tools), made.tool_choice, made.parallel_tool_calls) == (1, "auto", False)


IDLE: dict[str, Any] = {
    "model": "any", "metadata": {"user_id": "a"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"},
    "inference_geo": "us", "speed": "fast", "context_management": {"edits": []}, "anthropic_version": "a",
    "container": None, "mcp_servers": [], "thread": None,
}  # fmt: skip


@each_row("name", IDLE)
def test_what_changes_nothing(name: str) -> None:
    assert generation(STRICT, **{name: IDLE[name]}) == generation()


# --- What is refused ---


@each_row("value", [None, -1, "5", 5.5, True])
def test_max_tokens_is_needed(value: Any) -> None:
    assert refused(max_tokens=value).param == "max_tokens"


@each_row(
    ("fields", "kind", "place"),
    [
        ({"container": "a"}, UnsupportedError, "container"),
        ({"mcp_servers": [{"url": "a"}]}, UnsupportedError, "mcp_servers"),
        ({"thinking": {}}, PayloadError, "thinking.type"),
        ({"thinking": {"type": "often"}}, UnsupportedError, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, ParameterError, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "display": "all"}}, ParameterError, "thinking.display"),
        ({"thinking": {"type": "enabled", "budget": 5}}, UnsupportedError, "thinking.budget"),
        ({"output_config": {"effort": "some"}}, ParameterError, "output_config.effort"),
        ({"output_config": {"format": 5}}, PayloadError, "output_config.format"),
        ({"output_config": {"format": {"type": "regex"}}}, UnsupportedError, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, PayloadError, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, ParameterError,
         "output_config.format.schema"),
        ({"output_format": "json"}, PayloadError, "output_format"),
        ({"output_format": {"type": "json"}}, UnsupportedError, "output_format.type"),
        ({"output_format": {**FORMAT, "schema": {"a": 1}}, "output_config": {"format": FORMAT}}, ParameterError,
         "output_format"),
        ({"response_format": {"type": "json_object"}}, UnsupportedError, "response_format"),
        ({"output_config": {"task": 5}}, UnsupportedError, "output_config.task"),
    ],
)  # fmt: skip
def test_a_part_that_is_refused(fields: dict[str, Any], kind: type[RequestError], place: str) -> None:
    error = refused(**fields)
    assert (type(error), error.param) == (kind, place)


@each_row("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
@each_row("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_thread_is_refused_as_its_clients_know_it(thread: Any, path: str) -> None:
    """With a thread they send only the messages that are new; by this error, all (anthropic 2.13, lib/threads)."""
    body = json.dumps({**ASKED, "thread": thread}).encode()
    refusal = receive(Request(body, path=path, request_id="req-7"), SETTINGS)
    assert isinstance(refusal, Response)
    assert refusal.status == 400
    assert json.loads(refusal.body) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "thread: not supported, send the whole conversation without it",
            "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        },
        "request_id": "req-7",
    }


# --- Others' descriptions of it ---


@pytest.mark.engine
@pytest.mark.once
def test_every_field_of_others_is_known() -> None:
    """Those of vLLM's server, but for what connectors of caches have to do with, and of Anthropic's client."""
    from anthropic.types.message_count_tokens_params import MessageCountTokensParams
    from anthropic.types.message_create_params import MessageCreateParamsBase
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest

    known = {row.name for row in TABLE}
    theirs = {*AnthropicMessagesRequest.model_fields} - {"kv_transfer_params", "ec_transfer_params"}
    assert theirs <= known
    for params in (MessageCreateParamsBase, MessageCountTokensParams):
        assert {*params.__annotations__} <= known
