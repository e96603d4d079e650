"""Anthropic's messages and content blocks: what conversations are made of them, and what is refused where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.anthropic.blocks import read_conversation

from ...kit.answers.anthropic import SETTINGS, STRICT, USER, fields_of
from ...kit.api.conversation import Builder, FoundTools
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import Settings, template_messages
from ...kit.rows import each_row

TEXT = {"type": "text", "text": "a"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": [1, "é"]}}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at":[1,"é"]}'}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}
BASE64 = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
URL = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def conversation_of(body: dict[str, Any], settings: Settings) -> tuple[Builder, bool]:
    """What a body says, and whether the answer is to go on with its last message."""
    values = fields_of(body, settings)
    return read_conversation(values["messages"], values["system"], FoundTools(), settings)


def read(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    made, _ = conversation_of({"messages": [*messages], **fields}, SETTINGS)
    return template_messages(made.messages())


def names(*messages: dict[str, Any]) -> dict[str, str]:
    """What the client calls the images, by their paths."""
    made, _ = conversation_of({"messages": [*messages]}, SETTINGS)
    return made.fields


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*content]}


def image(url: str = "https://example.com/a.png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def named(message: int, part: int, place: str, url: str) -> dict[str, str]:
    """What an image and its URL are called."""
    path = f"prompt.messages[{message}].content[{part}]"
    return {path: place, f"{path}.url": f"{place}.{url}"}


# --- What becomes of them ---


@each_row(
    ("system", "text"),
    [
        ("Be brief", "Be brief"),
        ([{"type": "text", "text": "Be"}, {"type": "text", "text": "brief", "cache_control": {}}], "Be\nbrief"),
        # Claude Code's, which is another one in each request.
        ([{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "Be brief"}],
         "Be brief"),
        ([{"type": "text", "text": ""}, {"type": "text", "text": "Be brief"}], "Be brief"),
        ("", None), (None, None), ([{"type": "text", "text": "x-anthropic-billing-header: cch=1"}], None),
    ],
)  # fmt: skip
def test_the_system_prompt(system: Any, text: str | None) -> None:
    first, *rest = read(USER, system=system)
    assert (first, len(rest)) == (USER, 0) if text is None else (first, rest) == (
        {"role": "system", "content": text}, [USER]
    )  # fmt: skip


def test_system_messages_within_stay_in_their_place() -> None:
    more = {"role": "user", "content": "more"}
    made = read(USER, {"role": "system", "content": "b"}, more, system="a")
    assert made == [{"role": "system", "content": "a"}, USER, {"role": "system", "content": "b"}, more]
    # As in the system prompt: blocks are lines.
    within = [TEXT, {"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "c"}]
    assert read(USER, {"role": "system", "content": within})[1:] == [{"role": "system", "content": "a\nc"}]


@each_row("nothing", ["", [], [{"type": "text", "text": "x-anthropic-billing-header: cch=1"}]])
def test_a_system_message_that_says_nothing_parts_no_turn(nothing: Any) -> None:
    """Many templates refuse two messages of the user's in a row."""
    made = read(USER, {"role": "system", "content": nothing}, user(TEXT))
    assert made == [user({"type": "text", "text": "hi"}, TEXT)]


def test_messages_of_one_role_are_one_turn() -> None:
    given = (USER, user(TEXT, URL), assistant(TEXT), {"role": "assistant", "content": "b"}, USER)
    made = read(*given)
    assert [message["role"] for message in made] == ["user", "assistant", "user"]
    assert made[0]["content"] == [{"type": "text", "text": "hi"}, TEXT, image()]
    assert names(*given) == named(0, 2, "messages[1].content[1]", "source.url")
    assert made[1]["content"] == [TEXT, {"type": "text", "text": "b"}]


def test_a_single_text_is_a_string() -> None:
    assert read(user(TEXT, {"type": "text", "text": ""})) == [{"role": "user", "content": "a"}]
    assert read(user({"type": "text", "text": ""})) == [{"role": "user", "content": ""}]


def test_images() -> None:
    made = read(user(BASE64, TEXT))
    assert made[0]["content"] == [image("data:image/png;base64,iVBORw0KGgo="), TEXT]
    assert names(user(BASE64, TEXT)) == named(0, 0, "messages[0].content[0]", "source.data")


def test_calls_and_results() -> None:
    made = read(USER, assistant(THINKING, TEXT, USE), user(RESULT))
    assert made[1:] == [
        {"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
    ]


def test_a_call_alone() -> None:
    made = read(USER, assistant({**USE, "input": None}), user(RESULT, TEXT))
    assert made[1]["content"] is None
    assert made[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert made[2:] == [{"role": "tool", "tool_call_id": "1", "content": "seen"}, {"role": "user", "content": "a"}]


def test_results_come_before_what_the_user_says() -> None:
    made = read(USER, assistant(USE), user(TEXT, RESULT), user({**RESULT, "tool_use_id": "other"}))
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool", "user"]
    assert [message.get("tool_call_id") for message in made[2:4]] == ["1", "other"]


@each_row(
    ("content", "failed", "text"),
    [
        ("seen", None, "seen"), ("seen", False, "seen"),
        ("no such place", True, "Error: no such place"), (None, True, "Error"),
    ],
)  # fmt: skip
def test_a_result(content: Any, failed: bool | None, text: str) -> None:
    made = read(USER, assistant(USE), user({**RESULT, "content": content, "is_error": failed}))
    assert made[-1] == {"role": "tool", "tool_call_id": "1", "content": text}


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}}
PARTS = {"type": "document", "source": {"type": "content", "content": [TEXT, URL]}, "title": "T"}
FOUND = {"type": "search_result", "source": "https://a", "title": "T", "content": [TEXT, {"type": "text", "text": "b"}]}


@each_row(
    ("block", "text"),
    [
        (DOCUMENT, "It rains."),
        ({**DOCUMENT, "title": "T", "context": "C", "citations": {"enabled": True}}, "T\nC\nIt rains."),
        ({"type": "document", "source": {"type": "content", "content": "It rains."}, "context": None}, "It rains."),
        (FOUND, "T\nhttps://a\na\nb"),
    ],
)
def test_documents_are_texts(block: dict[str, Any], text: str) -> None:
    assert read(user(block)) == [{"role": "user", "content": text}]
    made = read(USER, assistant(USE), user({**RESULT, "content": [block]}))
    assert made[-1] == {"role": "tool", "tool_call_id": "1", "content": text}


def test_a_document_with_an_image() -> None:
    assert read(user(PARTS)) == [{"role": "user", "content": [{"type": "text", "text": "T\na"}, image()]}]
    assert names(user(PARTS)) == named(0, 1, "messages[0].content[0].source.content[1]", "source.url")


def test_thinking_of_others_is_left_out() -> None:
    made = read(USER, assistant({"type": "redacted_thinking", "data": "x"}, TEXT), USER)
    assert made[1] == {"role": "assistant", "content": "a"}


@each_row(
    ("last", "continues"), [(USER, False), (assistant(TEXT), True), ({"role": "assistant", "content": "The"}, True)]
)
def test_whether_the_answer_goes_on(last: dict[str, Any], continues: bool) -> None:
    assert conversation_of({"messages": [USER, last]}, SETTINGS)[1] is continues


EMPTY: list[Any] = ["", [], [{"type": "text", "text": ""}], [{"type": "redacted_thinking", "data": "x"}]]


@each_row("content", EMPTY)
def test_an_empty_last_message_is_no_beginning(content: Any) -> None:
    """Anthropic's API takes one there, and there alone."""
    empty = {"role": "assistant", "content": content}
    made, continues = conversation_of({"messages": [USER, empty]}, SETTINGS)
    assert (template_messages(made.messages()), continues) == ([USER], False)
    with pytest.raises(ParameterError, match=r"^messages: expected at least one message from the role user"):
        conversation_of({"messages": [empty]}, SETTINGS)


# --- What is refused ---

AT = "messages[0].content[0]"


@each_row(
    ("messages", "kind", "place"),
    [
        (None, PayloadError, "messages"),
        ({}, PayloadError, "messages"),
        ([], ParameterError, "messages"),
        ([5], PayloadError, "messages[0]"),
        ([{"content": "a"}], PayloadError, "messages[0].role"),
        ([{"role": "king", "content": "a"}], UnsupportedError, "messages[0].role"),
        ([{"role": "tool", "content": "a"}], UnsupportedError, "messages[0].role"),
        ([{"role": "system", "content": "a"}], ParameterError, "messages"),
        ([{"role": "user"}], PayloadError, "messages[0].content"),
        ([{"role": "user", "content": 5}], PayloadError, "messages[0].content"),
        ([user(5)], PayloadError, AT),
        ([user({})], PayloadError, f"{AT}.type"),
        ([user(USE)], UnsupportedError, f"{AT}.type"),
        ([user({"type": "container_upload"})], UnsupportedError, f"{AT}.type"),
        ([user({"type": "document"})], PayloadError, f"{AT}.source"),
        ([user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "a"}})],
         UnsupportedError, f"{AT}.source.type"),
        ([user({"type": "document", "source": {"type": "text", "data": 5}})], PayloadError, f"{AT}.source.data"),
        ([user({**DOCUMENT, "title": 5})], PayloadError, f"{AT}.title"),
        ([user({**DOCUMENT, "title": []})], PayloadError, f"{AT}.title"),
        ([user({"type": "document", "source": {"type": "content", "content": [RESULT]}})],
         UnsupportedError, f"{AT}.source.content[0].type"),
        ([user({**FOUND, "content": [URL]})], UnsupportedError, f"{AT}.content[0].type"),
        ([user({"type": "tool_reference", "tool_name": "a"})], UnsupportedError, f"{AT}.type"),
        ([user({**RESULT, "content": [{"type": "tool_reference"}]})], PayloadError, f"{AT}.content[0].tool_name"),
        ([assistant(RESULT)], UnsupportedError, f"{AT}.type"),
        ([assistant(URL)], UnsupportedError, f"{AT}.type"),
        ([{"role": "system", "content": [URL]}], UnsupportedError, f"{AT}.type"),
        ([user({"type": "text"})], PayloadError, f"{AT}.text"),
        ([user({"type": "image"})], PayloadError, f"{AT}.source"),
        ([user({"type": "image", "source": {}})], PayloadError, f"{AT}.source.type"),
        ([user({"type": "image", "source": {"type": "file"}})], UnsupportedError, f"{AT}.source.type"),
        ([user({"type": "image", "source": {"type": "base64", "media_type": "a", "data": ""}})],
         ParameterError, f"{AT}.source.media_type"),
        ([user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}})],
         PayloadError, f"{AT}.source.data"),
        ([user({"type": "image", "source": {"type": "url", "url": "a.png"}})], ParameterError, f"{AT}.source.url"),
        ([assistant({**USE, "id": ""})], ParameterError, f"{AT}.id"),
        ([assistant({**USE, "name": None})], PayloadError, f"{AT}.name"),
        ([assistant({**USE, "input": 5})], PayloadError, f"{AT}.input"),
        ([assistant({"type": "thinking"})], PayloadError, f"{AT}.thinking"),
        ([assistant({**THINKING, "signature": 5})], PayloadError, f"{AT}.signature"),
        ([user({**RESULT, "tool_use_id": None})], PayloadError, f"{AT}.tool_use_id"),
        ([user({**RESULT, "is_error": "no"})], PayloadError, f"{AT}.is_error"),
        ([user({**RESULT, "content": 5})], PayloadError, f"{AT}.content"),
        ([user({**RESULT, "content": [RESULT]})], UnsupportedError, f"{AT}.content[0].type"),
        ([USER, assistant(USE)], ParameterError, "messages[1].content"),
        ([USER, assistant(THINKING)], ParameterError, "messages[1].content"),
        ([user({**TEXT, "texts": "a"})], UnsupportedError, "messages[].content[].texts"),
        ([{**USER, "name": "a"}], UnsupportedError, "messages[].name"),
    ],
)  # fmt: skip
def test_a_message_that_is_refused(messages: Any, kind: type[RequestError], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        conversation_of({"messages": messages}, STRICT)
    assert type(caught.value) is kind, caught.value
    assert caught.value.param == place
    assert caught.value.message.startswith(f"{place}: ")


@each_row(
    ("system", "place"),
    [(5, "system"), ([5], "system[0]"), ([{"type": "text"}], "system[0].text"),
     ([URL], "system[0].type")],
)  # fmt: skip
def test_a_system_prompt_that_is_refused(system: Any, place: str) -> None:
    with pytest.raises(RequestError) as caught:
        conversation_of({"messages": [USER], "system": system}, STRICT)
    assert caught.value.param == place


# --- vLLM's server ---


def usual(message: dict[str, Any]) -> dict[str, Any]:
    """Without what is ours alone: reasoning's older name, a content beside calls, ids."""
    kept = {name: value for name, value in message.items() if name != "reasoning_content" and value}
    if "tool_calls" in kept:
        functions = [one["function"] for one in kept["tool_calls"]]
        kept["tool_calls"] = [(one["name"], json.loads(one["arguments"])) for one in functions]
    if "tool_call_id" in kept:
        kept["tool_call_id"] = kept["tool_call_id"].removeprefix("toolu_")
    return kept


@pytest.mark.engine
@pytest.mark.once
@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [USER]},
        {"messages": [user(TEXT)], "system": "Be brief"},
        {"messages": [user(BASE64, TEXT)], "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, TEXT]},
        {"messages": [USER, assistant(THINKING, TEXT), user(TEXT, URL)]},
        {"messages": [USER, assistant(TEXT, USE), user(RESULT, TEXT)]},
        {"messages": [USER, assistant({"type": "redacted_thinking", "data": "x"}, USE), user(RESULT)]},
        {"messages": [USER, assistant(USE), user({**RESULT, "content": [TEXT, {"type": "text", "text": "b"}]})]},
        {"messages": [USER, assistant(USE), user({**RESULT, "content": [TEXT, URL]})]},
        {"messages": [USER, {"role": "system", "content": "Be brief"}, assistant(TEXT), USER]},
    ],
)
def test_it_is_what_vllms_server_makes_of_it(fields: dict[str, Any]) -> None:
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages

    request = AnthropicMessagesRequest.model_validate({"model": "m", "max_tokens": 5, **fields})
    # With True it has at the beginning what system messages say, for templates that want it there.
    theirs = AnthropicServingMessages._convert_anthropic_to_openai_request(request, merge_inline_system=False)

    made, _ = conversation_of(fields, SETTINGS)
    ours = template_messages(made.messages())
    assert [usual(one) for one in ours] == [usual(one) for one in theirs.model_dump()["messages"]]
