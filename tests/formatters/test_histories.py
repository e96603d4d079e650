"""Histories as clients send them back: what a model has written, whatever it is, and tools that gave nothing.

The same in each dialect that has conversations: {role, content, calls} as templates take them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..kit.api.dialects import DIALECTS, receive
from ..kit.api.options import typed_settings
from ..kit.api.types import Conversation, ParsedRequest, Request, Response

SETTINGS = typed_settings(tool_call_parser="hermes")
ABSENT: Any = object()


def openai(arguments: Any, result: Any, content: Any) -> dict[str, Any]:
    call = {"id": "call_00001", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assistant = {"role": "assistant", "content": content, "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": "call_00001", "content": result}
    for message in (assistant, answered):
        if message["content"] is ABSENT:
            del message["content"]
    return {"messages": [{"role": "user", "content": "Go."}, assistant, answered]}


def responses(arguments: Any, result: Any, content: Any) -> dict[str, Any]:
    answered = {"type": "function_call_output", "call_id": "call_00001", "output": result}
    if result is ABSENT:
        del answered["output"]
    said = [] if content is ABSENT else [{"role": "assistant", "content": content}]
    call = {"type": "function_call", "call_id": "call_00001", "name": "f", "arguments": arguments}
    return {"input": [{"role": "user", "content": "Go."}, *said, call, answered]}


def anthropic(arguments: Any, result: Any, content: Any) -> dict[str, Any]:
    """Its arguments are an object on the wire, and its assistant's content has the calls in it."""
    answered = {"type": "tool_result", "tool_use_id": "call_00001", "content": result}
    if result is ABSENT:
        del answered["content"]
    call = {"type": "tool_use", "id": "call_00001", "name": "f", "input": arguments}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answered]}]
    # One that says nothing stands before it.
    said = [] if content is ABSENT else [{"role": "assistant", "content": content}]
    return {"max_tokens": 5, "messages": [{"role": "user", "content": "Go."}, *said, *turns]}


BODIES: dict[str, tuple[str, Callable[[Any, Any, Any], dict[str, Any]]]] = {
    "openai": ("/v1/chat/completions", openai),
    "azure": ("/chat/completions", openai),
    "responses": ("/v1/responses", responses),
    "anthropic": ("/v1/messages", anthropic),
}
WITHOUT_CALLS = {"lmi", "tgi", "dynamic", "minimal", "rerank", "tokens"}
"""Dialects whose conversations have no calls, or that have none."""


def test_every_dialect_is_tried() -> None:
    assert {known.NAME for known in DIALECTS} - WITHOUT_CALLS == set(BODIES)


def asked(name: str, arguments: Any = ABSENT, result: Any = "done", content: Any = ABSENT) -> list[dict[str, Any]]:
    """The messages that the request becomes."""
    path, body = BODIES[name]
    usual = {} if name == "anthropic" else "{}"
    given = body(usual if arguments is ABSENT else arguments, result, content)
    query = {"api-version": "2024-05-01-preview"} if name == "azure" else {}
    opened = receive(Request(json.dumps(given).encode(), path=path, query=query), SETTINGS)
    assert isinstance(opened, ParsedRequest), isinstance(opened, Response) and opened.body
    (generation,) = opened.generations
    assert isinstance(generation.prompt, Conversation)
    return list(generation.prompt.messages)


# What a model has written that was cut off, or is no object; what templates get in its place.
ARGUMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "an object": ('{"city": "Paris"}', {"city": "Paris"}),
    "nothing": ("", {}),
    "blanks": (" \n", {}),
    "cut off in a string": ('{"city": "Par', {"arguments": '{"city": "Par'}),
    "cut off at once": ("{", {"arguments": "{"}),
    "a list": ("[1, 2]", {"arguments": "[1, 2]"}),
    "a string": ('"Paris"', {"arguments": '"Paris"'}),
    "a number": ("5", {"arguments": "5"}),
    "null": ("null", {"arguments": "null"}),
    "no JSON": ("city=Paris", {"arguments": "city=Paris"}),
    "two objects": ('{"a": 1}{"b": 2}', {"arguments": '{"a": 1}{"b": 2}'}),
    "an object that is no text": ({"city": "Paris"}, {"city": "Paris"}),
}


@pytest.mark.parametrize(("given", "taken"), ARGUMENTS.values(), ids=[*ARGUMENTS])
@pytest.mark.parametrize("name", [name for name in BODIES if name != "anthropic"])
def test_any_arguments_can_be_sent_back(name: str, given: Any, taken: dict[str, Any]) -> None:
    assistant = asked(name, arguments=given)[1]
    (call,) = assistant["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == taken


@pytest.mark.parametrize("result", ["", [], None, ABSENT], ids=["empty", "no parts", "null", "absent"])
@pytest.mark.parametrize("name", BODIES)
def test_a_tool_may_give_nothing(name: str, result: Any) -> None:
    answered = asked(name, result=result)[-1]
    assert (answered["role"], answered["content"]) == ("tool", "")


@pytest.mark.parametrize("content", ["", [], None, ABSENT], ids=["empty", "no parts", "null", "absent"])
@pytest.mark.parametrize("name", BODIES)
def test_an_assistant_may_only_call(name: str, content: Any) -> None:
    user, assistant, answered = asked(name, content=content)
    assert (user["role"], assistant["role"], answered["role"]) == ("user", "assistant", "tool")
    assert not assistant.get("content")
    assert len(assistant["tool_calls"]) == 1
