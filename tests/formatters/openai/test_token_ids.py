"""Token ids in answers: vLLM's return_token_ids and return_tokens_as_token_ids."""

from __future__ import annotations

from typing import Any

from ...kit.answers.openai import REASONING, call, chunks, reply, whole
from ...kit.api.types import Delta, Finish, Started, Token, TopToken

STARTED = Started(3, prompt_ids=(7, 8, 9))
TOP = (TopToken(5, "Hi", -0.1), TopToken(6, " there", -2.0))
HI = Token(5, "Hi", -0.1, top=TOP)
END = Token(1, "", -0.5, special=True)
EVENTS = (STARTED, Delta(0, "Hi", (HI,)), Delta(0, "", (END,), Finish("eos", generated_tokens=2)))
SILENT = (STARTED, Delta(0, "", (Token(4, ""),)), *EVENTS[1:])
"""With a token that brings nothing to show."""


def test_a_whole_chat() -> None:
    body = whole(reply(return_token_ids=True), *EVENTS)
    assert body["prompt_token_ids"] == [7, 8, 9]
    assert body["choices"][0]["token_ids"] == [5, 1]
    assert body["choices"][0]["message"]["content"] == "Hi"


def test_they_are_not_there_unless_asked_for() -> None:
    for answer in (reply(), call().reply):
        body = whole(answer, *EVENTS)
        assert "prompt_token_ids" not in body
        assert not {"token_ids", "prompt_token_ids"} & {*body["choices"][0]}


def test_a_streamed_chat_tells_each_token_once() -> None:
    """As vLLM's server: the prompt's with the role, and what shows nothing has a chunk too."""
    first, *others = chunks(reply(return_token_ids=True, stream=True), *SILENT)
    assert first["prompt_token_ids"] == [7, 8, 9]
    assert "token_ids" not in first["choices"][0]
    assert all("prompt_token_ids" not in chunk for chunk in others)
    assert [chunk["choices"][0]["token_ids"] for chunk in others] == [[4], [5], [1]]


def test_reasoning_that_is_hidden_is_not_told_by_its_tokens() -> None:
    hidden: dict[str, Any] = {"return_token_ids": True, "include_reasoning": False}
    body = whole(reply(REASONING, **hidden), *EVENTS)
    assert (body["prompt_token_ids"], "token_ids" in body["choices"][0]) == ([7, 8, 9], False)
    streamed = chunks(reply(REASONING, **hidden, stream=True), *EVENTS)
    assert all("token_ids" not in chunk["choices"][0] for chunk in streamed)


def test_a_whole_text() -> None:
    (choice,) = whole(call(return_token_ids=True).reply, *EVENTS)["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([7, 8, 9], [5, 1])


def test_a_streamed_text_tells_each_token_once() -> None:
    streamed = [chunk["choices"][0] for chunk in chunks(call(return_token_ids=True, stream=True).reply, *SILENT)]
    assert [choice.get("prompt_token_ids") for choice in streamed] == [[7, 8, 9], None, None]
    assert [choice["token_ids"] for choice in streamed] == [[4], [5], [1]]


def test_an_echo_comes_with_its_tokens() -> None:
    """The echoed text is there too, which vLLM's server leaves out."""
    (choice,) = whole(call(return_token_ids=True, echo=True).reply, *EVENTS)["choices"]
    assert (choice["text"], choice["prompt_token_ids"], choice["token_ids"]) == ("hiHi", [7, 8, 9], [5, 1])
    first, *others = chunks(call(return_token_ids=True, echo=True, stream=True).reply, *EVENTS)
    assert (first["choices"][0]["text"], first["choices"][0]["prompt_token_ids"]) == ("hi", [7, 8, 9])
    assert all("prompt_token_ids" not in chunk["choices"][0] for chunk in others)


def test_nothing_is_told_of_what_is_not_shown() -> None:
    (choice,) = whole(call(return_token_ids=True, echo=True, max_tokens=0).reply, *EVENTS)["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([7, 8, 9], [])


def test_several_prompts_have_their_own() -> None:
    asked = call(prompt=["a", "b"], return_token_ids=True)
    assert [one.prompt_ids for one in asked.generations] == [True, True]
    other = Started(1, prompt_ids=(2,))
    ended = Delta(0, "", (END,), Finish("eos", generated_tokens=1))
    first, second = whole(asked.reply, (0, STARTED), (1, other), (0, ended), (1, ended))["choices"]
    assert (first["prompt_token_ids"], second["prompt_token_ids"]) == ([7, 8, 9], [2])


def test_ids_in_the_place_of_texts() -> None:
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    (entry,) = whole(reply(**asked), *EVENTS)["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("token_id:5", [*b"Hi"])
    assert [(top["token"], top["bytes"]) for top in entry["top_logprobs"]] == [
        ("token_id:5", [*b"Hi"]),
        ("token_id:6", [*b" there"]),
    ]
    streamed = chunks(reply(**asked, stream=True), *EVENTS)
    assert streamed[1]["choices"][0]["logprobs"]["content"] == [entry]
    columns = whole(call(logprobs=2, return_tokens_as_token_ids=True).reply, *EVENTS)["choices"][0]["logprobs"]
    assert columns["tokens"] == ["token_id:5"]
    assert columns["top_logprobs"] == [{"token_id:5": -0.1, "token_id:6": -2.0}]
