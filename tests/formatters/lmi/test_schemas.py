"""The schemas of LMI's parameters: the documented default of each, TensorRT-LLM's own rules, further names."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec
import pytest

from lmi.formatters.lmi import parse
from lmi.formatters.lmi.schemas import ALIASES

from ...kit.api.errors import LmiError
from ...kit.api.options import typed_settings
from ...kit.api.types import Generation, ParsedRequest, Request, Settings
from ...kit.rows import each_row

COMMON = typed_settings()
TRTLLM = msgspec.structs.replace(COMMON, rolling_batch="trtllm")

Given = dict[str, Any]

# --- LMI's schema, GenerationParameters: its four lists, with their defaults ---

DOCUMENTED: dict[str, Given] = {
    # "available with every rolling batch backend"; the seed's default is random, do_sample is inferred (its Note).
    "common": {
        "do_sample": False, "seed": None, "temperature": 1.0, "repetition_penalty": 1.0, "top_k": 0, "top_p": 1.0,
        "max_new_tokens": 30, "details": False, "return_full_text": False, "stop_sequences": None,
        "decoder_input_details": False,
    },
    "lmi-dist": {
        "typical_p": 1.0, "truncate": None, "ignore_eos_token": False, "top_k": -1, "min_p": 0.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "best_of": 1, "num_beams": 1, "length_penalty": 1.0,
        "early_stopping": False, "stop_token_ids": None, "include_stop_str_in_output": False, "logprobs": None,
        "prompt_logprobs": None, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    },
    "vllm": {
        "top_k": -1, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "best_of": 1,
        "num_beams": 1, "length_penalty": 1.0, "early_stopping": False, "stop_token_ids": None,
        "include_stop_str_in_output": False, "ignore_eos_token": False, "logprobs": None, "prompt_logprobs": None,
        "skip_special_tokens": True, "spaces_between_special_tokens": True,
    },
    # Greedy's; see DRAWN. What has no default "will be ignored" where it is not given.
    "trtllm": {
        "temperature": 0.8, "top_k": 0, "top_p": 0, "min_length": 1, "bad_sequences": None, "stop": None,
        "presence_penalty": None, "length_penalty": None, "frequency_penalty": None,
    },
}  # fmt: skip
DRAWN: dict[str, Given] = {
    "common": {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
    "lmi-dist": {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0},
    "vllm": {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0},
    "trtllm": {"temperature": 1.0, "top_k": 5, "top_p": 0.85},
}
"""The defaults with do_sample=True; LmiDist's and vLLM's lists leave the common ones as they are."""
DEFAULTS = [(schema, name) for schema, names in DOCUMENTED.items() for name in names]


def call(given: Given, settings: Settings) -> ParsedRequest:
    """What is asked for, without what the client called each parameter."""
    asked = parse({"inputs": "a", "parameters": given}, Request(b""), settings)
    plain = tuple(msgspec.structs.replace(one, fields={}) for one in asked.generations)
    return replace(asked, generations=plain)


def generation(given: Given, settings: Settings) -> Generation:
    return call(given, settings).generations[0]


def endpoint(schema: str) -> Settings:
    return msgspec.structs.replace(COMMON, rolling_batch="vllm" if schema == "common" else schema)


BESIDE: dict[str, Given] = {
    # Greedy decoding knows no temperature: see DRAWN, and the row's own default.
    "temperature": {"do_sample": False},
    "decoder_input_details": {"details": True},
    "logprobs": {"details": True},
    "prompt_logprobs": {"details": True},
    "length_penalty": {"num_beams": 3},
    "early_stopping": {"num_beams": 3},
    "typical_p": {"do_sample": True},
    "min_p": {"do_sample": True},
}
"""What must stand beside a parameter so that it means something."""
NOTHING: dict[str, Any] = {
    "seed": ("seed", None),
    "stop_sequences": ("stop", ()),
    "stop": ("stop", ()),
    "stop_token_ids": ("stop_token_ids", ()),
    "bad_sequences": ("bad_words", ()),
    "truncate": ("truncate", None),
    "logprobs": ("logprobs", 0),
    "prompt_logprobs": ("prompt_logprobs", None),
    "presence_penalty": ("presence_penalty", 0.0),
    "frequency_penalty": ("frequency_penalty", 0.0),
    "length_penalty": ("beams.length_penalty", 1.0),
}
"""Where none is documented: the field of Sampling, and its value that asks for nothing."""


@each_row(("schema", "name"), DEFAULTS)
def test_the_default_is_the_documented_one(schema: str, name: str) -> None:
    default = DOCUMENTED[schema][name]
    at, rest = endpoint(schema), BESIDE.get(name, {})
    left_out = call(rest, at)
    for written in (default, None):
        made = call({**rest, name: written}, at)
        assert made.generations == left_out.generations
        # What is for the answer alone is in the reply.
        assert made.reply == left_out.reply
    if default is None:
        field, value = NOTHING[name]
        assert attrgetter(field)(left_out.generations[0].sampling) == value


@each_row("schema", DRAWN)
def test_the_defaults_where_tokens_are_drawn(schema: str) -> None:
    at = endpoint(schema)
    drawn = generation({"do_sample": True}, at)
    assert generation({"do_sample": True, **DRAWN[schema]}, at) == drawn
    for name, value in DRAWN[schema].items():
        assert getattr(drawn.sampling, name) == (0 if value == -1 else value)
        # Whoever says one of them has the others' defaults.
        for other, given in {"temperature": 0.5, "top_k": 7, "top_p": 0.5}.items():
            if other != name:
                one = generation({"do_sample": True, other: given}, at).sampling
                assert (getattr(one, other), getattr(one, name)) == (given, 0 if value == -1 else value)


def test_trtllms_schema_infers_sampling_as_the_others_do() -> None:
    drawn = generation({"do_sample": True}, TRTLLM)
    for asks in ({"temperature": 1.0}, {"top_k": 5}, {"top_p": 0.85}):
        assert generation(asks, TRTLLM) == drawn
    greedy = generation({}, TRTLLM)
    for neutral in (
        {"top_k": 0},
        {"top_p": 0},
        {"top_p": 1},
        {"top_k": -1, "top_p": 1.0},
        {"do_sample": False, "top_k": 9},
    ):
        assert generation(neutral, TRTLLM) == greedy
    assert greedy.sampling.temperature == 0


def test_the_schema_may_be_asked_for_in_any_mode() -> None:
    for mode in ("vllm", "disable"):
        asked = msgspec.structs.replace(COMMON, rolling_batch=mode, parameter_schema="trtllm")
        assert generation({"do_sample": True}, asked) == generation({"do_sample": True}, TRTLLM)
    common = msgspec.structs.replace(TRTLLM, parameter_schema="common")
    assert generation({"do_sample": True}, common) == generation({"do_sample": True}, COMMON)


VALUES: Given = {
    "max_new_tokens": 7, "min_length": 3, "ignore_eos_token": True, "bad_sequences": ["x"], "top_k": 3,
    "top_p": 0.5, "seed": 9, "length_penalty": 1.0, "num_beams": 1, "stop_sequences": ["x"],
}  # fmt: skip
"""Of each parameter that has further names."""


@each_row("settings", [COMMON, TRTLLM], ids=["common", "trtllm"])
@each_row("alias", ALIASES)
def test_an_alias_means_its_parameter(alias: str, settings: Settings) -> None:
    name = ALIASES[alias]
    value = VALUES[name]
    assert generation({alias: value}, settings) == generation({name: value}, settings)
    # Clients that do not know which of the names an endpoint takes send them all.
    assert generation({alias: value, name: value}, settings) == generation({alias: value}, settings)
    with pytest.raises(LmiError, match=rf"^parameters\.{alias}: expected "):
        generation({alias: {}}, settings)


@each_row("settings", [COMMON, TRTLLM], ids=["common", "trtllm"])
def test_the_token_that_ends_and_the_one_that_fills_up(settings: Settings) -> None:
    assert generation({"end_id": 7}, settings) == generation({"stop_token_ids": [7]}, settings)
    assert generation({"end_id": -1, "pad_id": 7}, settings) == generation({}, settings)
    for name in ("end_id", "pad_id"):
        with pytest.raises(LmiError, match=rf"^parameters\.{name}: expected an integer"):
            generation({name: "7"}, settings)
    with pytest.raises(LmiError, match=r"^parameters\.stop_token_ids: the same parameter as parameters\.end_id"):
        generation({"end_id": 7, "stop_token_ids": [8]}, settings)
