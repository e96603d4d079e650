"""The answers: what vLLM's own types take, and what becomes of a prompt that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.tokens.reply import DetokenizedEncoder, TokenizedEncoder

from ...kit.api.errors import ParameterError
from ...kit.api.types import Delta, Event, Failed, Finish, ResponseEncoder, Started, Token
from ...kit.rows import each_row

TOKENS = (Token(1, "<s>", special=True), Token(9, "▁a"))
STARTED = Started(2, prefill=TOKENS, text="<s> a", context=2048)
END = Delta(0, "", finish=Finish("length"))


def said(reply: ResponseEncoder, *events: Event) -> Any:
    records = [record for event in events for record in reply.feed(event)]
    assert reply.finished
    (body,) = records
    return json.loads(body)


def test_tokens() -> None:
    bare = {"count": 2, "max_model_len": 2048, "tokens": [1, 9], "token_strs": None}
    assert said(TokenizedEncoder(names=False), STARTED, END) == bare
    assert said(TokenizedEncoder(names=True), STARTED, END) == {**bare, "token_strs": ["<s>", "▁a"]}


def test_text() -> None:
    assert said(DetokenizedEncoder(), STARTED, END) == {"prompt": "<s> a"}


def test_a_prompt_that_is_refused() -> None:
    reply = TokenizedEncoder(names=False)
    assert said(reply, Failed.of(ParameterError("no", "prompt")))["error"]["message"] == "no"
    assert (reply.status, type(reply.failure)) == (400, ParameterError)


@each_row("events", [(END,), (STARTED, Delta(0, "", finish=Finish("abort")))], ids=["untold", "aborted"])
def test_one_that_was_cut_off(events: tuple[Event, ...]) -> None:
    reply = DetokenizedEncoder()
    assert said(reply, *events)["error"]["message"] == "the prompt's tokens were not told"
    assert reply.status == 500


@pytest.mark.engine
def test_vllms_types_take_them() -> None:
    from vllm.entrypoints.serve.tokenize.protocol import DetokenizeResponse, TokenizeResponse

    for kind, answer in (
        (TokenizeResponse, said(TokenizedEncoder(names=True), STARTED, END)),
        (TokenizeResponse, said(TokenizedEncoder(names=False), STARTED, END)),
        (DetokenizeResponse, said(DetokenizedEncoder(), STARTED, END)),
    ):
        read: Any = kind.model_validate(answer)
        assert read.model_dump() == answer
