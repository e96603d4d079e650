"""Errors as OpenAI's own client sees them: which of its exceptions each becomes. No engine: the bodies are ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import openai
import pytest

from lmi.formatters.openai import refuse

from ...kit.answers.events import feed
from ...kit.answers.openai import CHAT, SETTINGS, call, reply
from ...kit.api.errors import (
    ContextError,
    ForbiddenError,
    GenerationError,
    LmiError,
    MediaTypeError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    PayloadError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
)
from ...kit.api.types import Delta, Event, Failed, Request, Started
from ...kit.rows import each_row

MESSAGES: Any = CHAT["messages"]


def client(status: int, content_type: str, records: Iterable[bytes]) -> openai.OpenAI:
    """A client that is answered with these records, whatever it asks."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers={"content-type": content_type}, content=b"".join(records))

    http: Any = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(base_url="http://endpoint/v1", api_key="none", http_client=http, max_retries=0)


KINDS: list[tuple[type[LmiError], type[openai.APIStatusError]]] = [
    (PayloadError, openai.BadRequestError),
    (ParameterError, openai.BadRequestError),
    (ContextError, openai.BadRequestError),
    (UnsupportedError, openai.BadRequestError),
    (MediaTypeError, openai.APIStatusError),
    (UnauthorizedError, openai.AuthenticationError),
    (ForbiddenError, openai.PermissionDeniedError),
    (NotFoundError, openai.NotFoundError),
    (OverloadedError, openai.RateLimitError),
    (GenerationError, openai.InternalServerError),
    (UnavailableError, openai.InternalServerError),
]


@each_row("stream", [False, True])
@each_row(("kind", "exception"), KINDS)
def test_a_refusal(kind: type[LmiError], exception: type[openai.APIStatusError], stream: bool) -> None:
    told = refuse(kind("the reason", "temperature"), {**CHAT, "stream": stream}, Request(b""), SETTINGS)
    with pytest.raises(openai.APIStatusError) as caught:
        client(told.status, told.content_type, [told.body]).chat.completions.create(
            model="any", messages=MESSAGES, stream=stream
        )
    assert type(caught.value) is exception
    assert (caught.value.status_code, caught.value.param, caught.value.code) == (kind.status, "temperature", kind.code)
    assert "the reason" in caught.value.message


def stream_into(texts: list[str], asked: openai.OpenAI, chat: bool) -> None:
    """Asks for a stream and collects what it brings, to the point where the client raises."""
    if chat:
        chunks = asked.chat.completions.create(model="any", messages=MESSAGES, stream=True)
        texts.extend(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        completions = asked.completions.create(model="any", prompt="hi", stream=True)
        texts.extend(chunk.choices[0].text for chunk in completions)


@each_row("chat", [True, False])
@each_row(("kind", "exception"), KINDS)
def test_a_failure_before_the_first_chunk(
    kind: type[LmiError], exception: type[openai.APIStatusError], chat: bool
) -> None:
    answer = reply(stream=True) if chat else call(stream=True).reply
    records = feed(answer, Started(1), Failed.of(kind("the reason")))
    texts: list[str] = []
    with pytest.raises(openai.APIStatusError) as caught:
        stream_into(texts, client(answer.status, answer.content_type, records), chat)
    assert type(caught.value) is exception
    assert texts == []


@pytest.mark.parametrize("chat", [True, False])
def test_a_failure_in_a_stream(chat: bool) -> None:
    """The text so far comes first; then the client raises what the chunk tells."""
    events: list[Event] = [Started(1), Delta(0, "so far"), Failed.of(GenerationError("the reason"))]
    answer = reply(stream=True) if chat else call(stream=True).reply
    asked = client(answer.status, answer.content_type, feed(answer, *events))
    texts: list[str] = []
    with pytest.raises(openai.APIError, match="the reason") as caught:
        stream_into(texts, asked, chat)
    assert "".join(texts) == "so far"
    assert caught.value.code == "generation_failed"
