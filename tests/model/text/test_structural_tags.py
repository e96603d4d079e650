"""What a structural tag may be made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.model.text.structural_tags import check_structural_tag

from ...kit.rows import each_row

SLOW = "((a{1,100}){1,100}){1,100}"
OBJECT = {"type": "json_schema", "json_schema": {"type": "object"}}


def nested(depth: int) -> Any:
    made: Any = {"type": "const_string", "value": "a"}
    for _ in range(depth):
        made = {"type": "optional", "content": made}
    return made


def tagged(content: Any, **more: Any) -> Any:
    return {"type": "tag", "begin": "<a>", "content": content, "end": "</a>", **more}


@each_row(
    "tag",
    [
        {"format": OBJECT},
        {"format": {"type": "any_text"}},
        {"format": tagged(OBJECT, end=["</a>", "</b>"])},
        {"format": {"type": "sequence", "elements": [OBJECT, {"type": "regex", "pattern": "a{1,10}"}]}},
        {"format": {"type": "or", "elements": [OBJECT, {"type": "grammar", "grammar": 'root ::= "a"'}]}},
        # Tags within others may leave out that they are.
        {"format": {"type": "triggered_tags", "triggers": ["<"], "tags": [
            {"begin": "<a>", "content": OBJECT, "end": "</a>"}]}},
        {"format": {"type": "tags_with_separator", "tags": [tagged(OBJECT)], "separator": ","}},
        {"format": {"type": "json_schema", "json_schema": True}},
        {"format": {"type": "qwen_xml_parameter", "json_schema": {"type": "object"}}},
        {"format": nested(15)},
        {"structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}], "triggers": ["<"]},
    ],
)  # fmt: skip
def test_a_tag(tag: Any) -> None:
    check_structural_tag(json.dumps(tag))


@each_row(
    ("tag", "message"),
    [
        ([], "expected an object"),
        ({}, "expected a format to be an object with a type"),
        ({"format": nested(16)}, "it is nested too deeply, expected at most 16 formats within formats"),
        ({"format": {"type": "star", "content": OBJECT}}, "it has a format of the type 'star', expected one of "),
        ({"format": {"type": ["tag"]}}, r"it has a format of the type \['tag'\]"),
        ({"format": {"type": "any_text", "max_tokens": 5}}, "it has max_tokens, which is not supported"),
        ({"format": tagged(OBJECT, begin={"type": "token", "token": 5})}, "it has a token as the begin of a tag"),
        ({"format": {"type": "sequence", "elements": [5]}}, "expected a format to be an object"),
        ({"format": tagged({"type": "regex", "pattern": SLOW})}, "it has counts within counts"),
        ({"format": tagged({"type": "json_schema", "json_schema": {"pattern": SLOW}})}, "it has counts within counts"),
        ({"format": {"type": "qwen_xml_parameter", "json_schema": {"pattern": SLOW}}}, "it has counts within counts"),
        ({"structures": [{"schema": {"pattern": SLOW}}]}, "it has counts within counts"),
        ({"format": {"type": "const_string", "value": "a" * 65536}}, "it is too long, expected at most 65536 char"),
    ],
)
def test_what_is_refused(tag: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_structural_tag(json.dumps(tag))


def test_what_is_no_json() -> None:
    for text in ("{", "[" * 50_000):
        with pytest.raises(ValueError, match=r"^it is not JSON"):
            check_structural_tag(text)
