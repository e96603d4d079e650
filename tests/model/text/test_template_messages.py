"""Messages as chat templates take them: results and their images, numbers of images, messages that are dicts."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.text.template_messages import media_in

from ...kit.api.conversation import Call, Media, Message, Part, Text, forget_former_use
from ...kit.api.types import template_messages
from ...kit.rows import each_row

Given = Message | dict[str, Any]


def called(*ids: str) -> Message:
    return Message("assistant", calls=tuple(Call(one, "f", "{}") for one in ids))


def result(call_id: str, *content: Part) -> Message:
    return Message("tool", content or call_id.upper(), call_id=call_id)


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def results(*ids: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": one, "content": one.upper()} for one in ids]


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*content]}


HI: dict[str, Any] = {"role": "user", "content": "hi"}
SEEN = result("a", Text("x"), Media("image", "u1"), Text("y"), Media("image", "u2"))
SHOWN = {"role": "tool", "tool_call_id": "a", "content": "x\ny"}
IMAGES = user(image("u1"), image("u2"))
ODD: dict[str, Any] = {"role": "odd", "content": [{"type": "odd", "odd": 1}], "more": None}

MADE: dict[str, tuple[list[Given], list[dict[str, Any]]]] = {
    "nothing": ([], []),
    "a text": ([Message("user", "hi")], [HI]),
    "a name": ([Message("user", "hi", name="Ann")], [{**HI, "name": "Ann"}]),
    "parts": ([Message("user", (Text("a"), Media("image", "u"), Text("b")))], [user(text("a"), image("u"), text("b"))]),
    "another role": ([Message("critic", "No.")], [{"role": "critic", "content": "No."}]),
    "an answer": (
        [Message("assistant", "so", "hm", called("a").calls, name="Bob")],
        [{**calls("a"), "content": "so", "reasoning": "hm", "reasoning_content": "hm", "name": "Bob"}],
    ),
    "a call alone": ([called("a")], [calls("a")]),
    "a result": ([called("a"), result("a")], [calls("a"), *results("a")]),
    "a result's name": ([Message("tool", "A", call_id="a", name="f")], [{**results("a")[0], "name": "f"}]),
    "results in their order": (
        [called("a", "b", "c"), result("c"), result("a"), result("b"), Message("user", "hi")],
        [calls("a", "b", "c"), *results("a", "b", "c"), HI],
    ),
    # What belongs to no call of the last answer comes last, and stays in its order.
    "results of no call": (
        [called("a"), result("y"), result("a"), result("x")],
        [calls("a"), *results("y", "a", "x")],
    ),
    "two results of one call": (
        [called("a", "b"), result("b"), Message("tool", "1", call_id="a"), Message("tool", "2", call_id="a")],
        [
            calls("a", "b"), {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "a", "content": "2"}, *results("b"),
        ],
    ),
    "two calls of one id": (
        [called("b", "a", "b"), result("a"), result("b")], [calls("b", "a", "b"), *results("b", "a")]
    ),
    "calls of each answer": (
        [called("a", "b"), result("b"), result("a"), called("b", "a"), result("a"), result("b")],
        [calls("a", "b"), *results("a", "b"), calls("b", "a"), *results("b", "a")],
    ),
    "results that go on after a message": (
        [called("a", "b"), result("b"), Message("user", "hi"), result("a")],
        [calls("a", "b"), *results("b"), HI, *results("a")],
    ),
    "images alone at the end": ([called("a"), SEEN], [calls("a"), SHOWN, IMAGES]),
    "images before what the user says": (
        [called("a"), SEEN, Message("user", "hi")],
        [calls("a"), SHOWN, user(image("u1"), image("u2"), text("hi"))],
    ),
    "images before the user's parts": (
        [called("a"), SEEN, Message("user", (Text("hi"), Media("image", "u3")))],
        [calls("a"), SHOWN, user(image("u1"), image("u2"), text("hi"), image("u3"))],
    ),
    "images before an answer": (
        [called("a"), SEEN, Message("assistant", "so"), Message("user", "hi")],
        [calls("a"), SHOWN, IMAGES, {"role": "assistant", "content": "so"}, HI],
    ),
    "images before further calls": (
        [called("a"), SEEN, called("b"), result("b")],
        [calls("a"), SHOWN, IMAGES, calls("b"), *results("b")],
    ),
    "images of several results": (
        [called("a", "b"), result("b", Media("image", "u0")), SEEN],
        [
            calls("a", "b"), SHOWN, {"role": "tool", "tool_call_id": "b", "content": ""},
            user(image("u1"), image("u2"), image("u0")),
        ],
    ),
    "a dict": ([ODD], [ODD]),
    "a dict after images": ([called("a"), SEEN, HI], [calls("a"), SHOWN, IMAGES, HI]),
    "results that are dicts": (
        [called("a", "b"), *results("b", "a"), HI], [calls("a", "b"), *results("b", "a"), HI]
    ),
}  # fmt: skip


@each_row("name", MADE)
def test_what_templates_get(name: str) -> None:
    given, expected = MADE[name]
    assert template_messages(given) == expected


NUMBERED: dict[str, tuple[list[Given], list[list[str]]]] = {
    "in their order": (
        [
            Message("user", (Media("image", "u"), Text("a"), Media("image", "v"))),
            Message("user", (Media("image", "w"),)),
        ],
        [["0", "1"], ["2"]],
    ),
    "in dicts": ([user(image("u")), Message("user", (Media("image", "v"),)), user(text("a"), image("w"))],
                 [["0"], ["1"], ["2"]]),
    # The first result's come second: its call is the second one.
    "of results": (
        [
            user(image("u")),
            called("a", "b"),
            result("b", Media("image", "v")),
            SEEN,
            Message("user", (Media("image", "w"),)),
        ],
        [["0"], ["2", "3", "1", "4"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_of_images(name: str) -> None:
    """In the order of the conversation, in which the images are fetched, whatever templates get first."""
    given, expected = NUMBERED[name]

    def urls(made: list[dict[str, Any]]) -> list[list[str]]:
        contents = [message["content"] for message in made if isinstance(message["content"], list)]
        return [[part["image_url"]["url"] for part in parts if part["type"] == "image_url"] for parts in contents]

    numbers = urls(template_messages(given, urls=False))
    assert numbers == expected
    fetched = [media.url for message in given for _, media in media_in(message)]
    assert [[fetched[int(number)] for number in some] for some in numbers] == urls(template_messages(given))


def test_dicts_are_not_changed() -> None:
    """They are another's: a filter's, or those of a session."""
    given = [user(text("a"), image("u")), ODD]
    template_messages(given, urls=False)
    assert given == [user(text("a"), image("u")), ODD]
    (_, same) = template_messages(given)
    assert same is ODD or same == ODD


@each_row(
    ("message", "expected"),
    [
        (Message("user", "a"), []),
        (Message("user", (Text("a"), Media("image", "u"), Media("image", "v"))), [(1, "u"), (2, "v")]),
        ({"role": "user", "content": "a"}, []),
        ({"role": "user"}, []),
        (user(text("a"), image("u")), [(1, "u")]),
        (ODD, []),
    ],
)
def test_where_images_are(message: Given, expected: list[tuple[int, str]]) -> None:
    assert [(place, media.url) for place, media in media_in(message)] == expected


def test_a_message_may_still_be_read_as_a_dict(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Engines of users read messages when these were dicts in OpenAI's form."""
    forget_former_use(monkeypatch)
    message = Message("user", (Text("a"), Media("image", "u")))
    assert (message["role"], message["content"][1]["image_url"]) == ("user", {"url": "u"})
    assert (message.get("content")[0], message.get("tool_calls"), message.get("name", "x")) == (
        {"type": "text", "text": "a"}, None, "x",
    )  # fmt: skip
    with pytest.raises(KeyError):
        message["tool_calls"]
    assert len(caplog.messages) == 1


def test_calls_of_answers_in_a_row_have_their_results_in_order() -> None:
    """Reasoning between two calls makes two answers of them."""
    given = [called("a"), called("b"), result("x"), result("b"), result("a")]
    assert [one.get("tool_call_id") for one in template_messages(given)] == [None, None, "x", "a", "b"]
    again = [called("a"), result("a"), called("b"), result("b"), called("a"), called("c"), result("c"), result("a")]
    assert [one["tool_call_id"] for one in template_messages(again) if one["role"] == "tool"] == ["a", "b", "a", "c"]


@each_row(
    ("content", "made"),
    [
        ((), None),
        ("", None),
        ("\n\n", None),
        ("a\n", "a"),
        ((Text("\n"),), None),
        ((Text("a"), Text("b\n")), [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ((Text("a"), Text("\n")), [{"type": "text", "text": "a"}]),
    ],
)
def test_what_is_said_before_calls(content: Any, made: Any) -> None:
    """Nothing is null, as vLLM's clients send it: of an empty text some templates write the line break before calls."""
    (message,) = template_messages([Message("assistant", content, calls=(Call("a", "f", "{}"),))])
    assert message["content"] == made


def test_images_stay_in_results_where_the_template_shows_them() -> None:
    given = [
        called("a"),
        Message("tool", (Text("seen"), Media("image", "u"), Text("so")), call_id="a"),
        result("b", Text("t")),
    ]
    _, shown, other = template_messages(given, urls=False, media_in_results=True)
    image = {"type": "image_url", "image_url": {"url": "0"}}
    assert shown["content"] == [{"type": "text", "text": "seen"}, image, {"type": "text", "text": "so"}]
    assert other["content"] == "t"


def test_a_result_with_an_image_is_read_as_a_dict_too() -> None:
    message = result("a", Text("seen"), Media("image", "u"))
    assert (message["content"], message.get("nope"), "tool_call_id" in message, "name" in message) == (
        "seen", None, True, False,
    )  # fmt: skip
