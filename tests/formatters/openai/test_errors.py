"""Errors as OpenAI's own client sees them. No engine: the bodies are ours."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from lmi.formatters.openai import refuse

from ...kit.answers.events import feed
from ...kit.answers.openai import CHAT, SETTINGS, call, reply
from ...kit.api.errors import GenerationError, OverloadedError
from ...kit.api.types import Delta, Failed, Request, Started
from ...kit.rows import each_row


def streamed(texts: list[str], status: int, content_type: str, content: bytes, chat: bool) -> None:
    """What a stream brings to the client that asks for it, to the point where that raises."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers={"content-type": content_type}, content=content)

    http: Any = httpx.Client(transport=httpx.MockTransport(answer))
    asked = openai.OpenAI(base_url="http://endpoint/v1", api_key="none", http_client=http, max_retries=0)
    if chat:
        messages: Any = CHAT["messages"]
        chunks = asked.chat.completions.create(model="any", messages=messages, stream=True)
        texts.extend(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        completions = asked.completions.create(model="any", prompt="hi", stream=True)
        texts.extend(chunk.choices[0].text for chunk in completions)


@each_row("chat", [True, False])
def test_a_failure_before_the_first_chunk(chat: bool) -> None:
    """Refused, or failed: by its status, with what it tells."""
    error = OverloadedError("the reason", "temperature")
    told = refuse(error, {**CHAT, "stream": True}, Request(b""), SETTINGS)
    answer = reply(stream=True) if chat else call(stream=True).reply
    (body,) = feed(answer, Started(1), Failed.of(error))
    for status, content_type, content in (
        (told.status, told.content_type, told.body),
        (answer.status, answer.content_type, body),
    ):
        with pytest.raises(openai.RateLimitError, match="the reason") as caught:
            streamed([], status, content_type, content, chat)
        assert (caught.value.param, caught.value.code) == ("temperature", error.code)


@each_row("chat", [True, False])
def test_a_failure_in_a_stream(chat: bool) -> None:
    """The text so far comes first; then the client raises what the chunk tells."""
    answer = reply(stream=True) if chat else call(stream=True).reply
    records = feed(answer, Started(1), Delta(0, "so far"), Failed.of(GenerationError("the reason")))
    texts: list[str] = []
    with pytest.raises(openai.APIError, match="the reason") as caught:
        streamed(texts, answer.status, answer.content_type, b"".join(records), chat)
    assert "".join(texts) == "so far"
    assert caught.value.code == "generation_failed"
