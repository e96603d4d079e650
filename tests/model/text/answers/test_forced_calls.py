"""Forced calls, read from their JSON in any pieces."""

from __future__ import annotations

import json
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmi.model.text.answers.forced_calls import ForcedCalls

from ....kit.answers.events import JoinedCall, join_calls
from ....kit.rows import each_row

letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('{}[]",\\:/ \n', max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(letters, values, max_size=3)
cuts = st.lists(st.integers(0, 400), max_size=12)


def read(function: str | None, text: str, at: list[int]) -> tuple[list[JoinedCall], str]:
    """The calls of a text that comes in pieces, and what else it has."""
    ids = count()
    reader = ForcedCalls(function, lambda _: str(next(ids)))
    ends = sorted({0, len(text), *(cut for cut in at if cut < len(text))})
    fed = [reader.feed(text[start:end], ended=False) for start, end in pairwise(ends)]
    fed.append(reader.feed("", ended=True))
    calls = join_calls((call.index, call.id, call.name, call.arguments) for _, new in fed for call in new)
    return calls, "".join(text for text, _ in fed)


@given(st.lists(st.tuples(letters, objects), min_size=1, max_size=3), st.booleans(), st.sampled_from([None, 1]), cuts)
@example([("f", {"code": "a } b"})], True, None, [*range(60)])
@example([("f", {"code": "\U0001f600"})], True, None, [*range(60)])
def test_required_calls_are_as_they_were_written(
    calls: list[tuple[str, Any]], escaped: bool, indent: int | None, at: list[int]
) -> None:
    text = json.dumps(
        [{"name": name, "parameters": arguments} for name, arguments in calls], ensure_ascii=escaped, indent=indent
    )
    found, rest = read(None, text, at)
    assert rest == ""
    assert [(call.name, call.arguments) for call in found] == calls
    assert all(call.text in text for call in found)
    assert [call.id for call in found] == [str(index) for index in range(len(calls))]


@given(objects, st.booleans(), st.sampled_from([None, 1]), cuts)
def test_a_named_call_is_as_it_was_written(
    arguments: dict[str, Any], escaped: bool, indent: int | None, at: list[int]
) -> None:
    text = json.dumps(arguments, ensure_ascii=escaped, indent=indent)
    found, rest = read("f", f"\n {text} \n", at)
    assert ([(call.name, call.text) for call in found], rest) == ([("f", text)], "")


@each_row("at", [[], [*range(100)]], ids=["whole", "letters"])
@each_row(
    ("text", "calls", "rest"),
    [
        ('[{"parameters": {"a": "}"}, "name": "f"}]', [("f", '{"a": "}"}')], ""),
        (
            '[{"name": "f", "arguments": {"a": "}"}}, {"name": "g", "arguments": {}}]',
            [("f", '{"a": "}"}'), ("g", "{}")],
            "",
        ),
        ('[{"name": "f", "more": [1, "}]"], "parameters": {}}]', [("f", "{}")], ""),
        ('[{"name": "f"}]', [("f", "")], ""),
        ('[{"name": "f", "parameters": null}]', [("f", "null")], ""),
        ('[{"name": "f", "parameters": 12}]', [("f", "12")], ""),
        ('[{"name": "f", "parameters": {"a": "b', [("f", '{"a": "b')], ""),
        ('[{"name": "f", "parameters": {}}, {"name', [("f", "{}")], ""),
        ('[{"name": "f", "parameters": {}}] and so on', [("f", "{}")], "and so on"),
        ("[]", [], "[]"),
        ('[{"parameters": {}}]', [], '[{"parameters": {}}]'),
        ('[{"name": 5, "parameters": {}}]', [], '[{"name": 5, "parameters": {}}]'),
        ("No.", [], "No."),
        ("", [], ""),
    ],
)
def test_what_else_an_answer_may_be(text: str, calls: list[tuple[str, str]], rest: str, at: list[int]) -> None:
    """In another order, cut off, or no such JSON: then it stays text."""
    found, other = read(None, text, at)
    assert ([(call.name, call.text) for call in found], other) == (calls, rest)


@pytest.mark.parametrize("text", ["I will not.", " (none)"])
def test_what_is_no_json_is_no_named_call(text: str) -> None:
    assert read("f", text, []) == ([], text)
