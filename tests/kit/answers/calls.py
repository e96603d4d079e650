"""Tool calls in the dialects that have them: how a request offers and forces a tool, and the calls of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .anthropic import joined
from .events import JoinedCall, join_calls

__all__ = ["ASKED", "CALLING", "Answered", "Calling", "legacy", "streamed_legacy"]


@dataclass
class Answered:
    """What came: the calls, with their arguments as text, other text, why the answer ended, and what was thought."""

    calls: list[JoinedCall]
    text: str
    ended: str
    reasoning: str = ""


@dataclass(frozen=True)
class Calling:
    """A dialect with tools.

    tool: a function with its schema, as the dialect has it, and with what more is said of it (`strict`).
    choices: what the dialect says for auto, required, and a name.
    fields: what else a request must have.
    cut: the name of the field for the most tokens.
    read: a whole answer's and a stream's records.
    finished: the words for an answer of calls that has ended, and for one that was cut off.
    """

    dialect: str
    tool: Callable[..., Mapping[str, Any]]
    choices: Callable[[str, str], Mapping[str, Any]]
    fields: Mapping[str, Any]
    cut: str
    whole: Callable[[list[bytes]], Answered]
    stream: Callable[[list[bytes]], Answered]
    finished: tuple[str, str]

    def body(self, kind: str, tools: Iterable[Mapping[str, Any]], name: str = "", **more: Any) -> dict[str, Any]:
        """A request that offers tools; `kind` is auto, required or named, with `name` what is named."""
        return {**self.fields, "tools": [*tools], **self.choices(kind, name), **more}


def function(name: str, schema: Mapping[str, Any] | None, **more: Any) -> Mapping[str, Any]:
    made = {"name": name} if schema is None else {"name": name, "parameters": schema}
    return {"type": "function", "function": {**made, **more}}


def records(given: list[bytes]) -> list[Any]:
    lines = [line for record in given for line in record.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def whole_chat(given: list[bytes]) -> Answered:
    (choice,) = json.loads(b"".join(given))["choices"]
    message = choice["message"]
    calls = message.get("tool_calls") or ()
    made = [JoinedCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return Answered(made, message["content"] or "", choice["finish_reason"], message.get("reasoning") or "")


def streamed_chat(given: list[bytes]) -> Answered:
    choices = [choice for chunk in records(given) for choice in chunk["choices"]]
    deltas = [choice["delta"] for choice in choices]
    calls = join_calls(
        (call["index"], call.get("id"), call["function"].get("name"), call["function"]["arguments"])
        for delta in deltas
        for call in delta.get("tool_calls") or ()
    )
    (ended,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    text, reasoning = ("".join(delta.get(name) or "" for delta in deltas) for name in ("content", "reasoning"))
    return Answered(calls, text, ended, reasoning)


def legacy(given: list[bytes]) -> Answered:
    """The deprecated form: one call, without an id."""
    (choice,) = json.loads(b"".join(given))["choices"]
    message, call = choice["message"], choice["message"]["function_call"]
    return Answered(
        [JoinedCall("-", call["name"], call["arguments"])], message["content"] or "", choice["finish_reason"]
    )


def streamed_legacy(given: list[bytes]) -> Answered:
    choices = [choice for chunk in records(given) for choice in chunk["choices"]]
    found = [choice["delta"]["function_call"] for choice in choices if choice["delta"].get("function_call")]
    (call,) = join_calls((0, None, part.get("name"), part["arguments"]) for part in found)
    call.id = "-"
    (ended,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return Answered([call], "".join(choice["delta"].get("content") or "" for choice in choices), ended)


def anthropic(message: Any) -> Answered:
    blocks = message["content"]
    calls = [
        JoinedCall(block["id"], block["name"], json.dumps(block["input"]))
        for block in blocks
        if block["type"] == "tool_use"
    ]
    text, reasoning = (
        "".join(block[kind] for block in blocks if block["type"] == kind) for kind in ("text", "thinking")
    )
    return Answered(calls, text, message["stop_reason"], reasoning)


def responses(body: Any) -> Answered:
    items = body["output"]
    calls = [
        JoinedCall(item["call_id"], item["name"], item["arguments"])
        for item in items
        if item["type"] == "function_call"
    ]
    text, reasoning = (
        "".join(part["text"] for item in items if item["type"] == kind for part in item["content"])
        for kind in ("message", "reasoning")
    )
    return Answered(calls, text, body["status"], reasoning)


def streamed_responses(given: list[bytes]) -> Answered:
    events = records(given)
    found = responses(events[-1]["response"])
    deltas: dict[str, dict[str, str]] = {"output_text": {}, "reasoning_text": {}, "function_call_arguments": {}}
    for event in events:
        _, kind, *end = event["type"].split(".")
        if kind in deltas and end == ["delta"]:
            pieces = deltas[kind]
            pieces[event["item_id"]] = pieces.get(event["item_id"], "") + event["delta"]
    assert [*deltas["function_call_arguments"].values()] == [call.text for call in found.calls if call.text]
    texts = ["".join(deltas[kind].values()) for kind in ("output_text", "reasoning_text")]
    assert texts == [found.text, found.reasoning]
    return found


def openai_choice(kind: str, name: str) -> Mapping[str, Any]:
    return {"tool_choice": {"type": "function", "function": {"name": name}} if kind == "named" else kind}


def anthropic_choice(kind: str, name: str) -> Mapping[str, Any]:
    if kind == "named":
        return {"tool_choice": {"type": "tool", "name": name}}
    return {"tool_choice": {"type": "any" if kind == "required" else kind}}


def responses_choice(kind: str, name: str) -> Mapping[str, Any]:
    return {"tool_choice": {"type": "function", "name": name} if kind == "named" else kind}


ASKED: Mapping[str, Any] = {"messages": [{"role": "user", "content": "Go."}]}
WORDS = ("tool_calls", "length")

CALLING = {
    "openai": Calling("openai", function, openai_choice, ASKED, "max_tokens", whole_chat, streamed_chat, WORDS),
    "azure": Calling("azure", function, openai_choice, ASKED, "max_tokens", whole_chat, streamed_chat, WORDS),
    "responses": Calling(
        "responses",
        lambda name, schema, **more: {"type": "function", "name": name, "parameters": schema, **more},
        responses_choice,
        {"input": "Go."},
        "max_output_tokens",
        lambda given: responses(json.loads(b"".join(given))),
        streamed_responses,
        ("completed", "incomplete"),
    ),
    "anthropic": Calling(
        "anthropic",
        lambda name, schema, **more: {"name": name, "input_schema": schema or {"type": "object"}, **more},
        anthropic_choice,
        {**ASKED, "max_tokens": 1000},
        "max_tokens",
        lambda given: anthropic(json.loads(b"".join(given))),
        lambda given: anthropic(joined(records(given))),
        ("tool_use", "max_tokens"),
    ),
}
"""By the dialect's name."""
