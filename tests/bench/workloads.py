"""What the bench asks for, and how an answer's tokens and text are read.

A workload is one dialect's request, streamed or whole, for exactly so many tokens; every request has a prompt of its
own, so that none finds another's in the prefix cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["ALL", "CHAT_STREAM", "TOKEN", "WORKLOADS", "Workload", "other_form", "prompts"]

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request."""

    name: str
    dialect: str
    stream: bool
    logprobs: bool
    """Whether the answer shows log-probabilities, which the engine alone must then compute too."""
    body: Callable[[str, int], Body]
    mark: re.Pattern[bytes]
    """What is found exactly once in every record that brings text."""
    tokens: Callable[[bytes, int], int]
    """How many tokens a body says it has, given how many it should have; anything that is no such answer has none."""
    text: Callable[[bytes], str]
    """All text in it."""
    counts: bool = False
    """Whether every token has a record of its own, so that none needs a reference to be counted."""
    path: str = ""
    """Below a URL that ends with /v1, where servers of OpenAI's API have one path for each form."""
    adapters: tuple[str, ...] = ()
    """Those that requests name in turn; none: they name none."""

    def request(self, number: int, prompt: str, tokens: int) -> Body:
        """The body of request `number`."""
        body = self.body(prompt, tokens)
        return body | {"adapters": self.adapters[number % len(self.adapters)]} if self.adapters else body


def prompts(number: int, first: int = 0, words: int = 0) -> list[str]:
    """So many prompts of the same length that differ from their first token on, each with so many words more."""
    more = " one" * words
    return [f"{index:06d} is a number. Count up from it.{more}" for index in range(first, first + number)]


def _lmi(prompt: str, tokens: int, stream: bool) -> Body:
    parameters = {"max_new_tokens": tokens, "do_sample": False, "ignore_eos_token": True, "details": stream}
    return {"inputs": prompt, "parameters": parameters, "stream": stream}


def _chat(prompt: str, tokens: int, stream: bool) -> Body:
    asked: Body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    return {**asked, "stream_options": {"include_usage": True}} if stream else asked


def _tools(prompt: str, tokens: int, stream: bool) -> Body:
    schema = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    function = {"name": "count", "description": "Counts up from a number.", "parameters": schema}
    return {**_chat(prompt, tokens, stream), "tools": [{"type": "function", "function": function}]}


def _thinking(prompt: str, tokens: int, stream: bool) -> Body:
    """Without the end of a message, which parsers take for the end of the reasoning, too."""
    return {**_chat(prompt, tokens, stream), "ignore_eos": False, "min_tokens": tokens}


def _text(prompt: str, tokens: int, stream: bool) -> Body:
    asked: Body = {
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    return {**asked, "stream_options": {"include_usage": True}} if stream else asked


def _documents(body: bytes) -> list[Body]:
    """The objects of a stream of lines or events; of one that is broken, those before the break."""
    found: list[Body] = []
    for line in body.splitlines():
        text = line.removeprefix(b"data:").strip()
        if not text or text == b"[DONE]":
            continue
        try:
            document = json.loads(text)
        except ValueError:
            break
        if isinstance(document, dict):
            found.append(document)
    return found


def _lines(body: bytes, expected: int) -> int:
    return sum("token" in document and "error" not in document for document in _documents(body))


def _said(body: bytes, expected: int) -> int:
    """A whole LMI answer does not say how many tokens it has: all of them, or it is an error."""
    document = _whole(body)
    return expected if document.get("generated_text") and "error" not in document else 0


def _usage(body: bytes, expected: int) -> int:
    return int((_whole(body).get("usage") or {}).get("completion_tokens") or 0)


def _streamed_usage(body: bytes, expected: int) -> int:
    """By the usage, if every chunk is whole and the end is there; by the chunks, where a server sends no usage."""
    documents = _documents(body)
    if not body.rstrip().endswith(b"data: [DONE]") or len(documents) != body.count(b"data:") - 1:
        return 0
    usage = next((document["usage"] for document in documents if document.get("usage")), None)
    return int(usage["completion_tokens"]) if usage else len(CONTENT.findall(body)) + len(TEXT.findall(body))


def _whole(body: bytes) -> Body:
    return next(iter(_documents(body)), {})


def _line_texts(body: bytes) -> str:
    return "".join(str((document.get("token") or {}).get("text") or "") for document in _documents(body))


def _generated(body: bytes) -> str:
    return str(_whole(body).get("generated_text") or "")


def _contents(body: bytes, part: str, field: str = "content") -> str:
    choices = (choice for document in _documents(body) for choice in document.get("choices") or ())
    return "".join(str((choice.get(part) or {}).get(field) or "") for choice in choices)


def _thoughts(body: bytes, part: str) -> str:
    return _contents(body, part, "reasoning") + _contents(body, part)


def _texts(body: bytes) -> str:
    choices = (choice for document in _documents(body) for choice in document.get("choices") or ())
    return "".join(str(choice.get("text") or "") for choice in choices)


TOKEN = re.compile(rb'"token": ?\{')
CONTENT = re.compile(rb'"content": ?"(?!")')
"""Not of a chunk that only has a role."""
THOUGHT = re.compile(rb'"(?:reasoning|content)": ?"(?!")')
TEXT = re.compile(rb'"text": ?"(?!")')
GENERATED = re.compile(rb'"generated_text":')
USAGE = re.compile(rb'"usage":')

LMI_STREAM = Workload(
    "LMI stream, log_prob", "lmi", True, True, lambda text, n: _lmi(text, n, True), TOKEN, _lines, _line_texts, True
)
LMI_WHOLE = Workload(
    "LMI whole", "lmi", False, False, lambda text, n: _lmi(text, n, False), GENERATED, _said, _generated
)
CHAT_STREAM = Workload(
    "chat stream", "openai", True, False, lambda text, n: _chat(text, n, True), CONTENT, _streamed_usage,
    lambda body: _contents(body, "delta"), path="/chat/completions",
)  # fmt: skip
CHAT_WHOLE = Workload(
    "chat whole", "openai", False, False, lambda text, n: _chat(text, n, False), USAGE, _usage,
    lambda body: _contents(body, "message"), path="/chat/completions",
)  # fmt: skip
TEXT_STREAM = Workload(
    "text stream", "text", True, False, lambda text, n: _text(text, n, True), TEXT, _streamed_usage, _texts,
    path="/completions",
)  # fmt: skip
TEXT_WHOLE = Workload(
    "text whole", "text", False, False, lambda text, n: _text(text, n, False), USAGE, _usage, _texts,
    path="/completions",
)  # fmt: skip
TOOLS_STREAM = replace(
    CHAT_STREAM, name="chat stream, tools", dialect="tools", body=lambda text, n: _tools(text, n, True), mark=THOUGHT,
    text=lambda body: _thoughts(body, "delta"),
)  # fmt: skip
TOOLS_WHOLE = replace(
    CHAT_WHOLE, name="chat whole, tools", dialect="tools", body=lambda text, n: _tools(text, n, False),
    text=lambda body: _thoughts(body, "message"),
)  # fmt: skip
REASONING_STREAM = replace(
    TOOLS_STREAM, name="chat stream, reasoning", dialect="reasoning", body=lambda text, n: _thinking(text, n, True)
)
REASONING_WHOLE = replace(
    TOOLS_WHOLE, name="chat whole, reasoning", dialect="reasoning", body=lambda text, n: _thinking(text, n, False)
)
WORKLOADS: tuple[Workload, ...] = (LMI_STREAM, LMI_WHOLE, CHAT_STREAM, CHAT_WHOLE)
ALL: tuple[Workload, ...] = (
    *WORKLOADS, TEXT_STREAM, TEXT_WHOLE, TOOLS_STREAM, TOOLS_WHOLE, REASONING_STREAM, REASONING_WHOLE,
)  # fmt: skip
"""With those that are to be named."""


def other_form(workload: Workload) -> Workload:
    """Of the same dialect: whole for streamed, streamed for whole."""
    other = next(one for one in ALL if one.dialect == workload.dialect and one.stream != workload.stream)
    return replace(other, adapters=workload.adapters)
