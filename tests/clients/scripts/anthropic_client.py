"""Anthropic's own Python client against a server: `python anthropic_client.py URL path|route '{"questions": {...}}'`.

It needs the package anthropic alone. The server serves the demo model, with the tool parser `hermes` and the reasoning
parser `qwen3`. `questions`: what the model is asked, by kind (tests/demo/answers.py, Question).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import anthropic
import httpx2
from anthropic import Anthropic, AsyncAnthropic
from checks import check, main

SYSTEM = "You are a helpful assistant."
ASKED: dict[str, Any] = {"model": "any", "max_tokens": 300, "extra_body": {"temperature": 0}}
"""The client has no arguments for sampling any more, but lets such fields through."""
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "integer"},
        "fields": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "born", "fields"],
    "additionalProperties": False,
}
"""What the answer of the kind `json` fits."""
Told = dict[str, Any]


def user(prompt: str) -> dict[str, Any]:
    return {"role": "user", "content": prompt}


def ask(told: Told, kind: str, **more: Any) -> dict[str, Any]:
    """The arguments of a call that asks a question."""
    return {**ASKED, "messages": [user(told["questions"][kind]["prompt"])], **more}


def tools_of(told: Told, kind: str) -> list[dict[str, Any]]:
    functions = [tool["function"] for tool in told["questions"][kind]["tools"]]
    return [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in functions
    ]


def calls_of(told: Told, kind: str) -> list[dict[str, Any]]:
    """The calls in an answer, which the model writes as Hermes does."""
    pieces = [piece.partition("</tool_call>")[0] for piece in told["questions"][kind]["answer"].split("<tool_call>")]
    return [json.loads(piece) for piece in pieces[1:]]


def called(message: Any) -> list[dict[str, Any]]:
    return [{"name": one.name, "arguments": one.input} for one in message.content if one.type == "tool_use"]


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def fails(kind: type[anthropic.APIStatusError], call: Any, **arguments: Any) -> anthropic.APIStatusError:
    """The error that a call raises, which is of `kind`."""
    raised: Exception | None = None
    try:
        call(**arguments)
    except anthropic.APIStatusError as error:
        raised = error
    assert isinstance(raised, kind), repr(raised)
    return raised


# --- Text ---


@check
def a_whole_message(client: Anthropic, told: Told) -> None:
    message = client.messages.create(**ask(told, "plain"))
    assert [block.type for block in message.content] == ["text"]
    assert text_of(message) == told["questions"]["plain"]["answer"]
    assert (message.type, message.role, message.model) == ("message", "assistant", "demo")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)


@check
def a_message_has_an_id_and_usage(client: Anthropic, told: Told) -> None:
    first, second = (client.messages.create(**ask(told, "plain")) for _ in range(2))
    assert re.fullmatch("msg_[0-9a-f]{32}", first.id)
    assert first.id != second.id
    for usage in (first.usage, second.usage):
        assert usage.input_tokens > 0
        assert usage.output_tokens > 5
        assert usage.cache_creation_input_tokens == 0
    totals = {one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in (first, second)}
    assert len(totals) == 1


@check
def a_cached_prompt_is_told(client: Anthropic, told: Told) -> None:
    asked = {**ASKED, "max_tokens": 1, "messages": [user("All of this is said twice. " * 20)]}
    first, second = (client.messages.create(**asked).usage for _ in range(2))
    assert second.cache_read_input_tokens
    assert second.cache_read_input_tokens >= 16
    totals = [usage.input_tokens + (usage.cache_read_input_tokens or 0) for usage in (first, second)]
    assert totals[0] == totals[1]


@check
def a_system_prompt_as_text_and_as_blocks(client: Anthropic, told: Told) -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=00000;"},
        {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}},
    ]
    messages = [client.messages.create(**ask(told, "plain", system=system)) for system in (SYSTEM, blocks)]
    assert {text_of(message) for message in messages} == {told["questions"]["plain"]["answer"]}
    totals = {one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in messages}
    assert len(totals) == 1


@check
def several_turns(client: Anthropic, told: Told) -> None:
    capital = "What is the capital of France?"
    messages: list[Any] = [user(capital)]
    answer = client.messages.create(**{**ASKED, "messages": messages})
    messages.append({"role": "assistant", "content": answer.content})
    messages.append({"role": "user", "content": [{"type": "text", "text": told["questions"]["plain"]["prompt"]}]})
    answer = client.messages.create(**{**ASKED, "messages": messages})
    assert text_of(answer) == told["questions"]["plain"]["answer"]


@check
def an_answer_that_goes_on(client: Anthropic, told: Told) -> None:
    begun = "The capital of"
    messages: list[Any] = [user("What is the capital of France?"), {"role": "assistant", "content": begun}]
    answer = client.messages.create(**{**ASKED, "messages": messages})
    assert begun + text_of(answer) == "The capital of France is Paris."


@check
def a_stop_sequence(client: Anthropic, told: Told) -> None:
    asked = ask(told, "plain", stop_sequences=["never", " neural"])
    before = told["questions"]["plain"]["answer"].partition(" neural")[0]
    message = client.messages.create(**asked)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " neural")
    assert text_of(message) == before
    with client.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence, text_of(final)) == ("stop_sequence", " neural", before)


# --- Streams ---


@check
def events_come_in_order(client: Anthropic, told: Told) -> None:
    events = list(client.messages.create(**ask(told, "plain"), stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert deltas > 5
    expected = ["message_start", "content_block_start", *["content_block_delta"] * deltas]
    assert kinds == [*expected, "content_block_stop", "message_delta", "message_stop"]
    start, ended = events[0], events[-2]
    assert start.type == "message_start"
    assert re.fullmatch("msg_[0-9a-f]{32}", start.message.id)
    assert start.message.stop_reason is None
    assert start.message.usage.input_tokens + (start.message.usage.cache_read_input_tokens or 0) > 0
    assert ended.type == "message_delta"
    assert (ended.delta.stop_reason, ended.usage.output_tokens > 5) == ("end_turn", True)


@check
def a_stream_is_the_whole_message(client: Anthropic, told: Told) -> None:
    for kind in ("unicode", "long", "json"):
        whole = client.messages.create(**ask(told, kind))
        with client.messages.stream(**ask(told, kind)) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        assert "".join(pieces) == text_of(final) == text_of(whole) == told["questions"][kind]["answer"]
        assert final.usage.output_tokens == whole.usage.output_tokens
        assert final.stop_reason == whole.stop_reason


@check
def raw_events_have_names_and_a_ping(client: Anthropic, told: Told) -> None:
    with client.messages.with_streaming_response.create(**ask(told, "plain"), stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = list(response.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    types = [json.loads(line.removeprefix("data: "))["type"] for line in lines if line.startswith("data: ")]
    assert names == types
    assert names[:2] == ["message_start", "ping"]
    assert not any("[DONE]" in line for line in lines)


# --- Tools ---


@check
def a_tool_call(client: Anthropic, told: Told) -> None:
    message = client.messages.create(**ask(told, "tool_call", tools=tools_of(told, "tool_call")))
    assert message.stop_reason == "tool_use"
    assert called(message) == calls_of(told, "tool_call")
    assert all(re.fullmatch("toolu_[A-Za-z0-9_-]+", one.id) for one in message.content if one.type == "tool_use")


@check
def tool_calls_streamed(client: Anthropic, told: Told) -> None:
    kind = "parallel_tool_calls"
    partial = ""
    with client.messages.stream(**ask(told, kind, tools=tools_of(told, kind))) as stream:
        for event in stream:
            if event.type == "input_json":
                partial += event.partial_json
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert called(final) == calls_of(told, kind)
    assert [block.type for block in final.content] == ["tool_use", "tool_use"]
    assert "".join(partial.split()) == "".join(
        "".join(json.dumps(call["arguments"]).split()) for call in calls_of(told, kind)
    )
    whole = client.messages.create(**ask(told, kind, tools=tools_of(told, kind)))
    assert called(whole) == called(final)
    assert [block.type for block in whole.content] == [block.type for block in final.content]
    assert len({block.id for block in final.content if block.type == "tool_use"}) == 2


@check
def one_call_where_several_are_disabled(client: Anthropic, told: Told) -> None:
    kind = "parallel_tool_calls"
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = client.messages.create(**ask(told, kind, tools=tools_of(told, kind), tool_choice=choice))
    assert called(message) == calls_of(told, kind)[:1]


@check
def tool_choices(client: Anthropic, told: Told) -> None:
    # The model writes calls in another form than the one that is forced: what it says must end by its schema.
    city = {"type": "string", "enum": ["Paris", "Rome"]}
    schema = {"type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": False}
    tools = [{"name": "get_weather", "description": "The weather in a city", "input_schema": schema}]
    for choice in ({"type": "any"}, {"type": "tool", "name": tools[0]["name"]}):
        message = client.messages.create(**ask(told, "tool_call", tools=tools, tool_choice=choice))
        # With `any` it may go on to call until its tokens are spent.
        call, *_ = called(message)
        assert call["name"] == tools[0]["name"]
        assert call["arguments"]["city"] in city["enum"]
        assert message.stop_reason in ("tool_use", "max_tokens")
    tools = tools_of(told, "tool_call")
    message = client.messages.create(**ask(told, "plain", tools=tools, tool_choice={"type": "none"}))
    assert text_of(message) == told["questions"]["plain"]["answer"]


# --- Thinking, structured output ---


def thought_of(told: Told) -> str:
    thought, _, _ = told["questions"]["reasoning"]["answer"].partition("</think>")
    return str(thought.removeprefix("<think>"))


@check
def thinking_is_shown(client: Anthropic, told: Told) -> None:
    asked = ask(told, "reasoning", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024})
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    for message in (whole, final):
        thinking, text = message.content
        assert thinking.type == "thinking"
        assert thinking.thinking.strip() == thought_of(told).strip()
        assert thinking.signature
        assert text.type == "text"
        assert text.text.strip() == told["questions"]["reasoning"]["no_thinking"]
    details = whole.usage.output_tokens_details
    assert details
    assert details.thinking_tokens > 10


@check
def thinking_is_disabled(client: Anthropic, told: Told) -> None:
    message = client.messages.create(**ask(told, "reasoning", thinking={"type": "disabled"}))
    assert [block.type for block in message.content] == ["text"]
    assert text_of(message) == told["questions"]["reasoning"]["no_thinking"]


@check
def structured_output(client: Anthropic, told: Told) -> None:
    config = {"format": {"type": "json_schema", "schema": PERSON}}
    message = client.messages.create(**ask(told, "json", output_config=config))
    assert set(json.loads(text_of(message))) == set(PERSON["properties"])


# --- Prompts alone ---


@check
def a_prompt_alone(client: Anthropic, told: Told) -> None:
    asked = ask(told, "plain", max_tokens=0)
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert (message.content, message.stop_reason, message.usage.output_tokens) == ([], "max_tokens", 0)


# --- Counting ---


@check
def counted_tokens_are_those_of_the_prompt(client: Anthropic, told: Told) -> None:
    tools = tools_of(told, "tool_call")
    for more in ({}, {"system": SYSTEM}, {"tools": tools}, {"thinking": {"type": "disabled"}}):
        asked = ask(told, "tool_call", **more)
        counted = client.messages.count_tokens(
            **{name: asked[name] for name in asked if name not in ("max_tokens", "extra_body")}
        )
        usage = client.messages.create(**asked).usage
        assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0


# --- Errors, headers, clients ---


@check
def a_prompt_that_is_too_long(client: Anthropic, told: Told) -> None:
    asked = {**ASKED, "messages": [user("again and " * 3000)]}
    for more in ({}, {"stream": True}):
        error = fails(anthropic.BadRequestError, client.messages.create, **asked, **more)
        # What Claude Code looks for, and reads both numbers of.
        found = re.search(r"messages: prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", str(error))
        assert found
        assert int(found[1]) > int(found[2])


@check
def an_errors_body(client: Anthropic, told: Told) -> None:
    error = fails(
        anthropic.BadRequestError, client.messages.create, **ask(told, "plain", extra_body={"temperature": 9})
    )
    body: Any = error.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert "temperature" in body["error"]["message"]
    assert body["request_id"] == error.response.headers["request-id"]


@check
def headers_of_a_response(client: Anthropic, told: Told) -> None:
    response = client.messages.with_raw_response.create(**ask(told, "plain"), extra_headers={"anthropic-beta": "a"})
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["request-id"]
    assert response.parse()._request_id == response.headers["request-id"]


@check
def the_client_of_betas(client: Anthropic, told: Told) -> None:
    message = client.beta.messages.create(**ask(told, "plain"), betas=["context-management-2025-06-27"])
    assert text_of(message) == told["questions"]["plain"]["answer"]


async def _to_invocations(request: Any) -> None:
    request.headers["X-Amzn-SageMaker-Custom-Attributes"] = f"route={request.url.raw_path.decode()}"
    request.url = request.url.copy_with(raw_path=b"/invocations")


@check
def the_asynchronous_client(client: Anthropic, told: Told) -> None:
    hooks = {"request": [_to_invocations]} if sys.argv[2] == "route" else {}
    answer = told["questions"]["plain"]["answer"]

    async def several() -> None:
        http = httpx2.AsyncClient(event_hooks=hooks, timeout=120)
        async with AsyncAnthropic(base_url=sys.argv[1], api_key="none", max_retries=0, http_client=http) as made:
            messages = await asyncio.gather(*(made.messages.create(**ask(told, "plain")) for _ in range(3)))
            assert {text_of(message) for message in messages} == {answer}
            async with made.messages.stream(**ask(told, "plain")) as stream:
                assert "".join([piece async for piece in stream.text_stream]) == answer

    asyncio.run(several())


if __name__ == "__main__":
    main(lambda url, http: Anthropic(base_url=url, api_key="none", max_retries=0, http_client=http), httpx2)
