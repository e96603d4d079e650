"""LMI's GenerationParameters: what they ask for together, and the inference of sampling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lmi.formatters.lmi import parse
from lmi.formatters.lmi.parameters import TABLE

from ...kit.api.errors import LmiError, ParameterError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Beams, Request, Sampling
from ...kit.rows import each_row

SETTINGS = typed_settings()
STRICT = msgspec.structs.replace(SETTINGS, unknown_parameters="error")

GREEDY = Sampling(
    temperature=0.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    typical_p=1.0,
    max_tokens=30,
)
"""What no parameters at all give: LMI's schema's defaults, and none left to the model's generation_config."""


def sampling(parameters: dict[str, Any]) -> Sampling:
    return parse({"inputs": "a", "parameters": parameters}, Request(b""), STRICT).generations[0].sampling


def changed(parameters: dict[str, Any]) -> dict[str, Any]:
    """The fields of Sampling that `parameters` change."""
    now, then = (msgspec.structs.asdict(value) for value in (sampling(parameters), GREEDY))
    return {name: value for name, value in now.items() if value != then[name]}


def beams(width: int, **more: Any) -> Beams:
    return Beams(width=width, **more)


def refused(parameters: dict[str, Any]) -> LmiError:
    with pytest.raises(LmiError) as caught:
        sampling(parameters)
    return caught.value


def test_defaults() -> None:
    assert sampling({}) == GREEDY
    assert sampling({row.name: None for row in TABLE}) == GREEDY


SAMPLED = {"temperature": 1.0}

EFFECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"seed": 0}, {"seed": 0}),
    ({"seed": -1}, {}),
    ({"temperature": 2}, {"temperature": 2.0}),
    ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
    ({"stop_sequences": []}, {}),
    ({"stop": True}, {}),
    ({"stop": True, "stop_sequences": ["a"]}, {"stop": ("a",)}),
    ({"min_length": 5}, {"min_tokens": 5}),
    # Values that have no effect pass.
    ({"typical_p": 1}, {}),
    ({"n": 1, "best_of": 1, "num_beams": 1}, {}),
    # The likeliest comes first; the answer has all of n, or of best_of alone.
    ({"n": 3}, {"n": 3, "best_of": 3}),
    ({"best_of": 4}, {"n": 4, "best_of": 4}),
    ({"n": 2, "best_of": 4}, {"n": 2, "best_of": 4}),
    ({"num_beams": 3}, {"n": 3, "beams": beams(3)}),
    ({"num_beams": 3, "n": 2}, {"n": 2, "beams": beams(3)}),
    (
        {"num_beams": 2, "length_penalty": -1, "early_stopping": "never", "do_sample": False, "temperature": 0.5},
        {"n": 2, "beams": beams(2, length_penalty=-1.0, early_stopping="never")},
    ),
    ({"num_beams": 2, "early_stopping": True, "temperature": 1}, {"n": 2, "beams": beams(2, early_stopping=True)}),
    ({"num_beams": 2, "temperature": 0, "top_p": 0.5, "best_of": 1}, {"n": 2, "beams": beams(2)}),
    ({"length_penalty": 2, "early_stopping": True}, {}),
    # What they ask for depends on what the answer shows (tests/formatters/lmi/test_requests.py).
    ({"logprobs": 5, "prompt_logprobs": 5}, {}),
]
"""What no row of docs/parameters.md tells; that says of each parameter what it sets, and its values."""


@each_row(("parameters", "fields"), EFFECTS)
def test_effect(parameters: dict[str, Any], fields: dict[str, Any]) -> None:
    assert changed(parameters) == fields


INFERENCE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"do_sample": None}, {}),
    ({"do_sample": True}, SAMPLED),
    ({"do_sample": False}, {}),
    ({"do_sample": False, "temperature": 0.7, "top_p": 0.5, "top_k": 3, "min_p": 0.1}, {}),
    ({"do_sample": True, "temperature": 0.7}, {"temperature": 0.7}),
    ({"do_sample": True, "temperature": 0}, {}),
    ({"do_sample": True, "top_k": 3}, {**SAMPLED, "top_k": 3}),
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": 1.0}, SAMPLED),
    ({"temperature": 0}, {}),
    ({"temperature": 0.0, "top_p": 0.5}, {}),
    ({"temperature": None}, {}),
    ({"top_p": 1}, {}),
    ({"top_p": 1.0, "top_k": 0}, {}),
    ({"top_k": -1}, {}),
    ({"top_k": None, "top_p": None}, {}),
    ({"min_p": 0}, {}),
    ({"top_p": 0.9}, {**SAMPLED, "top_p": 0.9}),
    ({"typical_p": 0.9}, {**SAMPLED, "typical_p": 0.9}),
    ({"top_k": 1}, {**SAMPLED, "top_k": 1}),
    # None of these says how a token is drawn.
    ({"seed": 5, "repetition_penalty": 1.1}, {"seed": 5, "repetition_penalty": 1.1}),
]


@each_row(("parameters", "fields"), INFERENCE)
def test_sampling_is_inferred(parameters: dict[str, Any], fields: dict[str, Any]) -> None:
    """Without do_sample (docs/decisions.md: Greedy or sampled)."""
    assert changed(parameters) == fields


MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"min_length": 31}, ParameterError,
     "parameters.min_length: expected an integer up to 30 (max_new_tokens), got 31"),
    ({"n": 3, "best_of": 2}, ParameterError, "parameters.best_of: expected an integer from 3 (n) to 128, got 2"),
    ({"num_beams": 2, "n": 3}, ParameterError, "parameters.n: expected an integer up to 2 (num_beams), got 3"),
]  # fmt: skip


@each_row(("parameters", "kind", "message"), MESSAGES)
def test_message(parameters: dict[str, Any], kind: type[LmiError], message: str) -> None:
    error = refused(parameters)
    assert type(error) is kind
    assert error.message == message
    assert error.param == message.partition(":")[0]


@each_row(
    ("name", "value"),
    [
        ("do_sample", True),
        ("temperature", 0.7),
        ("top_k", 5),
        ("top_p", 0.9),
        ("min_p", 0.1),
        ("typical_p", 0.5),
        ("best_of", 2),
        ("repetition_penalty", 1.1),
        ("presence_penalty", 1),
        ("frequency_penalty", -1),
        ("bad_sequences", ["x"]),
        ("logit_bias", {"5": 1}),
        ("allowed_token_ids", [5]),
        ("thinking_token_budget", 5),
        ("vllm_xargs", {"a": 1}),
        ("structured_outputs", {"regex": "a"}),
    ],
)
def test_what_does_not_go_with_beams(name: str, value: Any) -> None:
    error = refused({"num_beams": 2, name: value})
    assert type(error) is UnsupportedError
    assert error.message == f"parameters.{name}: cannot be combined with parameters.num_beams above 1"
