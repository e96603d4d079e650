"""OpenAI requests and what vLLM adds to them: the effect of each field, and whether a body is a chat or a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lmi.formatters.openai import CHAT_PATH, DIALECT, TEXT_PATH, parse
from lmi.formatters.openai.parameters import CHAT_TABLE, TEXT_TABLE

from ...kit.answers.openai import CHAT, SETTINGS, STRICT, TEXT
from ...kit.api.dialects import Parameter
from ...kit.api.errors import ParameterError, PayloadError
from ...kit.api.types import (
    Conversation,
    Generation,
    Message,
    ParsedRequest,
    Request,
    Sampling,
    Settings,
    StructuredOutput,
)
from ...kit.rows import each_row


def generation(payload: dict[str, Any], settings: Settings = STRICT) -> Generation:
    (made,) = parse(payload, Request(b"", request_id="7"), settings).generations
    return made


def conversation(**given: Any) -> Conversation:
    prompt = generation({**CHAT, **given}).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def changed(made: Sampling, default: Sampling) -> dict[str, Any]:
    now, then = msgspec.structs.asdict(made), msgspec.structs.asdict(default)
    return {name: value for name, value in now.items() if value != then[name]}


# --- Defaults and effects ---


def test_defaults() -> None:
    """What is not given is the model's: only text completions have a max_tokens of their own."""
    chat, text = generation(CHAT), generation(TEXT)
    assert chat == Generation(
        request_id="7",
        prompt=Conversation(messages=(Message("user", "hi"),)),
        sampling=Sampling(),
        overflow="refuse",
    )
    assert text == Generation(request_id="7", prompt="hi", sampling=Sampling(max_tokens=16), overflow="refuse")


@each_row(("base", "table"), [(CHAT, CHAT_TABLE), (TEXT, TEXT_TABLE)])
def test_null_is_the_default(base: dict[str, Any], table: tuple[Parameter, ...]) -> None:
    names = [row.name for row in table] + ["odd"]
    assert generation({**dict.fromkeys(names), **base}) == generation(base)


EFFECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"seed": -1}, {}),
    ({"stop": "END"}, {"stop": ("END",)}),
    ({"stop": []}, {}),
    ({"presence_penalty": -2}, {"presence_penalty": -2.0}),
    ({"top_k": -1}, {"top_k": 0}),
    # Without effect.
    ({"model": "dummy", "user": "me", "request_id": "x", "length_penalty": 1, "use_beam_search": False}, {}),
    ({"stream": False, "priority": 0, "truncation_side": "left", "guided_decoding_backend": "xgrammar"}, {}),
    # Guided decoding.
    ({"response_format": {"type": "text"}}, {}),
    (
        {"response_format": {"type": "json_object"}},
        {"structured_output": StructuredOutput(json_object=True)},
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {"structured_output": StructuredOutput(json_schema='{"type":"object"}')},
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}, "strict": True}}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    # llama.cpp's and TGI's ways to say it.
    (
        {"response_format": {"type": "json_object", "schema": {"a": 1}}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    (
        {"response_format": {"type": "json_object", "value": {"a": 1}, "schema": None}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    # The same by two names, as guidance sends it.
    (
        {"guided_grammar": "root ::= x", "structured_outputs": {"grammar": "root ::= x"}},
        {"structured_output": StructuredOutput(grammar="root ::= x")},
    ),
    (
        {"guided_json": '{"a": 1}', "response_format": {"type": "json_object", "value": {"a": 1}, "schema": {"a": 1}}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    (
        {"structured_outputs": {"json": {"a": 1}}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    (
        {"structured_outputs": {"json": '{"a": 1}', "regex": None}},
        {"structured_output": StructuredOutput(json_schema='{"a":1}')},
    ),
    (
        {"structured_outputs": {"regex": "a+"}},
        {"structured_output": StructuredOutput(regex="a+")},
    ),
    (
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"structured_output": StructuredOutput(choice=("a", "b"))},
    ),
    (
        {"structured_outputs": {"grammar": "root ::= x"}},
        {"structured_output": StructuredOutput(grammar="root ::= x")},
    ),
    (
        {"structured_outputs": {"json_object": True, "disable_any_whitespace": False}},
        {"structured_output": StructuredOutput(json_object=True)},
    ),
    ({"guided_json": {"a": 1}}, {"structured_output": StructuredOutput(json_schema='{"a":1}')}),
    (
        {"guided_json_object": True},
        {"structured_output": StructuredOutput(json_object=True)},
    ),
    ({"guided_regex": "a+"}, {"structured_output": StructuredOutput(regex="a+")}),
    ({"guided_choice": ["a"]}, {"structured_output": StructuredOutput(choice=("a",))}),
    (
        {"guided_grammar": "root ::= x", "response_format": {"type": "text"}},
        {"structured_output": StructuredOutput(grammar="root ::= x")},
    ),
]
"""What no row of docs/parameters.md tells."""


@each_row("base", [CHAT, TEXT], ids=["chat", "text"])
@each_row(("given_fields", "effect"), EFFECTS)
def test_effect(base: dict[str, Any], given_fields: dict[str, Any], effect: dict[str, Any]) -> None:
    assert changed(generation({**base, **given_fields}).sampling, generation(base).sampling) == effect


CHAT_EFFECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"max_completion_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 5, "max_tokens": 9}, {"max_tokens": 5}),
    ({"max_completion_tokens": None, "max_tokens": 9}, {"max_tokens": 9}),
    ({"logprobs": True}, {"logprobs": 0}),
    ({"logprobs": True, "top_logprobs": 20}, {"logprobs": 20}),
    ({"logprobs": False, "top_logprobs": 0}, {}),
    (
        {
            "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "prediction": {"type": "content"},
            "safety_identifier": "x", "prompt_cache_key": "x", "verbosity": "low", "modalities": ["text"],
            "echo": False, "prompt_cache_options": {"mode": "explicit"}, "prompt_cache_retention": "24h",
        },
        {},
    ),
]  # fmt: skip


@each_row(("given_fields", "effect"), CHAT_EFFECTS)
def test_effect_in_chat(given_fields: dict[str, Any], effect: dict[str, Any]) -> None:
    made = generation({**CHAT, **given_fields})
    assert changed(made.sampling, Sampling()) == effect
    assert made.tokens is (made.sampling.logprobs is not None)


@each_row(("given", "shown"), [(False, None), (None, None), (0, 0), (True, 1), (20, 20)])
def test_logprobs_of_a_text(given: Any, shown: int | None) -> None:
    """What asks for none may be false, as in a chat."""
    assert generation({**TEXT, "logprobs": given}).sampling.logprobs == shown


@each_row(("most", "allowed", "refused"), [("50", 50, 51), ("-1", 100_000, 2**31), ("3", 20, 21), ("many", 20, 21)])
@each_row(
    ("base", "field", "key"),
    [
        ({**CHAT, "logprobs": True}, "top_logprobs", "logprobs"),
        (TEXT, "logprobs", "logprobs"),
        (TEXT, "prompt_logprobs", "prompt_logprobs"),
    ],
)
def test_max_logprobs_is_the_bound(
    base: dict[str, Any], field: str, key: str, most: str, allowed: int, refused: int
) -> None:
    """Beyond OpenAI's 20 where the option allows it; what it forbids below, the engine refuses."""
    settings = msgspec.structs.replace(STRICT, engine_arguments={"max_logprobs": most})
    assert getattr(generation({**base, field: allowed}, settings).sampling, key) == allowed
    with pytest.raises(ParameterError, match=rf"^{field}: expected an integer from 0 to {refused - 1}, got {refused}$"):
        generation({**base, field: refused}, settings)


TEMPLATE_EFFECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"chat_template_kwargs": {"a": 1}}, {"template_arguments": {"a": 1}}),
    ({"reasoning_effort": "low"}, {"template_arguments": {"reasoning_effort": "low"}}),
    (
        {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
        {"template_arguments": {"reasoning_effort": "high"}},
    ),
    ({"documents": [{"text": "a"}]}, {"template_arguments": {"documents": [{"text": "a"}]}}),
    ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
    ({"continue_final_message": True}, {"add_generation_prompt": False, "continue_final_message": True}),
    ({"add_special_tokens": True}, {"add_special_tokens": True}),
    ({"include_reasoning": False}, {"include_reasoning": False}),
    ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
]


@each_row(("given_fields", "effect"), TEMPLATE_EFFECTS)
def test_effect_on_the_conversation(given_fields: dict[str, Any], effect: dict[str, Any]) -> None:
    made = msgspec.structs.asdict(conversation(**given_fields))
    plain = msgspec.structs.asdict(conversation())
    assert {name: value for name, value in made.items() if value != plain[name]} == effect


# --- Which of the two, and errors ---


def parse_on(path: str) -> Callable[..., ParsedRequest]:
    """What reads a body that comes on a path."""
    return next((route.parse for route in DIALECT.routes if route.path == path and route.parse), parse)


@each_row(
    ("payload", "path", "chat"),
    [
        (CHAT, "/invocations", True),
        (TEXT, "/invocations", False),
        ({**CHAT, **TEXT}, CHAT_PATH, True),
        ({**CHAT, **TEXT}, TEXT_PATH, False),
        ({**CHAT, **TEXT}, "/invocations", True),
        ({**TEXT, "messages": None}, "/invocations", False),
    ],
)
def test_chat_or_text(payload: dict[str, Any], path: str, chat: bool) -> None:
    (made,) = parse_on(path)(payload, Request(b"", path=path), SETTINGS).generations
    assert isinstance(made.prompt, Conversation) is chat


NEITHER = "expected a field messages (chat completions), prompt (text completions) or input (embeddings)"


@each_row(
    ("payload", "path", "message"),
    [
        ({}, "/invocations", NEITHER),
        ({"messages": None, "prompt": None}, "/invocations", NEITHER),
        (TEXT, CHAT_PATH, "messages: expected a list of messages, but there is no such field"),
        (
            CHAT,
            TEXT_PATH,
            "prompt: expected a string, a list of token ids, or a list of either, but there is no such field",
        ),
    ],
)
def test_neither(payload: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse_on(path)(payload, Request(b"", path=path), SETTINGS)
    assert caught.value.message == message
