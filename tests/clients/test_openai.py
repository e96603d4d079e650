"""OpenAI's own Python client against the local server; behind DJL: tests/hosts/apis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from ..demo.model import JSON_SCHEMA, question
from ..kit.answers.events import join_calls
from ..kit.engines.backends import PICK
from ..kit.hosts.host import Host

pytestmark = pytest.mark.engine


@pytest.fixture
def client(chat_server: Host) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{chat_server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def user(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


def test_a_whole_answer(client: openai.OpenAI) -> None:
    asked = question("unicode")
    answer = client.chat.completions.create(model="any", messages=user(asked.prompt), temperature=0)
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "demo"
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == (asked.answer, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream(client: openai.OpenAI, usage: bool) -> None:
    asked = question("unicode")
    options: Any = {"include_usage": True} if usage else None
    chunks = list(
        client.chat.completions.create(
            model="any", messages=user(asked.prompt), temperature=0, stream=True, stream_options=options
        )
    )
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == asked.answer
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    if usage:
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
    else:
        assert all(chunk.usage is None for chunk in chunks)


def test_logprobs_join_to_the_bytes_of_the_message(client: openai.OpenAI) -> None:
    asked = question("unicode")
    request: Any = {"model": "any", "messages": user(asked.prompt), "temperature": 0, "logprobs": True}
    whole = client.chat.completions.create(**request, top_logprobs=3)
    streamed = list(client.chat.completions.create(**request, top_logprobs=3, stream=True))
    assert whole.choices[0].logprobs is not None
    entries = whole.choices[0].logprobs.content or []
    assert bytes(byte for entry in entries for byte in entry.bytes or []).decode() == asked.answer
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    pieces = [
        entry
        for chunk in streamed
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert [(entry.token, entry.bytes) for entry in pieces] == [(entry.token, entry.bytes) for entry in entries]


def test_parallel_tool_calls(client: openai.OpenAI) -> None:
    asked = question("parallel_tool_calls")
    request: Any = {"model": "any", "messages": user(asked.prompt), "tools": asked.tools, "temperature": 0}
    whole = client.chat.completions.create(**request).choices[0]
    assert whole.finish_reason == "tool_calls"
    calls = [
        (call.function.name, json.loads(call.function.arguments))
        for call in whole.message.tool_calls or []
        if call.type == "function"
    ]
    assert len(calls) == 2
    choices = [chunk.choices[0] for chunk in client.chat.completions.create(**request, stream=True)]
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["tool_calls"]
    deltas = [(call, call.function) for choice in choices for call in choice.delta.tool_calls or []]
    streamed = join_calls(
        (call.index, call.id, function.name, function.arguments) for call, function in deltas if function is not None
    )
    assert [(call.name, call.arguments) for call in streamed] == calls
    assert len({call.id for call in streamed}) == 2


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "pick"}}], ids=["required", "named"]
)
def test_a_call_that_must_be_made(client: openai.OpenAI, choice: Any) -> None:
    answer = client.chat.completions.create(
        model="any",
        messages=user(question("plain").prompt),
        tools=[PICK],
        tool_choice=choice,
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=80,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "pick"
    assert json.loads(call.function.arguments)["city"] in {"Paris", "Rome"}


def test_reasoning_comes_first(client: openai.OpenAI) -> None:
    asked = question("reasoning")
    request: Any = {"model": "any", "messages": user(asked.prompt), "temperature": 0}
    message = client.chat.completions.create(**request).choices[0].message
    reasoning = getattr(message, "reasoning", "")
    assert getattr(message, "reasoning_content", "") == reasoning
    assert f"<think>{reasoning}</think>{message.content}" == asked.answer
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**request, stream=True)]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "".join(thoughts) == reasoning
    assert "".join(delta.content or "" for delta in deltas) == message.content
    last_thought = max(index for index, thought in enumerate(thoughts) if thought)
    assert not any(delta.content for delta in deltas[:last_thought])


class Person(BaseModel):
    name: str
    born: int
    fields: list[str]


def test_structured_output_is_parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="any", messages=user(question("json").prompt), response_format=Person, temperature=0
    )
    # How JSON is spaced under a schema differs between vLLM's versions and may lead the model off what it was taught.
    assert isinstance(answer.choices[0].message.parsed, Person)
    assert set(JSON_SCHEMA["properties"]) == set(Person.model_fields)


def test_text_completions(client: openai.OpenAI) -> None:
    asked = [question("plain"), question("unicode")]
    request: Any = {"model": "any", "prompt": [one.prompt for one in asked], "max_tokens": 200, "temperature": 0}
    whole = client.completions.create(**request)
    assert whole.id.startswith("cmpl-")
    assert [choice.text for choice in whole.choices] == [one.answer for one in asked]
    streamed = ["", ""]
    for chunk in client.completions.create(**request, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [one.answer for one in asked]


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"temperature": -1}, "temperature"), ({"extra_body": {"guided_regex": "("}}, "guided_regex")],
    ids=["in the dialect", "in the engine's process"],
)
def test_what_is_wrong_is_a_bad_request(client: openai.OpenAI, fields: dict[str, Any], named: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=named):
            client.chat.completions.create(model="any", messages=user("Hello"), stream=stream, **fields)
