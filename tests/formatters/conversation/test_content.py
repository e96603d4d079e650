"""What messages say: texts and parts, by the types that a dialect declares; parts that the model cannot read."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.formatters.conversation.content import MAX_MESSAGES, Content, Contents, PartForm, text_form

from ...kit.api.conversation import Media, Text, TextKind
from ...kit.api.dialects import parse
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.options import MediaRules, typed_settings
from ...kit.api.types import Settings, said
from ...kit.rows import each_row

STRICT = typed_settings(unknown_parameters="error")
TELLING = typed_settings(media=MediaRules(unreadable_parts="text"))
URL = "https://example.com/a.png"


def _image(read: dict[str, Any], content: Content, place: str, settings: Settings) -> None:
    content.media("image", read["url"], f"{place}.url")


FORMS = {"text": text_form("text", "cached"), "image": PartForm({"url": TextKind()}, ("url",), add=_image)}
USUAL = Contents(FORMS, "from the role 'user'")
INFERRED = Contents(FORMS, infer=lambda part: "image" if "url" in part else None, noun="blocks")


@each_row(
    ("kind", "given", "expected"),
    [
        (USUAL, "", ""),
        (USUAL, "hi", "hi"),
        (USUAL, [], ""),
        (USUAL, [{"type": "text", "text": "hi"}], "hi"),
        (USUAL, [{"type": "text", "text": ""}], ""),
        (USUAL, [{"type": "text", "text": "hi", "cached": {"a": 1}}], "hi"),
        (USUAL, [{"type": "text", "text": one} for one in "ab"], (Text("a"), Text("b"))),
        (USUAL, [{"type": "image", "url": URL}], (Media("image", URL),)),
        (INFERRED, [{"url": URL}, {"type": None, "url": URL}], (Media("image", URL), Media("image", URL))),
    ],
)
def test_what_is_said(kind: Contents, given: Any, expected: Any) -> None:
    content = kind.read("a", given, STRICT)
    assert (content if isinstance(content, str) else content.made()) == expected


def test_where_images_are() -> None:
    parts = [{"type": "image", "url": URL}, {"type": "text", "text": "a"}, {"type": "image", "url": URL}]
    content = USUAL.read("messages[2].content", parts, STRICT)
    assert isinstance(content, Content)
    first, last = "messages[2].content[0].url", "messages[2].content[2].url"
    assert content.fields == {0: first, 2: last}
    # Behind others, too.
    content.add("b")
    content.add(content)
    assert content.fields == {0: first, 2: last, 4: first, 6: last}
    # As the result of a call that failed.
    after = content.after("Error: ")
    assert (after.parts, after.fields) == (
        [Text("Error: a\nb\na\nb"), *[Media("image", URL)] * 4], {1: first, 2: last, 3: first, 4: last}
    )  # fmt: skip


NO_CONTENT: tuple[Any, ...] = (None, 5, {})


@each_row(
    ("kind", "given", "error", "message"),
    [
        *((USUAL, given, PayloadError, f"a: expected a string or a list of parts, got {given!r}")
          for given in NO_CONTENT),
        (INFERRED, 5, PayloadError, "a: expected a string or a list of blocks, got 5"),
        (USUAL, ["x"], PayloadError, "a[0]: expected an object, got 'x'"),
        (USUAL, [{}], PayloadError, "a[0].type: expected 'text' or 'image' from the role 'user', got None"),
        (INFERRED, [{}], PayloadError, "a[0].type: expected 'text' or 'image', got None"),
        (USUAL, [{"type": "odd"}], UnsupportedError,
         "a[0].type: expected 'text' or 'image' from the role 'user', got 'odd'"),
        (USUAL, [{"type": "text"}], PayloadError, "a[0].text: expected a string, got None"),
        (USUAL, [{"type": "text", "text": "a", "odd": 1}], UnsupportedError, "a[].odd: unknown field"),
        (USUAL, ["x"] * (MAX_MESSAGES + 1), ParameterError, "a: expected at most 16384 parts, got 16385"),
        (INFERRED, ["x"] * (MAX_MESSAGES + 1), ParameterError, "a: expected at most 16384 blocks, got 16385"),
    ],
)  # fmt: skip
def test_what_is_refused(kind: Contents, given: Any, error: type[RequestError], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        kind.read("a", given, STRICT)
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.param == message.partition(":")[0]


PICTURE = {"type": "image_url", "image_url": {"url": URL}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
CONTROL = {"cache_control": {"type": "ephemeral"}}
MARKED: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (dialect, "user", {**part, **mark})
        for dialect, mark in (("openai", BREAKPOINT), ("minimal", BREAKPOINT), ("openai", CONTROL), ("azure", CONTROL))
        for part in ({"type": "text", "text": "a"}, PICTURE)
    ),
    ("responses", "user", {"type": "input_text", "text": "a", **BREAKPOINT}),
    ("responses", "user", {"type": "input_image", "image_url": URL, **BREAKPOINT}),
    ("responses", "assistant", {"type": "output_text", "text": "a", **BREAKPOINT}),
    ("anthropic", "user", {"type": "text", "text": "a", **CONTROL}),
    ("anthropic", "user", {"type": "image", "source": {"type": "url", "url": URL}, **CONTROL}),
    ("anthropic", "assistant", {"type": "text", "text": "a", **CONTROL}),
]
"""Parts that say where a prefix ends that is to be cached, by dialect and role."""


@each_row(("dialect", "role", "part"), MARKED)
def test_where_a_cached_prefix_ends_says_nothing_to_the_model(dialect: str, role: str, part: dict[str, Any]) -> None:
    """Prefixes are cached wherever they end. With unknown fields refused, too."""
    plain = {name: value for name, value in part.items() if name not in (*BREAKPOINT, *CONTROL)}
    marked, unmarked = (parse(dialect, body(dialect, one, role), STRICT).generations for one in (part, plain))
    assert said(marked[0].prompt) == said(unmarked[0].prompt)


# --- Parts that the model cannot read ---

PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
UNREADABLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "a PDF": ("anthropic", {"type": "document", "source": PDF, "title": "T"}, "source.type"),
    "a document's URL": ("anthropic", {"type": "document", "source": {"type": "url", "url": URL}}, "source.type"),
    "an image's file": ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.type"),
    "an upload": ("anthropic", {"type": "container_upload", "file_id": "f"}, "type"),
    "an input_file": ("responses", {"type": "input_file", "file_id": "f"}, "type"),
    "an input_file's data": ("responses", {"type": "input_file", "file_data": "JVBERi0=", "filename": "a"}, "type"),
    "an input_image's file": ("responses", {"type": "input_image", "file_id": "f", "detail": "low"}, "file_id"),
    **{
        f"a file of {dialect}": (dialect, {"type": "file", "file": {"data": "AAAA"}}, "type")
        for dialect in ("openai", "azure", "minimal")
    },
}
"""A part of the user's by its dialect, and what of it an error names."""
LISTS = {"responses": "input"}
TEXT_TYPES = {"responses": "input_text"}


def body(dialect: str, part: dict[str, Any], role: str = "user") -> dict[str, Any]:
    text = {"type": TEXT_TYPES.get(dialect, "text"), "text": "What is it?"}
    asked = {LISTS.get(dialect, "messages"): [{"role": role, "content": [text, part]}], "model": "m"}
    return {**asked, "max_tokens": 5} if dialect == "anthropic" else asked


@each_row("name", UNREADABLE)
@each_row("settings", [typed_settings(), STRICT], ids=["usual", "strict"])
def test_a_part_that_cannot_be_read_is_refused(name: str, settings: Settings) -> None:
    dialect, part, field = UNREADABLE[name]
    with pytest.raises(UnsupportedError) as caught:
        parse(dialect, body(dialect, part), settings)
    place = f"{LISTS.get(dialect, 'messages')}[0].content[1].{field}"
    assert caught.value.param == place
    assert caught.value.message.startswith(f"{place}: ")


@each_row("name", UNREADABLE)
def test_an_option_puts_a_text_in_its_place(name: str) -> None:
    dialect, part, _ = UNREADABLE[name]
    (generation,) = parse(dialect, body(dialect, part), TELLING).generations
    told = f"[A part of the type '{part['type']}' was left out: this model cannot read it.]"
    texts = [{"type": "text", "text": text} for text in ("What is it?", told)]
    assert said(generation.prompt) == [{"role": "user", "content": texts}]


def test_one_in_a_result() -> None:
    document = {"type": "document", "source": PDF}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}, document]}
    asked = {"messages": [{"role": "user", "content": [result]}], "max_tokens": 5}
    with pytest.raises(UnsupportedError) as caught:
        parse("anthropic", asked, STRICT)
    assert caught.value.param == "messages[0].content[0].content[1].source.type"
    (generation,) = parse("anthropic", asked, TELLING).generations
    (told,) = said(generation.prompt)
    assert told["content"] == "a\n[A part of the type 'document' was left out: this model cannot read it.]"


def test_its_type_may_be_long() -> None:
    (generation,) = parse("openai", body("openai", {"type": "a" * 100_000}), TELLING).generations
    assert len(said(generation.prompt)[0]["content"][1]["text"]) < 200


FAULTS: list[tuple[Any, type[RequestError], str]] = [
    ("x", PayloadError, "messages[0].content[1]"),
    ({}, PayloadError, "messages[0].content[1].type"),
    ({"type": 5}, PayloadError, "messages[0].content[1].type"),
    ({"type": "text", "text": 5}, PayloadError, "messages[0].content[1].text"),
    ({"type": "image_url", "image_url": {"url": "x"}}, ParameterError, "messages[0].content[1].image_url.url"),
]


@each_row(("part", "kind", "place"), FAULTS)
def test_a_mistake_stays_one(part: Any, kind: type[RequestError], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse("openai", body("openai", part), TELLING)
    assert (type(caught.value), caught.value.param) == (kind, place)


def test_an_unknown_field_stays_one() -> None:
    settings = typed_settings(unknown_parameters="error", media=TELLING.media)
    with pytest.raises(UnsupportedError, match=r"^messages\[\].content\[\].odd: unknown field"):
        parse("openai", body("openai", {"type": "text", "text": "a", "odd": 1}), settings)
