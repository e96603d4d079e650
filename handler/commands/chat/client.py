"""A server as `lmi chat` sees it: OpenAI's chat completions, streamed, by nothing but the standard library.

ask(messages) --POST, text/event-stream--> Piece, Piece, ...   Answer: what they come to
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ....model.errors import LmiError, OptionError

__all__ = ["Answer", "ChatClient", "ChatError", "Message", "Piece"]

Message = dict[str, Any]
"""A message of a conversation, as in the body of a request."""

TIMEOUT_S = 600.0
"""Seconds until the next part of an answer: a long queue may be before the first one."""
CONNECT_TIMEOUT_S = 10.0


class ChatError(LmiError):
    """There is no answer; the message says why."""


class Piece(NamedTuple):
    """What is new of an answer."""

    kind: Literal["text", "reasoning", "call"]
    text: str
    """Of a call: the function's name where it begins, then its arguments."""
    call: int = 0
    """Of a call: which one."""


@dataclass
class Answer:
    """An answer, as far as it has come."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """`tool_calls` of the message."""
    finish_reason: str | None = None
    tokens: int | None = None
    """How many were generated, once the server has said so."""

    @property
    def message(self) -> Message:
        """As a message of the conversation that goes on."""
        return {"role": "assistant", "content": self.text, **({"tool_calls": self.calls} if self.calls else {})}


class ChatClient:
    """Of the server at `url`, with or without `/v1`."""

    def __init__(self, url: str, key: str | None = None, model: str | None = None) -> None:
        """Raises OptionError for what is no URL."""
        parts = _split(url)
        if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise OptionError(f"{url}: expected a URL as http://127.0.0.1:8080")
        self._url = parts
        path = parts.path.rstrip("/")
        self._base = path if path.endswith("/v1") else f"{path}/v1"
        self._headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if key:
            # As bytes: http.client would make Latin-1 of a text, and fail at what it lacks.
            self._headers["Authorization"] = b"Bearer " + os.fsencode(key)
        self._model = model

    @property
    def model(self) -> str:
        """The one that is asked: the first that the server names, where none was given. Raises ChatError."""
        if self._model is None:
            with self._open("GET", "/models") as response:
                listed = _object(response.read()).get("data") or [{}]
            self._model = str(listed[0].get("id", ""))
        return self._model

    def ask(self, messages: Sequence[Message], tools: Sequence[Any], answer: Answer) -> Generator[Piece]:
        """Asks, and fills `answer` with the pieces that it yields. Raises ChatError, also in the midst of them.

        Ends the request where it is closed before its end.
        """
        body = {
            "model": self.model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"tools": list(tools)} if tools else {}),
        }
        with self._open("POST", "/chat/completions", body) as response:
            for event in _events(response):
                yield from _taken(event, answer)
        if answer.finish_reason is None:
            raise ChatError("the answer ended before its end")

    @contextmanager
    def _open(self, method: str, path: str, body: object = None) -> Generator[http.client.HTTPResponse]:
        """The answer to a request; what goes wrong with it, until it is closed, is a ChatError."""
        url = self._url
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(url.hostname), url.port, timeout=CONNECT_TIMEOUT_S)
        data = None if body is None else json.dumps(body).encode()
        with closing(connection):
            try:
                connection.connect()
                connection.sock.settimeout(TIMEOUT_S)
                connection.request(method, self._base + path, data, self._headers)
                with connection.getresponse() as response:
                    if response.status != http.client.OK:
                        raise ChatError(_refusal(response))
                    yield response
            except (OSError, http.client.HTTPException) as error:
                raise ChatError(f"{url.scheme}://{url.netloc}: {_reason(error)}") from error


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        # A port that is none shows only now.
        return parts if parts.port is None or parts.port else None
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {error.reason or error}"
    return str(error) or type(error).__name__


def _refusal(response: http.client.HTTPResponse) -> str:
    """What an answer with an error says: OpenAI's form of it, or whatever it is."""
    data = response.read(1 << 16)
    error = _object(data).get("error")
    message = error.get("message") if isinstance(error, dict) else error
    text = str(message or data.decode(errors="replace").strip() or response.reason)
    return f"{text} (HTTP status {response.status})"


def _object(data: bytes | str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The data of server-sent events, to `[DONE]`. Each is one line, as all servers write it."""
    while line := response.readline():
        name, _, value = line.decode(errors="replace").strip().partition(":")
        if name != "data":
            continue
        if value.strip() == "[DONE]":
            return
        yield _object(value)


def _taken(event: dict[str, Any], answer: Answer) -> Iterator[Piece]:
    if error := event.get("error"):
        raise ChatError(str(error.get("message") if isinstance(error, dict) else error))
    if usage := event.get("usage"):
        answer.tokens = usage.get("completion_tokens")
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            answer.reasoning += reasoning
            yield Piece("reasoning", reasoning)
        if text := delta.get("content"):
            answer.text += text
            yield Piece("text", text)
        for call in delta.get("tool_calls") or ():
            yield from _called(call, answer)
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _called(call: dict[str, Any], answer: Answer) -> Iterator[Piece]:
    index = int(call.get("index") or 0)
    function = call.get("function") or {}
    while len(answer.calls) <= index:
        answer.calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    known = answer.calls[index]
    known["id"] = call.get("id") or known["id"]
    for part in ("name", "arguments"):
        if text := function.get(part):
            known["function"][part] += text
            yield Piece("call", text, index)
