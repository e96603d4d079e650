"""What is said of a body that is no JSON: the field of a number that is none, the byte that is not UTF-8, and else the
decoder's own words. tests/formatters/test_detection.py has the ordinary ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ...kit.api.dialects import look_through_in_pieces, read_json
from ...kit.api.errors import PayloadError
from ...kit.rows import each_row

NAN = math.nan
LONG = 'a "text" with \\ and [{,:}] ' * 20_000


def told(body: bytes | Any) -> str:
    with pytest.raises(PayloadError) as caught:
        read_json(body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value.message


FIELDS: list[tuple[Any, str]] = [
    ({"inputs": LONG, "parameters": {"temperature": NAN}}, "parameters.temperature"),
    ({"messages": [{"role": "user", "content": LONG}, {"content": [{"a": 1}, {"b": [1, NAN]}]}]},
     "messages[1].content[1].b[1]"),
    ({"a": {"b": [{"c": [[], {}, ""]}]}, "d": [NAN]}, "d[0]"),
    ({'a"[': {"{\\": {",": NAN}}}, "a[.{.,"),
    ({"x" * 200: NAN}, "..."),
    ({"é": {"日本": NAN}}, "é.日本"),
    # Beside much else the last name is told.
    ({"prompt": [*range(100_000), NAN]}, "prompt"),
    ({"messages": [{"role": "user", "content": "a"}] * 2_000 + [{"top_p": NAN}]}, "top_p"),
    ({"a": json.loads("[" * 50 + "]" * 50), "b": NAN}, "b"),
]  # fmt: skip


@each_row(("body", "field"), FIELDS, ids=range(len(FIELDS)))
def test_the_field_of_a_number_that_is_none(body: Any, field: str) -> None:
    for number in (NAN, math.inf, -math.inf):
        text = json.dumps(body).replace("NaN", json.dumps(number))
        assert told(text.encode()) == f"{field}: expected a finite number, got {json.dumps(number)}"
        assert told(json.dumps(json.loads(text), ensure_ascii=False).encode()) == told(text.encode())


BYTES: list[tuple[bytes, str]] = [
    (b'{"a":1,"b":2,"a":NaN}', "a: expected a finite number, got NaN"),
    (b'{"a":[1],"b":[2],"a":[NaN]}', "a: expected a finite number, got NaN"),
    (b'{"a": 1.5, "b": [0, 12e0998 ]}', "b[1]: expected a finite number, got 12e0998"),
    (b'{"a": 1e002, "b": -1.25E+400}', "b: expected a finite number, got -1.25E+400"),
    (b'{"a": "1e999", "b": ' + b"7" * 5000 + b", NaN", "b: expected a finite number, got " + "7" * 120),
    (b'{"a": "\\ud83e\\u0041"}', "the body has a \\u escape of an unpaired surrogate"),
    (b'{"a": "\\ude00"}', "the body has a \\u escape of an unpaired surrogate"),
    (b'{"a": 1, \xe9: 2}', "the body is not UTF-8: invalid continuation byte at byte 9"),
    (b'{"a": "\xc3', "the body is not JSON: Input data was truncated"),
    (b'{"a": 1e999, "b": [' + b"1," * 100_000 + b"1]}", "the body is not JSON: Number out of range"),
    ('{"a": 1, “b”: 2}'.encode(), "the body is not JSON: JSON is malformed: "),
    # There is no name near.
    (b'{"a":[' + b"1," * 1_000_000 + b"NaN]}", "the body at byte 2000006: expected a finite number, got NaN"),
    # No value can stand there.
    (b"{NaN: 1}", "the body is not JSON: JSON is malformed: "),
    (b'{"a": 1} NaN', "the body is not JSON: JSON is malformed: trailing characters"),
    (b'{"a": Nan}', "the body is not JSON: JSON is malformed: invalid character (byte 6)"),
]


@each_row(("body", "message"), BYTES, ids=range(len(BYTES)))
def test_other_faults(body: bytes, message: str) -> None:
    assert told(body).startswith(message)


@pytest.mark.parametrize("before", range(5))
def test_a_byte_is_counted_from_the_beginning(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """Wherever the pieces begin that the body is looked through in."""
    look_through_in_pieces(monkeypatch, 3)
    good = b'{"a": "' + "日本é".encode() * 4 + b"a" * before
    for bad in (b"\xff", b"\xe6\x97x", b"\xc3\xc3"):
        body = good + bad + b'"}'
        with pytest.raises(UnicodeDecodeError) as caught:
            body.decode()
        assert told(body) == f"the body is not UTF-8: {caught.value.reason} at byte {caught.value.start}"


NAMES = st.text(alphabet="ab{[]},:é \n", max_size=4)
MEMBERS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='a"\\[]{},: é', max_size=4)
VALUES = st.recursive(
    MEMBERS | st.just(NAN), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4)
)


def places(value: Any, path: str = "") -> Iterator[str]:
    """Of each NaN, in their order."""
    if isinstance(value, float):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, f"{path}.{name}" if isinstance(value, dict) else f"{path}[{name}]")


@settings(max_examples=50)
@given(st.dictionaries(NAMES, VALUES))
def test_the_first_of_them_is_named(body: dict[str, Any]) -> None:
    if first := next(places(body), ""):
        message = f"{first.removeprefix('.') or 'the body'}: expected a finite number, got NaN"
        assert told(body) == " ".join(message.split())
