"""What each dialect's formatter costs a token: recorded events of one request, fed to its reply."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmi.formatters import Request, Response, receive
from lmi.formatters.base import encode
from lmi.model.events import Delta, Event, Finish, Started, Token, TopToken
from lmi.model.options import Settings, load_settings

__all__ = ["REQUESTS", "reply_cost"]

TOKENS = 100
TEXT = ["Once", " upon", " a", " time", ",", " there", " was", " a", " “", "naïve", "”", " fox", " 🦊", ".", "\n"]
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": TOKENS, "temperature": 0}
ITEMS: dict[str, Any] = {"input": "Count.", "max_output_tokens": TOKENS, "temperature": 0}
SHOWN = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
INPUTS: dict[str, Any] = {"inputs": "Count."}
COUNTED = {"max_new_tokens": TOKENS, "details": True}

REQUESTS: dict[str, tuple[Mapping[str, Any], str]] = {
    "LMI stream": ({**INPUTS, "parameters": COUNTED, "stream": True}, "/invocations"),
    "LMI whole": (INPUTS, "/invocations"),
    "LMI whole, details": ({**INPUTS, "parameters": COUNTED}, "/invocations"),
    "TGI stream": ({**INPUTS, "parameters": COUNTED}, "/generate_stream"),
    "TGI stream, top 3": ({**INPUTS, "parameters": {**COUNTED, "top_n_tokens": 3}}, "/generate_stream"),
    "TGI whole, details": ({**INPUTS, "parameters": COUNTED}, "/generate"),
    "chat stream": ({**CHAT, "stream": True}, "/invocations"),
    "chat stream, logprobs": ({**CHAT, "stream": True, "logprobs": True, "top_logprobs": 3}, "/invocations"),
    "chat whole": (CHAT, "/invocations"),
    "Responses stream": ({**ITEMS, "stream": True}, "/v1/responses"),
    "Responses stream, logprobs": ({**ITEMS, **SHOWN, "stream": True}, "/v1/responses"),
    "Responses whole": (ITEMS, "/v1/responses"),
    "completions stream": ({"prompt": "Count.", "max_tokens": TOKENS, "stream": True}, "/v1/completions"),
    "Azure stream": ({**CHAT, "stream": True}, "/chat/completions?api-version"),
    "Anthropic stream": ({**CHAT, "stream": True}, "/v1/messages"),
    "Anthropic whole": (CHAT, "/v1/messages"),
    "minimal stream": ({"model": "m", "messages": CHAT["messages"], "stream": True}, "/chat/completions"),
}
"""Of each kind its body and its path."""


def settings() -> Settings:
    """Of no particular model."""
    return load_settings(Path.cwd(), environment={}, overrides={})


def call_of(kind: str) -> Any:
    """What a request of that kind is read as."""
    body, path = REQUESTS[kind]
    path, _, parameter = path.partition("?")
    query = {parameter: "2024-05-01-preview"} if parameter else {}
    call = receive(Request(encode(body), path=path, query=query), settings())
    assert not isinstance(call, Response), call
    return call


def events_of(kind: str, per_step: int) -> list[Event]:
    """What the engine would report: TOKENS tokens, so many an event."""
    (generation,) = call_of(kind).generations
    events: list[Event] = [Started(9)]
    shown = generation.sampling.logprobs
    pieces = [TEXT[at % len(TEXT)] for at in range(TOKENS)]
    top = tuple(TopToken(at, f" t{at}", -0.5 - at, f" t{at}".encode()) for at in range(shown or 0))
    tokens = [
        Token(at, piece, None if shown is None else -0.01 * at, top=top, raw=piece.encode() if top else b"")
        for at, piece in enumerate(pieces)
    ]
    if not generation.stream:
        per_step = TOKENS
    for start in range(0, TOKENS, per_step):
        end = min(start + per_step, TOKENS)
        finish = Finish("length", None, TOKENS, -1.0) if end == TOKENS else None
        text = "".join(pieces[start:end])
        events.append(Delta(0, text, tuple(tokens[start:end]) if generation.tokens else (), finish))
    return events


def reply_of(kind: str) -> Any:
    """A reply to which nothing has been fed."""
    return call_of(kind).reply


def feed(reply: Any, events: list[Event]) -> list[bytes]:
    """All records of a reply."""
    records: list[bytes] = []
    for event in events:
        records += reply.feed(event)
    return records


def reply_cost(kind: str, per_step: int = 1) -> float:
    """Microseconds of CPU a token, over some answers."""
    events = events_of(kind, per_step)
    replies = [reply_of(kind) for _ in range(20)]
    begun = time.thread_time_ns()
    for reply in replies:
        feed(reply, events)
    spent = time.thread_time_ns() - begun
    assert all(reply.finished and reply.failure is None for reply in replies)
    return spent / 1000 / TOKENS / len(replies)
