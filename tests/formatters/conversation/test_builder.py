"""The builder of conversations: messages, answers that are added to, results, limits; arguments of calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lmi.formatters.conversation.builder import NONE, Arguments, Builder, Turn

from ...kit.api.conversation import Call, Content, Media, Message, Text
from ...kit.api.dialects import MAX_MESSAGES
from ...kit.api.errors import ParameterError, PayloadError, RequestError
from ...kit.rows import each_row

LOOK = Call("1", "look", "{}")
FIND = Call("2", "find", '{"a":1}')


def content(*parts: str | tuple[str, str]) -> Content:
    """Texts, and images with what the client calls them."""
    made = Content()
    for part in parts:
        if isinstance(part, str):
            made.text(part)
        else:
            made.media("image", *part)
    return made


def answer(builder: Builder) -> None:
    turn = builder.answer()
    turn.reasoning += ["h", "m"]
    turn.say("so")
    turn.call("1", "look")
    turn.call("2", "find", '{"a":1}')
    turn.name = "Bob"


def answered_in_pieces(builder: Builder) -> None:
    turn = builder.answer()
    turn.call("1", "look")
    turn.say("a")
    assert builder.turn is turn
    turn.say(content("b"))


def two_answers(builder: Builder) -> None:
    builder.answer().say("a")
    builder.answer().say("b")


SEEN = ("https://a.png", "messages[0].content[1].image_url.url")
BUILT: dict[str, tuple[Callable[[Builder], object], list[Message]]] = {
    "nothing": (lambda builder: None, []),
    "a text": (lambda builder: builder.say("user", "hi"), [Message("user", "hi")]),
    "an empty text": (lambda builder: builder.say("user", ""), [Message("user")]),
    "no parts": (lambda builder: builder.say("user", content()), [Message("user", "")]),
    "one part": (lambda builder: builder.say("user", content("hi")), [Message("user", "hi")]),
    "parts": (
        lambda builder: builder.say("user", content("a", SEEN, "b")),
        [Message("user", (Text("a"), Media("image", "https://a.png"), Text("b")))],
    ),
    "an image alone": (
        lambda builder: builder.say("user", content(SEEN)),
        [Message("user", (Media("image", "https://a.png"),))],
    ),
    "a name": (lambda builder: builder.say("critic", "No.", "Ann"), [Message("critic", "No.", name="Ann")]),
    "an empty answer": (lambda builder: builder.answer(), [Message("assistant")]),
    "an answer": (answer, [Message("assistant", "so", "hm", (LOOK, FIND), name="Bob")]),
    "an answer in pieces": (
        answered_in_pieces,
        [Message("assistant", (Text("a"), Text("b")), calls=(LOOK,))],
    ),
    "two answers": (two_answers, [Message("assistant", "a"), Message("assistant", "b")]),
    "a result": (lambda builder: builder.result("1", "seen"), [Message("tool", "seen", call_id="1")]),
    "a result's name": (
        lambda builder: builder.result("1", "seen", name="look"),
        [Message("tool", "seen", call_id="1", name="look")],
    ),
    "a result of parts": (
        lambda builder: builder.result("1", content("a", SEEN)),
        [Message("tool", (Text("a"), Media("image", "https://a.png")), call_id="1")],
    ),
    "a failure": (
        lambda builder: builder.result("1", "no such place", failed=True),
        [Message("tool", "Error: no such place", call_id="1")],
    ),
    "a failure of lines": (
        lambda builder: builder.result("1", content("a", "b"), failed=True),
        [Message("tool", "Error: a\nb", call_id="1")],
    ),
    "a failure that says nothing": (
        lambda builder: builder.result("1", "", failed=True),
        [Message("tool", "Error", call_id="1")],
    ),
    "a failure of no parts": (
        lambda builder: builder.result("1", content(), failed=True),
        [Message("tool", "Error", call_id="1")],
    ),
    "a failure with an image": (
        lambda builder: builder.result("1", content(SEEN, "a"), failed=True),
        [Message("tool", (Text("Error: a"), Media("image", "https://a.png")), call_id="1")],
    ),
}


@each_row("name", BUILT)
def test_what_is_built(name: str) -> None:
    add, expected = BUILT[name]
    builder = Builder()
    add(builder)
    assert builder.messages() == tuple(expected)
    # It can be asked again.
    assert builder.messages() == tuple(expected)


def test_everything_stays_in_its_order() -> None:
    builder = Builder()
    for name in BUILT:
        BUILT[name][0](builder)
    assert builder.messages() == tuple(message for _, expected in BUILT.values() for message in expected)


@each_row(
    "end", [lambda builder: builder.say("user", "a"), lambda builder: builder.result("1", "a")], ids=["say", "result"]
)
def test_an_answer_ends_with_what_comes_after_it(end: Callable[[Builder], object]) -> None:
    builder = Builder()
    turns = [builder.turn, turn := builder.answer(), builder.turn]
    end(builder)
    assert [*turns, builder.turn] == [None, turn, turn, None]
    assert builder.messages()[0] == Message("assistant")


ADDED: dict[str, Callable[[Turn], object]] = {
    "a text": lambda turn: turn.say(""),
    "reasoning": lambda turn: turn.reasoning.append("hm"),
    "a call": lambda turn: turn.call("1", "look"),
}


@each_row("name", ADDED)
def test_whether_an_answer_is_empty(name: str) -> None:
    turn = Builder().answer()
    empty = turn.empty
    ADDED[name](turn)
    assert (empty, turn.empty) == (True, False)


def test_what_the_client_calls_images() -> None:
    builder = Builder("input")
    builder.say("system", "Be brief")
    builder.say("user", content("a", ("u", "input[3].content[1].image_url")))
    builder.answer().say("so")
    # Its text comes first.
    builder.result("1", content(("v", "input[5].output[0].source.data"), "a"), failed=True)
    assert builder.fields == {
        "prompt.messages[1].content[1]": "input[3].content[1]",
        "prompt.messages[1].content[1].url": "input[3].content[1].image_url",
        "prompt.messages[3].content[1]": "input[5].output[0]",
        "prompt.messages[3].content[1].url": "input[5].output[0].source.data",
    }


# --- Limits ---


def messages(builder: Builder, count: int) -> None:
    for _ in range(count):
        builder.say("user", "a")


def results(builder: Builder, count: int) -> None:
    for _ in range(count):
        builder.result("1", "a")


def calls(builder: Builder, count: int) -> None:
    turn = builder.answer()
    for _ in range(count):
        turn.call("1", "look")


MANY: dict[str, tuple[Callable[[Builder, int], object], int]] = {
    "messages": (messages, 0),
    "results": (results, 0),
    "answers": (lambda builder, count: [builder.answer() for _ in range(count)], 0),
    # With the message that they are in.
    "parts": (lambda builder, count: builder.say("user", content(*["a"] * count)), 1),
    "calls": (calls, 1),
}


@each_row("kind", MANY)
def test_there_may_not_be_too_many(kind: str) -> None:
    add, others = MANY[kind]
    builder = Builder("input")
    add(builder, MAX_MESSAGES - others)
    builder.messages()
    with pytest.raises(ParameterError) as caught:
        builder.say("user", "a")
    assert caught.value.message == "input: expected at most 16384 messages, their parts and calls included"
    assert caught.value.param == "input"


@each_row("kind", MANY)
def test_nor_too_many_of_one_kind(kind: str) -> None:
    add, others = MANY[kind]
    builder = Builder()
    # What is an answer's is counted at its end.
    with pytest.raises(ParameterError, match=r"^messages: expected at most 16384 messages, their parts and calls"):
        assert [add(builder, MAX_MESSAGES - others + 1), builder.messages()]


# --- Arguments ---


@each_row(
    ("given", "expected"),
    [
        # A text that is an object stays as it is, so that the prompt does.
        ('{"b": 1,  "a": "é"}', '{"b": 1,  "a": "é"}'),
        ("{}", "{}"),
        ({"b": 1, "a": ["é", None]}, '{"b":1,"a":["é",null]}'),
        ({}, "{}"),
        *((empty, NONE) for empty in ("", " \n", "null")),
        *((odd, json.dumps({"raw_arguments": odd}, separators=(",", ":"))) for odd in ("5", "[1]", "P", '{"a": "P')),
    ],
)
def test_arguments(given: Any, expected: str) -> None:
    assert Arguments().read("a", given) == expected


def nested(depth: int) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for _ in range(depth):
        given = {"a": given}
    return given


@each_row(
    ("given", "kind"),
    [
        (None, PayloadError),
        (5, PayloadError),
        ([], PayloadError),
        (True, PayloadError),
        ({"a": 2**63}, ParameterError),
        (nested(100), ParameterError),
    ],
)
def test_arguments_that_are_refused(given: Any, kind: type[RequestError]) -> None:
    with pytest.raises(RequestError) as caught:
        Arguments().read("messages[0].a", given)
    assert type(caught.value) is kind
    assert caught.value.param == "messages[0].a"
