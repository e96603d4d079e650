"""Bodies of very many small values: refused before anything is built of them, or by their number at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi.formatters.common import body_size
from lmi.formatters.common.body_size import CONTAINERS, STRINGS, VALUES, check_body
from lmi.formatters.common.kinds import LARGEST_ID
from lmi.formatters.common.prompts import PromptIds

from ...kit.api.dialects import CONVERSING, MAX_MESSAGES, decode_nothing, receive
from ...kit.api.dialects import MAX_DOCUMENTS as DOCUMENTS
from ...kit.api.dialects import MAX_TOOLS as TOOLS
from ...kit.api.errors import ParameterError, RequestError
from ...kit.api.options import make_settings
from ...kit.api.types import ParsedRequest, Request, Response
from ...kit.rows import each_row

SETTINGS = make_settings()
MESSAGE = b'{"role":"user","content":"a"}'
SIZE = 70_000_000


def received(body: bytes | dict[str, Any], **request: Any) -> ParsedRequest | Response:
    return receive(Request(body if isinstance(body, bytes) else json.dumps(body).encode(), **request), SETTINGS)


def refusal(body: bytes | dict[str, Any], **request: Any) -> str:
    answer = received(body, **request)
    assert isinstance(answer, Response)
    assert answer.failure is not None
    return answer.failure.message


def listed(one: bytes, count: int, before: bytes = b'{"messages":[', after: bytes = b"]}") -> bytes:
    return before + b",".join([one] * count) + after


def test_seventy_megabytes_of_messages_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    decode_nothing(monkeypatch)
    body = listed(MESSAGE, SIZE // (len(MESSAGE) + 1))
    assert len(body) > 0.99 * SIZE
    for path in ("/invocations", "/v1/chat/completions"):
        assert f"the body: expected at most {STRINGS} strings, got " in refusal(body, path=path)


@each_row(
    ("make", "what"),
    [
        (lambda: listed(b"[]", CONTAINERS + 1), "objects and arrays"),
        (lambda: listed(b"{}", CONTAINERS + 1), "objects and arrays"),
        (lambda: listed(b"1", VALUES + 2), "values"),
        (lambda: listed(b'""', STRINGS + 1) + b"[{," * VALUES, "strings"),
        (lambda: listed(b'""', STRINGS + 1), "strings"),
        (lambda: json.dumps({f"{key:08}": 1 for key in range(STRINGS + 1)}).encode(), "strings"),
        (lambda: b"[" * (CONTAINERS + 1), "objects and arrays"),
    ],
    ids=["arrays", "objects", "numbers", "strings among many", "strings", "keys", "depth"],
)
def test_other_values(make: Callable[[], bytes], what: str) -> None:
    with pytest.raises(ParameterError, match=f"the body: expected at most [0-9]+ {what}, got"):
        check_body(make())


@each_row(
    "make",
    [
        lambda: b"[" + listed(b"{}", CONTAINERS - 1, b"", b"]"),
        lambda: listed(b"1", VALUES + 1, b"[", b"]"),
        # What is in a string counts for nothing, wherever the string ends.
        lambda: json.dumps({"inputs": '[{,"\\' * VALUES}).encode(),
        lambda: json.dumps(["\\", '[{,"' * VALUES, '\\"', "\\\\" * 3]).encode(),
        lambda: json.dumps({"prompt": [*range(1_000_000)]}).encode(),
        lambda: json.dumps({f"{key:08}": 1 for key in range(STRINGS)}).encode(),
        lambda: json.dumps({"inputs": '"' * 3 * STRINGS}).encode(),
    ],
    ids=["arrays", "numbers", "text", "strings", "a prompt of a million tokens", "keys", "quotes in a text"],
)
def test_what_is_at_the_limit_or_in_a_text_passes(make: Callable[[], bytes]) -> None:
    check_body(make())


PLAIN = st.none() | st.integers() | st.text(alphabet='a"\\[{,]}:\u00e9')
VALUE = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(alphabet='a"\\[{,'), inner, max_size=8),
    max_leaves=30,
)


def number_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(number_of, inner))


@settings(max_examples=50)
@given(value=st.lists(VALUE, min_size=1), piece=st.integers(1, 7) | st.just(body_size.PIECE))
def test_the_number_is_that_of_the_values_in_any_pieces(value: list[Any], piece: int) -> None:
    """Strings, pairs of backslashes and escaped quotation marks may begin in one piece and end in another."""
    body = json.dumps(value).encode()
    count = number_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_size, "PIECE", piece)
        patch.setattr(body_size, "CONTAINERS", count)
        check_body(body)
        patch.setattr(body_size, "CONTAINERS", count - 1)
        if len(body) >= count:
            with pytest.raises(ParameterError, match=f"objects and arrays, got {count}"):
                check_body(body)


def test_what_is_beyond_the_limit_is_not_looked_through() -> None:
    """Nor counted: it is told how far."""
    body = listed(b"[]", 3 * CONTAINERS)
    with pytest.raises(ParameterError, match=r"objects and arrays, got [0-9]+ in its first 1048576 bytes$"):
        check_body(body)


def chat(count: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a"}] * count}


PARTS = [{"type": "text", "text": "a"}]
CALLS = [{"id": "a", "type": "function", "function": {"name": "a"}}]


def with_calls(count: int) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "tool_calls": CALLS * (count - 1)}]}


def with_parts(count: int) -> dict[str, Any]:
    half = count // 2 - 1
    return {
        "messages": [{"role": "user", "content": PARTS * half}, {"role": "user", "content": PARTS * (count - half - 2)}]
    }


def with_tools(count: int) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "a"}}] * count
    return {**chat(1), "tools": tools, "tool_choice": "required"}


def with_functions(count: int) -> dict[str, Any]:
    return {**chat(1), "functions": [{"name": "a"}] * count, "function_call": {"name": "a"}}


def with_documents(count: int) -> dict[str, Any]:
    return {**chat(1), "documents": [{"text": "a"}] * count}


TOGETHER = "messages, their parts and calls included"


@each_row(
    ("made", "most", "field", "rest"),
    [
        (chat, MAX_MESSAGES, "messages", f" messages, got {MAX_MESSAGES + 1}"),
        (with_parts, MAX_MESSAGES, "messages", f" {TOGETHER}"),
        (with_calls, MAX_MESSAGES, "messages", f" {TOGETHER}"),
        (with_tools, TOOLS, "tools", f" tools, got {TOOLS + 1}"),
        (with_functions, TOOLS, "functions", f" functions, got {TOOLS + 1}"),
        (with_documents, DOCUMENTS, "documents", f" objects, got {DOCUMENTS + 1}"),
    ],
    ids=["messages", "parts", "calls", "tools", "functions", "documents"],
)
def test_lists_of_a_chat(made: Any, most: int, field: str, rest: str) -> None:
    """At the limit and above it."""
    assert isinstance(received(made(most)), ParsedRequest)
    assert refusal(made(most + 1)) == f"{field}: expected at most {most}{rest}"


@each_row(
    ("message", "field", "noun"),
    [
        ({"role": "user", "content": PARTS * (MAX_MESSAGES + 1)}, "content", "parts"),
        ({"role": "assistant", "tool_calls": CALLS * (MAX_MESSAGES + 1)}, "tool_calls", "tool calls"),
        # Nor are they read before they are counted.
        ({"role": "user", "content": [5] * (MAX_MESSAGES + 1)}, "content", "parts"),
    ],
)
def test_a_list_that_is_too_long_by_itself(message: dict[str, Any], field: str, noun: str) -> None:
    expected = f"messages[0].{field}: expected at most {MAX_MESSAGES} {noun}, got {MAX_MESSAGES + 1}"
    assert refusal({"messages": [message]}) == expected


@each_row("dialect", [known.name for known in CONVERSING])
def test_too_many_messages_are_counted_not_read(dialect: str) -> None:
    """In each dialect that has them, before one of them is looked at."""
    name = "input" if dialect == "responses" else "messages"
    body = {"model": "a", "max_tokens": 1, name: [{"role": "nobody"}] * (MAX_MESSAGES + 1)}
    message = refusal(body, attributes={"dialect": dialect})
    assert f"{name}: expected at most {MAX_MESSAGES}" in message


IDS = st.integers(0, LARGEST_ID) | st.integers(0, 1000).map(float)
OTHERS = st.integers(-2, LARGEST_ID + 2) | st.floats() | st.booleans() | st.none() | st.text()


@given(st.lists(IDS, min_size=1) | st.lists(IDS | OTHERS, min_size=1))
def test_token_ids(ids: list[Any]) -> None:
    """As each would be judged by itself."""
    good = [isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= LARGEST_ID and one == int(one)
            for one in ids]  # fmt: skip
    if all(good):
        assert PromptIds().read("prompt", ids) == tuple(map(int, ids))
        assert {*map(type, PromptIds().read("prompt", ids))} == {int}
    else:
        with pytest.raises(RequestError, match=rf"prompt\[{good.index(False)}\]: expected"):
            PromptIds().read("prompt", ids)
