"""OpenAI's own Python client against the local server, and through /invocations against the real DJL engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from ..demo.model import JSON_SCHEMA, QUESTIONS, question
from ..kit.answers.events import join_calls
from ..kit.engines.backends import PICK
from ..kit.hosts.host import Host, Server

pytestmark = [pytest.mark.engine, pytest.mark.djl]


def to_invocations(request: Any) -> None:
    """Sends what the client posts to /invocations, as a caller of an endpoint does, whatever its path is."""
    request.url = request.url.copy_with(path="/invocations")


@pytest.fixture
def client(host: Host) -> Iterator[openai.OpenAI]:
    hooks = [] if isinstance(host, Server) else [to_invocations]
    with openai.DefaultHttpxClient(event_hooks={"request": hooks}, timeout=60) as http:
        yield openai.OpenAI(base_url=f"{host.url}/v1", api_key="none", http_client=http, max_retries=0)


def user(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    "asked", [one for one in QUESTIONS if one.kind in {"plain", "unicode"}], ids=lambda one: one.prompt
)
def test_a_whole_answer(client: openai.OpenAI, asked: Any) -> None:
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


def test_structured_output_streamed_is_that_of_the_whole_answer(client: openai.OpenAI) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": JSON_SCHEMA, "strict": True}}
    request: Any = {"model": "any", "messages": user(question("json").prompt), "response_format": schema}
    whole = client.chat.completions.create(**request, temperature=0).choices[0].message.content or ""
    chunks = client.chat.completions.create(**request, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    jsonschema.validate(json.loads(whole), JSON_SCHEMA)


def test_an_empty_model_is_served(client: openai.OpenAI) -> None:
    """As SageMaker's own OpenAI route passes it on."""
    asked = question("plain")
    request: Any = {"model": "", "messages": user(asked.prompt), "temperature": 0}
    answer = client.chat.completions.create(**request)
    assert (answer.model, answer.choices[0].message.content) == ("demo", asked.answer)
    chunks = [*client.chat.completions.create(**request, stream=True)]
    assert {chunk.model for chunk in chunks} == {"demo"}
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == asked.answer


def test_cached_and_reasoning_tokens_are_told(client: openai.OpenAI) -> None:
    request: Any = {"model": "any", "temperature": 0, "messages": user("word " * 400 + question("plain").prompt)}
    _, usage = [client.chat.completions.create(**request, max_tokens=2).usage for _ in range(2)]
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert 0 < (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens
    request = {"model": "any", "temperature": 0, "messages": user(question("reasoning").prompt)}
    whole = client.chat.completions.create(**request).usage
    *_, last = client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
    for told in (whole, last.usage):
        assert told is not None
        assert told.completion_tokens_details is not None
        assert 0 < (told.completion_tokens_details.reasoning_tokens or 0) < told.completion_tokens


def test_functions_are_answered_in_kind(client: openai.OpenAI) -> None:
    """The deprecated fields."""
    asked = question("tool_call")
    functions: Any = [tool["function"] for tool in asked.tools or ()]
    request: Any = {"model": "any", "messages": user(asked.prompt), "functions": functions, "temperature": 0}
    whole = client.chat.completions.create(**request).choices[0]
    assert (whole.finish_reason, whole.message.tool_calls or []) == ("function_call", [])
    assert whole.message.function_call is not None
    choices = [chunk.choices[0] for chunk in client.chat.completions.create(**request, stream=True)]
    parts = [choice.delta.function_call for choice in choices if choice.delta.function_call]
    assert "".join(part.name or "" for part in parts) == whole.message.function_call.name
    assert "".join(part.arguments or "" for part in parts) == whole.message.function_call.arguments
    assert json.loads(whole.message.function_call.arguments)
    assert choices[-1].finish_reason == "function_call"


def test_three_choices(client: openai.OpenAI) -> None:
    request: Any = {"model": "any", "messages": user("Tell me"), "n": 3, "seed": 5, "temperature": 2, "max_tokens": 20}
    whole = client.chat.completions.create(**request)
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


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


def test_the_best_of_several(client: openai.OpenAI) -> None:
    """The likeliest of the sequences that n gives, likeliest first; all of them are counted."""
    request: Any = {"model": "any", "prompt": "Tell me", "seed": 5, "temperature": 2, "max_tokens": 12}
    # So that every token is in the text, and has an entry.
    shown: Any = {"extra_body": {"ignore_eos": True, "skip_special_tokens": False}}
    every = client.completions.create(**request, **shown, n=5, logprobs=0)
    likelihood = [
        sum(logprob for logprob in (choice.logprobs.token_logprobs or []) if logprob is not None)
        for choice in every.choices
        if choice.logprobs is not None
    ]
    best = sorted(range(5), key=lambda index: -likelihood[index])[:2]
    chosen = client.completions.create(**request, **shown, n=2, best_of=5)
    assert [choice.text for choice in chosen.choices] == [every.choices[index].text for index in best]
    assert [(choice.index, choice.logprobs) for choice in chosen.choices] == [(0, None), (1, None)]
    assert chosen.usage is not None
    assert every.usage is not None
    assert chosen.usage.completion_tokens == every.usage.completion_tokens
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**request, n=2, best_of=5, stream=True)
    assert "best_of" in caught.value.response.text


NONSENSE = {"name": "x", "schema": {"type": "nonsense"}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
    ({"max_tokens": 5000}, "max_tokens"),
    ({"messages": [{"role": "user"}]}, "messages[0]"),
    (
        {"response_format": {"type": "json_schema", "json_schema": NONSENSE}},
        "response_format.json_schema.schema",
    ),
    ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
    ({"extra_body": {"structured_outputs": {"grammar": "root ::= ("}}}, "structured_outputs.grammar"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fields", "named"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_wrong_is_a_bad_request(
    client: openai.OpenAI, fields: dict[str, Any], named: str, stream: bool
) -> None:
    request = {"model": "any", "messages": user("Hello"), "stream": stream, **fields}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request)
    # Java's body for errors is {"error": "...", "code": 400}, in which the client finds no message.
    assert named in caught.value.response.text
