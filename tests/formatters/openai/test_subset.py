"""What the dialects that have OpenAI's reader take of its fields: what they do not declare, they refuse by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.openai.subset import ASKS_NOTHING, known_fields

from ...kit.api.dialects import AZURE_TAKEN, CHAT_ROWS, Integer, Parameter, azure, minimal, receive
from ...kit.api.options import typed_settings
from ...kit.api.types import ParsedRequest, Request, Response
from ...kit.rows import each_row

SETTINGS = typed_settings(model_name="served")
HEADERS = {"extra-parameters": "pass-through"}
DIALECTS = {"minimal": minimal.ACCEPTED_FIELDS, "azure": AZURE_TAKEN}


def asked(dialect: str, fields: dict[str, Any]) -> ParsedRequest | Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True, **fields}
    return receive(Request(json.dumps(body).encode(), HEADERS, attributes={"dialect": dialect}), SETTINGS)


def assert_refused(dialect: str, fields: dict[str, Any], name: str) -> None:
    answer = asked(dialect, fields)
    assert isinstance(answer, Response)
    assert answer.failure is not None
    assert answer.failure.param == name
    assert answer.failure.message == f"{name}: not supported, the responses of this API cannot show it"


@each_row("dialect", DIALECTS)
def test_what_is_taken_is_known(dialect: str) -> None:
    # Azure's client sends the model, which changes nothing.
    assert set(known_fields()) | {"model"} >= DIALECTS[dialect]
    assert {azure.DIALECT.name, minimal.DIALECT.name} == set(DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_field_that_the_reader_learns_is_refused(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Parameter("top_images", Integer(0), None, "top_images")
    monkeypatch.setitem(CHAT_ROWS, row.name, row)
    assert isinstance(asked(dialect, {"top_images": None}), ParsedRequest)
    assert_refused(dialect, {"top_images": 1}, "top_images")


@each_row("dialect", DIALECTS)
@each_row(
    ("fields", "name"),
    [
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"kv_transfer_params": {"do_remote_decode": True}}, "kv_transfer_params"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
    ],
    ids=str,
)
def test_what_neither_has_a_place_for(dialect: str, fields: dict[str, Any], name: str) -> None:
    assert_refused(dialect, fields, name)


def test_what_one_has_a_place_for() -> None:
    shown: list[tuple[dict[str, Any], str]] = [
        ({"n": 2}, "n"),
        ({"logprobs": True, "top_logprobs": 1}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    ]
    for fields, name in shown:
        assert isinstance(asked("azure", fields), ParsedRequest)
        assert_refused("minimal", fields, name)


@each_row("dialect", DIALECTS)
def test_what_asks_for_nothing_is_taken(dialect: str) -> None:
    empty = {"functions": [], "kv_transfer_params": {}, "logprobs": False, "prompt_logprobs": None}
    values = {name: value for name, value in ASKS_NOTHING.items() if name != "function_call"}
    for name, (first, *_) in values.items():
        assert isinstance(asked(dialect, {name: first}), ParsedRequest), name
    assert isinstance(asked(dialect, empty), ParsedRequest)
    assert isinstance(asked(dialect, {"function_call": "none"}), ParsedRequest)
