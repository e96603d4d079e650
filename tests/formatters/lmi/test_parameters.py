"""LMI's GenerationParameters: default, effect, wrong type and range of each; the inference of sampling."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from lmi.formatters.lmi import parse
from lmi.formatters.lmi.parameters import ROWS, TABLE

from ...kit.api.dialects import GUIDES, MAX_LOGGED_NAMES, forget_logged_names
from ...kit.api.errors import LmiError, ParameterError, PayloadError, UnsupportedError
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


ANOTHER = "which has another value; set only one of them"

DOCUMENTED = {
    "common": {
        "do_sample", "seed", "temperature", "repetition_penalty", "top_k", "top_p", "max_new_tokens", "details",
        "return_full_text", "stop_sequences", "decoder_input_details",
    },
    "LmiDist": {
        "typical_p", "truncate", "ignore_eos_token", "top_k", "min_p", "presence_penalty", "frequency_penalty", "n",
        "best_of", "num_beams", "length_penalty", "early_stopping", "stop_token_ids", "include_stop_str_in_output",
        "logprobs", "prompt_logprobs", "skip_special_tokens", "spaces_between_special_tokens",
    },
    "vLLM": {
        "top_k", "min_p", "presence_penalty", "frequency_penalty", "n", "best_of", "num_beams", "length_penalty",
        "early_stopping", "stop_token_ids", "include_stop_str_in_output", "ignore_eos_token", "logprobs",
        "prompt_logprobs", "skip_special_tokens", "spaces_between_special_tokens",
    },
    "TensorRT-LLM": {
        "temperature", "top_k", "top_p", "min_length", "bad_sequences", "stop", "presence_penalty", "length_penalty",
        "frequency_penalty",
    },
}  # fmt: skip
"""LMI's schema, GenerationParameters, by its lists."""


@pytest.mark.parametrize("list_name", DOCUMENTED)
def test_every_documented_name_is_in_the_table(list_name: str) -> None:
    assert DOCUMENTED[list_name] <= {row.name for row in TABLE}


def test_every_key_is_of_use() -> None:
    keys = {row.key for row in TABLE} - {None}
    assert keys - set(Sampling.__struct_fields__) == {
        "do_sample",
        "details",
        "return_full_text",
        "decoder_input_details",
        "num_beams",
        "length_penalty",
        "early_stopping",
        "add_special_tokens",
        "cache_salt",
        "priority",
    }


def test_defaults() -> None:
    assert sampling({}) == GREEDY
    assert sampling({row.name: None for row in TABLE}) == GREEDY


def test_a_default_written_out_changes_nothing() -> None:
    written = {row.name: row.default for row in TABLE if row.default is not None and row.name != "temperature"}
    written = {name: list(value) if isinstance(value, tuple) else value for name, value in written.items()}
    assert sampling(written) == GREEDY


SAMPLED = {"temperature": 1.0}

EFFECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"seed": 7}, {"seed": 7}),
    ({"seed": 0}, {"seed": 0}),
    ({"seed": -1}, {}),
    ({"seed": 2**63 - 1}, {"seed": 2**63 - 1}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"temperature": 2}, {"temperature": 2.0}),
    ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
    ({"top_k": 5}, {**SAMPLED, "top_k": 5}),
    ({"top_p": 0.5}, {**SAMPLED, "top_p": 0.5}),
    ({"min_p": 0.5}, {**SAMPLED, "min_p": 0.5}),
    ({"max_new_tokens": 1}, {"max_tokens": 1}),
    ({"max_new_tokens": 256.0}, {"max_tokens": 256}),
    ({"stop_sequences": ["a", "b c"]}, {"stop": ("a", "b c")}),
    ({"stop_sequences": "ab"}, {"stop": ("ab",)}),
    ({"stop_sequences": []}, {}),
    ({"stop": ["a"]}, {"stop": ("a",)}),
    ({"stop": True}, {}),
    ({"stop": True, "stop_sequences": ["a"]}, {"stop": ("a",)}),
    ({"truncate": 5}, {"truncate": 5}),
    ({"ignore_eos_token": True}, {"ignore_eos": True}),
    # By two of its names, with one value.
    ({"ignore_eos_token": True, "ignore_eos": True}, {"ignore_eos": True}),
    ({"presence_penalty": -2}, {"presence_penalty": -2.0}),
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    ({"stop_token_ids": [1, 2]}, {"stop_token_ids": (1, 2)}),
    ({"stop_token_ids": [0] * 1024}, {"stop_token_ids": (0,) * 1024}),
    ({"include_stop_str_in_output": True}, {"include_stop": True}),
    ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
    ({"spaces_between_special_tokens": False}, {"spaces_between_special_tokens": False}),
    ({"min_length": 5}, {"min_tokens": 5}),
    ({"bad_sequences": ["x"]}, {"bad_words": ("x",)}),
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
    ({"length_penalty": 1, "early_stopping": False, "top_n_tokens": 0, "watermark": False}, {}),
    # What they ask for depends on what the answer shows (tests/formatters/lmi/test_requests.py).
    ({"logprobs": 5, "prompt_logprobs": 5}, {}),
]


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


# fmt: off
BOOLEANS = ("do_sample", "details", "return_full_text", "decoder_input_details", "ignore_eos_token",
            "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "watermark")
INTEGERS = ("seed", "top_k", "max_new_tokens", "truncate", "n", "best_of", "num_beams", "logprobs", "prompt_logprobs",
            "min_length", "top_n_tokens")
NUMBERS = ("temperature", "repetition_penalty", "top_p", "typical_p", "min_p", "presence_penalty", "frequency_penalty",
           "length_penalty")
# fmt: on
TEXTS = ("stop_sequences", "bad_sequences")
VLLM_FIELDS = (
    "logit_bias", "allowed_token_ids", "thinking_token_budget", "truncate_prompt_tokens", "truncation_side",
    "vllm_xargs", "add_special_tokens", "cache_salt", "priority", "return_token_ids", "return_tokens_as_token_ids",
    "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
"""What LMI's handlers on vLLM pass on to it as it is."""

WRONG: list[tuple[tuple[str, ...], list[Any]]] = [
    (BOOLEANS, [0, 1, "true", [], {}]),
    (INTEGERS, ["many", "5", True, False, 5.5, [], {}]),
    (NUMBERS, ["many", "NaN", True, False, [], {}]),
    (TEXTS, [5, True, {}]),
    (("stop",), [5, {}]),
    (("stop_token_ids",), [5, "5", {}, True]),
    (("early_stopping",), [5, "always", []]),
]
WRONG_TYPES = [(name, value) for names, values in WRONG for name in names for value in values]


@each_row(("name", "value"), WRONG_TYPES)
def test_wrong_type(name: str, value: Any) -> None:
    error = refused({name: value})
    assert type(error) is PayloadError
    assert error.param == f"parameters.{name}"
    assert error.message.startswith(f"parameters.{name}: expected ")
    assert error.message.endswith(f", got {value!r}")


def test_no_parameter_is_left_out() -> None:
    covered = {name for name, _ in WRONG_TYPES}
    others = {row.name for row in TABLE} - covered
    # tests/formatters/common/test_vllm_fields.py, tests/formatters/test_guides_of_others.py
    assert {*VLLM_FIELDS, *GUIDES, "guided_whitespace_pattern", "grammar", "output_format"} == others


MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"max_new_tokens": "many"}, PayloadError, "parameters.max_new_tokens: expected an integer >= 1, got 'many'"),
    ({"max_new_tokens": 0}, ParameterError, "parameters.max_new_tokens: expected an integer >= 1, got 0"),
    ({"max_new_tokens": -5}, ParameterError, "parameters.max_new_tokens: expected an integer >= 1, got -5"),
    (
        {"max_new_tokens": 2**63},
        ParameterError,
        "parameters.max_new_tokens: expected an integer from 1 to 9223372036854775807, got 9223372036854775808",
    ),
    ({"temperature": -1}, ParameterError, "parameters.temperature: expected a number from 0 to 100, got -1"),
    ({"temperature": 1e300}, ParameterError, "parameters.temperature: expected a number from 0 to 100, got 1e+300"),
    ({"temperature": "NaN"}, PayloadError, "parameters.temperature: expected a number from 0 to 100, got 'NaN'"),
    ({"top_p": 0}, ParameterError, "parameters.top_p: expected a number above 0 and up to 1, got 0"),
    ({"top_p": 1.1}, ParameterError, "parameters.top_p: expected a number above 0 and up to 1, got 1.1"),
    ({"top_k": -2}, ParameterError, "parameters.top_k: expected an integer >= -1, got -2"),
    ({"top_k": 2**31}, ParameterError, "parameters.top_k: expected an integer from -1 to 2147483647, got 2147483648"),
    ({"min_p": 1.5}, ParameterError, "parameters.min_p: expected a number from 0 to 1, got 1.5"),
    ({"truncate": 0}, ParameterError, "parameters.truncate: expected an integer >= 1, got 0"),
    (
        {"repetition_penalty": 0},
        ParameterError,
        "parameters.repetition_penalty: expected a number from 0.01 to 100, got 0",
    ),
    ({"presence_penalty": 3}, ParameterError, "parameters.presence_penalty: expected a number from -2 to 2, got 3"),
    ({"stop_sequences": 5}, PayloadError, "parameters.stop_sequences: expected a list of non-empty strings, got 5"),
    ({"stop_sequences": ["a", 5]}, PayloadError, "parameters.stop_sequences[1]: expected a non-empty string, got 5"),
    ({"stop_sequences": [None]}, PayloadError, "parameters.stop_sequences[0]: expected a non-empty string, got None"),
    (
        {"stop_sequences": ["a", ""]},
        ParameterError,
        "parameters.stop_sequences[1]: expected a non-empty string, got ''",
    ),
    ({"stop": ["a", ""]}, ParameterError, "parameters.stop[1]: expected a non-empty string, got ''"),
    (
        {"stop_sequences": ["x" * 4097]},
        ParameterError,
        "parameters.stop_sequences: expected at most 64 strings of 4096 characters in all",
    ),
    (
        {"stop_sequences": ["x"] * 65},
        ParameterError,
        "parameters.stop_sequences: expected at most 64 strings of 4096 characters in all",
    ),
    ({"stop_token_ids": [1, "2"]}, PayloadError, "parameters.stop_token_ids[1]: expected an integer >= 0, got '2'"),
    ({"stop_token_ids": [-1]}, ParameterError, "parameters.stop_token_ids[0]: expected an integer >= 0, got -1"),
    ({"stop_token_ids": [0] * 1025}, ParameterError, "parameters.stop_token_ids: expected at most 1024 token ids"),
    (
        {"stop_sequences": ["a"], "stop": ["b"]},
        ParameterError,
        f"parameters.stop: the same parameter as parameters.stop_sequences, {ANOTHER}",
    ),
    # A default that is said is a value too.
    (
        {"max_tokens": 30, "max_new_tokens": 6},
        ParameterError,
        f"parameters.max_new_tokens: the same parameter as parameters.max_tokens, {ANOTHER}",
    ),
    (
        {"ignore_eos": True, "ignore_eos_token": False},
        ParameterError,
        f"parameters.ignore_eos_token: the same parameter as parameters.ignore_eos, {ANOTHER}",
    ),
    (
        {"max_tokens": 5, "max_new_tokens": 6},
        ParameterError,
        f"parameters.max_new_tokens: the same parameter as parameters.max_tokens, {ANOTHER}",
    ),
    (
        {"min_length": 31},
        ParameterError,
        "parameters.min_length: expected an integer up to 30 (max_new_tokens), got 31",
    ),
    ({"typical_p": 0}, ParameterError, "parameters.typical_p: expected a number above 0 and up to 1, got 0"),
    ({"n": 0}, ParameterError, "parameters.n: expected an integer >= 1, got 0"),
    ({"n": 129}, ParameterError, "parameters.n: expected an integer from 1 to 128, got 129"),
    ({"n": 3, "best_of": 2}, ParameterError, "parameters.best_of: expected an integer from 3 (n) to 128, got 2"),
    ({"num_beams": 0}, ParameterError, "parameters.num_beams: expected an integer >= 1, got 0"),
    ({"num_beams": 129}, ParameterError, "parameters.num_beams: expected an integer from 1 to 128, got 129"),
    ({"num_beams": 2, "n": 3}, ParameterError, "parameters.n: expected an integer up to 2 (num_beams), got 3"),
    ({"length_penalty": 101}, ParameterError, "parameters.length_penalty: expected a number from -100 to 100, got 101"),
    (
        {"logprobs": 2, "top_n_tokens": 3},
        ParameterError,
        f"parameters.top_n_tokens: the same parameter as parameters.logprobs, {ANOTHER}",
    ),
    (
        {"watermark": True},
        UnsupportedError,
        "parameters.watermark: expected False, the only value that is supported, got True",
    ),
    ({"grammar": {"type": "json"}}, UnsupportedError, "parameters.grammar: not supported"),
]


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
    ],
)
def test_what_does_not_go_with_beams(name: str, value: Any) -> None:
    error = refused({"num_beams": 2, name: value})
    assert type(error) is UnsupportedError
    assert error.message == f"parameters.{name}: cannot be combined with parameters.num_beams above 1"


@each_row("name", NUMBERS)
@each_row("value", [float("nan"), float("inf"), 10**4000, -(10**4000)])
def test_no_number_is_too_odd(name: str, value: Any) -> None:
    assert type(refused({name: value})) is ParameterError


@each_row("name", INTEGERS)
@each_row("value", [10**4000, 1e300, -1e300])
def test_no_integer_is_too_large(name: str, value: Any) -> None:
    assert type(refused({name: value})) is ParameterError


def test_an_unknown_parameter_is_ignored_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_logged_names(monkeypatch)
    payload = {"inputs": "a", "parameters": {"odd": "secret", "nothing": None}, "model": "secret", "user": None}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert parse(payload, Request(b""), SETTINGS).generations[0].sampling == GREEDY
    assert caplog.messages == [
        "unknown request field ignored: parameters.odd",
        "unknown request field ignored: model",
    ]


def test_unknown_names_cannot_fill_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    forget_logged_names(monkeypatch)
    with caplog.at_level(logging.WARNING):
        ROWS["common"].read("parameters", {"two\nlines" + "x" * 1000: 1}, SETTINGS)
        ROWS["common"].read("parameters", {f"odd{number}": 1 for number in range(2000)}, SETTINGS)
    assert len(caplog.messages) == MAX_LOGGED_NAMES
    assert caplog.messages[0] == "unknown request field ignored: parameters.two lines" + "x" * 55


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"parameters": {"odd": 1}}, "parameters.odd: unknown field"),
        ({"parameters": {"top_pp": 1}}, "parameters.top_pp: unknown field; did you mean parameters.top_p?"),
        (
            {"parameters": {"max_newtokens": 1}},
            "parameters.max_newtokens: unknown field; did you mean parameters.max_new_tokens?",
        ),
        ({"parameter": {}}, "parameter: unknown field; did you mean parameters?"),
    ],
)
def test_an_unknown_parameter_is_refused_where_the_option_says_so(payload: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse({"inputs": "a", **payload}, Request(b""), STRICT)
    assert caught.value.message == message


def test_an_unknown_parameter_that_is_null_passes() -> None:
    assert sampling({"odd": None}) == GREEDY
