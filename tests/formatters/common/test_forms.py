"""Declarations of objects and lists: what is read, what is refused where, and that their schemas say the same."""

from __future__ import annotations

import logging
from typing import Any

import jsonschema
import pytest

from lmi.formatters.common.forms import Form, Listed, Tagged

from ...kit.api.conversation import Boolean, Filled, Integer, Nested, TextKind
from ...kit.api.dialects import forget_logged_names
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.rows import each_row

IGNORING = typed_settings()
STRICT = typed_settings(unknown_parameters="error")

FORM = Form({"name": Filled(), "size": Integer(1, 5), "id": None}, ("name",))
INNER = Form({"inner": FORM, "words": Listed(TextKind(("a", "b")), 1, 3, "words")})
SHAPE = Tagged("type", {"circle": Form({"radius": Integer(1)}, ("radius",)), "dot": Form({})}, " in a picture")
INFERRED = Tagged("type", SHAPE.forms, infer=lambda given: "circle" if "radius" in given else None)
OTHERS = Tagged("type", SHAPE.forms, other=Form({"text": TextKind()}, ("text",)))
LIST = Listed(Integer(0), 1, 3, "numbers")
SHAPES = Listed(SHAPE, noun="shapes")
EMPTY = Listed(Filled())

READ: list[tuple[Nested, Any, Any]] = [
    (FORM, {"name": "a"}, {"name": "a"}),
    (FORM, {"name": "a", "size": 5.0}, {"name": "a", "size": 5}),
    # null is the same as leaving it out.
    (FORM, {"name": "a", "size": None}, {"name": "a"}),
    # Whatever it is, it has no effect.
    (FORM, {"name": "a", "id": {"odd": 1}}, {"name": "a"}),
    (INNER, {}, {}),
    (INNER, {"inner": {"name": "a", "id": None}, "words": ["b"]}, {"inner": {"name": "a"}, "words": ["b"]}),
    (SHAPE, {"type": "circle", "radius": 2}, ("circle", {"radius": 2})),
    (SHAPE, {"type": "dot"}, ("dot", {})),
    (INFERRED, {"radius": 2}, ("circle", {"radius": 2})),
    (INFERRED, {"type": None, "radius": 2}, ("circle", {"radius": 2})),
    # What says its type is what it says.
    (INFERRED, {"type": "dot"}, ("dot", {})),
    (OTHERS, {"type": "label", "text": "a"}, ("label", {"text": "a"})),
    (OTHERS, {"type": "dot"}, ("dot", {})),
    (LIST, [0], [0]),
    (LIST, [1, 2.0, 3], [1, 2, 3]),
    (EMPTY, [], []),
    (EMPTY, ["a"] * 100, ["a"] * 100),
    (SHAPES, [{"type": "dot"}, {"type": "circle", "radius": 1}], [("dot", {}), ("circle", {"radius": 1})]),
]


@each_row("settings", [IGNORING, STRICT], ids=["ignoring", "strict"])
@each_row(("kind", "given", "expected"), READ)
def test_what_is_read(kind: Nested, given: Any, expected: Any, settings: Any) -> None:
    assert kind.read("a", given, settings) == expected


NO_OBJECTS: tuple[Any, ...] = (5, [], "x", None)
NO_STRINGS: tuple[Any, ...] = (5, [], {})
NO_LISTS: tuple[Any, ...] = (5, {}, "x", None)
TYPES = "'circle' or 'dot' in a picture"
REFUSED: list[tuple[Nested, Any, type[RequestError], str]] = [
    *((FORM, given, PayloadError, f"a: expected an object, got {given!r}") for given in NO_OBJECTS),
    (FORM, {}, PayloadError, "a.name: expected a non-empty string, got None"),
    (FORM, {"name": None}, PayloadError, "a.name: expected a non-empty string, got None"),
    (FORM, {"name": ""}, ParameterError, "a.name: expected a non-empty string, got ''"),
    (FORM, {"name": "a", "size": "5"}, PayloadError, "a.size: expected an integer >= 1, got '5'"),
    (FORM, {"name": "a", "size": 6}, ParameterError, "a.size: expected an integer from 1 to 5, got 6"),
    (INNER, {"inner": {}}, PayloadError, "a.inner.name: expected a non-empty string, got None"),
    (INNER, {"words": ["a", "c"]}, ParameterError, "a.words[1]: expected one of a, b, got 'c'"),
    *((SHAPE, given, PayloadError, f"a: expected an object, got {given!r}") for given in NO_OBJECTS),
    *(
        (SHAPE, {"type": given}, PayloadError, f"a.type: expected {TYPES}, got {given!r}")
        for given in (None, *NO_STRINGS)
    ),
    (SHAPE, {"radius": 2}, PayloadError, f"a.type: expected {TYPES}, got None"),
    (SHAPE, {"type": "square"}, UnsupportedError, f"a.type: expected {TYPES}, got 'square'"),
    (SHAPE, {"type": "circle"}, PayloadError, "a.radius: expected an integer >= 1, got None"),
    (INFERRED, {}, PayloadError, "a.type: expected 'circle' or 'dot', got None"),
    (INFERRED, {"type": "square", "radius": 2}, UnsupportedError, "a.type: expected 'circle' or 'dot', got 'square'"),
    # What is no string is no other one either.
    (OTHERS, {"type": 5, "text": "a"}, PayloadError, "a.type: expected 'circle' or 'dot', got 5"),
    (OTHERS, {"text": "a"}, PayloadError, "a.type: expected 'circle' or 'dot', got None"),
    (OTHERS, {"type": "label"}, PayloadError, "a.text: expected a string, got None"),
    *((LIST, given, PayloadError, f"a: expected a list of numbers, got {given!r}") for given in NO_LISTS),
    (LIST, [], ParameterError, "a: expected a list of numbers, at least 1, got []"),
    (LIST, [1] * 4, ParameterError, "a: expected at most 3 numbers, got 4"),
    # It is counted before its entries are read.
    (LIST, ["x"] * 4, ParameterError, "a: expected at most 3 numbers, got 4"),
    (LIST, [1, "x"], PayloadError, "a[1]: expected an integer >= 0, got 'x'"),
    (EMPTY, [""], ParameterError, "a[0]: expected a non-empty string, got ''"),
    (SHAPES, [{"type": "dot"}, {"type": 5}], PayloadError, f"a[1].type: expected {TYPES}, got 5"),
]


@each_row(("kind", "given", "error", "message"), REFUSED)
def test_what_is_refused(kind: Nested, given: Any, error: type[RequestError], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        kind.read("a", given, IGNORING)
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.param == message.partition(":")[0]


UNKNOWN: list[tuple[Nested, Any, Any, str]] = [
    (FORM, {"name": "a", "nam": 1}, {"name": "a"}, "a.nam"),
    (INNER, {"inner": {"name": "a", "odd": 1}}, {"inner": {"name": "a"}}, "a.inner.odd"),
    # One line for all that are in a list.
    (SHAPES, [{"type": "dot"}, {"type": "dot", "odd": 1}], [("dot", {}), ("dot", {})], "a[].odd"),
]


@pytest.mark.parametrize(("kind", "given", "expected", "field"), UNKNOWN)
def test_unknown_fields(
    kind: Nested,
    given: Any,
    expected: Any,
    field: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_logged_names(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert kind.read("a", given, IGNORING) == expected
    assert caplog.messages == [f"unknown request field ignored: {field}"]
    with pytest.raises(UnsupportedError) as caught:
        kind.read("a", given, STRICT)
    assert caught.value.param == field
    assert caught.value.message.startswith(f"{field}: unknown field")


def test_a_name_that_is_nearly_known() -> None:
    with pytest.raises(UnsupportedError, match=r"^a.nam: unknown field; did you mean a.name\?$"):
        FORM.read("a", {"name": "a", "nam": 1}, STRICT)


def taken(kind: Nested, given: Any) -> bool:
    validator: Any = jsonschema.Draft202012Validator(kind.schema)
    return bool(validator.is_valid(given))


@each_row(("kind", "given"), [(kind, given) for kind, given, _ in READ])
def test_the_schema_takes_what_is_read(kind: Nested, given: Any) -> None:
    assert taken(kind, given)


@each_row(("kind", "given"), [(kind, given) for kind, given, _, _ in REFUSED])
def test_the_schema_refuses_what_is_refused(kind: Nested, given: Any) -> None:
    # That a type may be left out where there is something to tell it by, no schema says.
    assert not taken(kind, given) or (kind is INFERRED and given == {})


@each_row(
    ("kind", "description"),
    [
        (FORM, "an object with name, size"),
        (SHAPE, "an object with type 'circle', 'dot'"),
        (LIST, "a list of numbers"),
        (Listed(Boolean()), "a list of entries"),
    ],
)
def test_descriptions(kind: Nested, description: str) -> None:
    assert kind.description == description
