"""What vLLM adds to requests, in each dialect that takes it: the same meaning everywhere, or refused with a reason."""

from __future__ import annotations

import json
from typing import Any

from ...kit.answers.forms import FORMS
from ...kit.api.options import make_settings
from ...kit.api.types import Generation, Response, Settings, StructuredOutput
from ...kit.rows import each_row

SETTINGS = make_settings(unknown_parameters="error")
TRUSTING = make_settings(unknown_parameters="error", request_chat_template="true", trust_request_mm_kwargs="true")
INPUTS = ("lmi", "dynamic", "tgi")
CHATS = ("chat", "azure", "minimal")
TEXTS = (*CHATS, "text", *INPUTS)
ALL = (*TEXTS, "responses", "anthropic")


def refused(form: str, fields: dict[str, Any], settings: Settings = SETTINGS) -> str:
    """The message of the refusal."""
    answer = FORMS[form].answer(settings, **FORMS[form].with_parameters(fields))
    assert isinstance(answer, Response)
    assert answer.failure is not None
    return answer.failure.message


def found(generation: Generation, place: str) -> Any:
    value: Any = generation
    for step in place.split("."):
        value = value[step] if isinstance(value, dict) else getattr(value, step)
    return value


TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
TAGGED = StructuredOutput(structural_tag=json.dumps(TAG, separators=(",", ":")))
Case = tuple[tuple[str, ...], str, Any, str, Any]
"""The dialects, the field, its value, where it must arrive, and as what."""
SERVED: list[Case] = [
    (ALL, "cache_salt", "c2FsdA", "cache_salt", "c2FsdA"),
    (ALL, "vllm_xargs", {"a": 1, "b": [True, "x", 0.5]}, "sampling.extra_args", {"a": 1, "b": [1, "x", 0.5]}),
    ((*TEXTS, "responses"), "allowed_token_ids", [5, 6], "sampling.allowed_token_ids", (5, 6)),
    ((*TEXTS, "responses"), "allowed_token_ids", [5] * 1024, "sampling.allowed_token_ids", (5,) * 1024),
    ((*TEXTS, "responses"), "thinking_token_budget", 7, "sampling.thinking_token_budget", 7),
    ((*TEXTS, "responses"), "thinking_token_budget", 0, "sampling.thinking_token_budget", 0),
    ((*TEXTS, "responses"), "thinking_token_budget", -1, "sampling.thinking_token_budget", None),
    ((*TEXTS, "responses"), "logit_bias", {"5": -1}, "sampling.logit_bias", {5: -1.0}),
    ((*TEXTS, "responses"), "priority", -3, "priority", -3),
    ((*TEXTS, "responses"), "structured_outputs", {"structural_tag": TAG}, "sampling.structured_output", TAGGED),
    (TEXTS, "structured_outputs", {"structural_tag": json.dumps(TAG)}, "sampling.structured_output", TAGGED),
    (TEXTS, "response_format", TAG, "sampling.structured_output", TAGGED),
    ((*TEXTS, "responses"), "structured_outputs", {"regex": "a+"}, "sampling.structured_output.regex", "a+"),
    (TEXTS, "truncate_prompt_tokens", 5, "sampling.truncate", 5),
    (TEXTS, "truncate_prompt_tokens", -1, "sampling.truncate", -1),
    (INPUTS, "truncate", 5, "sampling.truncate", 5),
    (TEXTS, "truncation_side", "left", "sampling.cut", "left"),
    (TEXTS, "truncation_side", "right", "sampling.cut", "right"),
    (("text", *INPUTS), "add_special_tokens", False, "add_special_tokens", False),
    ((*CHATS, "tokens"), "add_special_tokens", True, "prompt.add_special_tokens", True),
    (CHATS, "documents", [{"text": "a"}], "prompt.template_arguments.documents", [{"text": "a"}]),
    (("chat", "text"), "return_token_ids", True, "prompt_ids", True),
    (("chat", "text"), "return_token_ids", True, "tokens", True),
    (("chat", "text", "azure", "lmi", "dynamic"), "return_tokens_as_token_ids", True, "prompt_ids", False),
    (("chat", "text"), "kv_transfer_params", {"a": [1]}, "kv_transfer_params", {"a": [1]}),
]


@each_row(
    ("dialect", "field", "value", "place", "expected"),
    [(dialect, *case) for dialects, *case in SERVED for dialect in dialects],
)
def test_it_is_served(dialect: str, field: str, value: Any, place: str, expected: Any) -> None:
    form = FORMS[dialect]
    received = form.asked(SETTINGS, **form.with_parameters({field: value}))
    assert found(received.generations[0], place) == expected
    # What an engine finds wrong is called as the client calls it.
    if place.startswith("sampling.") and field not in ("structured_outputs", "response_format"):
        assert received.fields.name(".".join(place.split(".")[:2])) == form.named(field)


@each_row("dialect", [*CHATS, "tokens"])
def test_a_template_is_served_where_the_owner_allows_it(dialect: str) -> None:
    received = FORMS[dialect].asked(TRUSTING, chat_template="{{ 1 }}")
    assert found(received.generations[0], "prompt.chat_template") == "{{ 1 }}"
    assert received.fields.name("prompt.chat_template") == "chat_template"


@each_row("dialect", [*CHATS, "tokens", "responses"])
def test_arguments_of_media_are_served_where_the_owner_allows_it(dialect: str) -> None:
    given = {"mm_processor_kwargs": {"max_pixels": 5}, "media_io_kwargs": {"video": {"num_frames": 4}}}
    received = FORMS[dialect].asked(TRUSTING, **given)
    assert found(received.generations[0], "prompt.processor_arguments") == given["mm_processor_kwargs"]
    assert found(received.generations[0], "prompt.reader_arguments") == given["media_io_kwargs"]
    assert received.fields.name("prompt.processor_arguments") == "mm_processor_kwargs"
    # What asks for nothing is nobody's risk.
    assert FORMS[dialect].asked(SETTINGS, mm_processor_kwargs={}).generations


def test_what_are_no_arguments_of_media() -> None:
    assert refused("chat", {"mm_processor_kwargs": 5}, TRUSTING).startswith("mm_processor_kwargs: expected an object")
    given = {"video": 5}
    assert refused("chat", {"media_io_kwargs": given}, TRUSTING).startswith("media_io_kwargs.video: expected an object")


@each_row(
    ("given", "message"),
    [
        ("", "chat_template: expected 1 to 65536 characters, got 0"),
        ("x" * 65537, "chat_template: expected 1 to 65536 characters, got 65537"),
        (5, "chat_template: expected Jinja text, got 5"),
    ],
)
def test_what_is_no_template(given: Any, message: str) -> None:
    assert refused("chat", {"chat_template": given}, TRUSTING) == message


MEDIA = ("mm_processor_kwargs", "media_io_kwargs")
REFUSED: list[tuple[tuple[str, ...], str, Any, str]] = [
    *(((*TEXTS, "responses", "tokens"), name, {"a": {}}, "option.trust_request_mm_kwargs is false") for name in MEDIA),
    ((*CHATS, "tokens"), "chat_template", "{{ 1 }}", "a template is a program, and option.request_chat_template is"),
    (("azure", "minimal"), "return_token_ids", True, "the responses of this API cannot show it"),
    (("minimal",), "return_tokens_as_token_ids", True, "the responses of this API cannot show it"),
    (INPUTS, "return_token_ids", True, "an answer has its tokens' ids in details"),
    # What vLLM's own route does not have.
    (("anthropic",), "allowed_token_ids", [1], "unknown field"),
    (("anthropic",), "thinking_token_budget", 5, "unknown field"),
]


@each_row(
    ("dialect", "field", "value", "reason"),
    [(dialect, *case) for dialects, *case in REFUSED for dialect in dialects],
)
def test_it_is_refused_with_a_reason(dialect: str, field: str, value: Any, reason: str) -> None:
    message = refused(dialect, {field: value})
    assert message.startswith(f"{FORMS[dialect].named(field)}: ")
    assert reason in message


WRONG: list[tuple[str, Any, str]] = [
    ("cache_salt", "", ": expected a string of 1 to 1024 characters, got 0"),
    ("cache_salt", "x" * 1025, ": expected a string of 1 to 1024 characters, got 1025"),
    ("cache_salt", 5, ": expected a string of 1 to 1024 characters, got 5"),
    ("allowed_token_ids", [], ": expected a list of 1 to 1024 token ids, got []"),
    ("allowed_token_ids", [1] * 1025, ": expected at most 1024 token ids"),
    ("allowed_token_ids", [-1], "[0]: expected an integer >= 0, got -1"),
    ("allowed_token_ids", 5, ": expected a list of token ids, got 5"),
    ("thinking_token_budget", -2, ": expected an integer >= -1, got -2"),
    ("vllm_xargs", [], ": expected an object, got []"),
    ("vllm_xargs", {"a": {"b": 1}}, ".a: expected a string, a number, or a list of these, got {'b': 1}"),
    ("vllm_xargs", {"a": [[1]]}, ".a: expected a string, a number, or a list of these, got [[1]]"),
    ("vllm_xargs", {"a": None}, ".a: expected a string, a number, or a list of these, got None"),
    ("vllm_xargs", {"a": 2**64}, f".a: expected integers from {-(2**63)} to {2**63 - 1}, got {2**64}"),
    ("vllm_xargs", {"a": ["b" * 65536]}, ": expected at most 65536 bytes as JSON, got "),
    ("vllm_xargs", {str(number): 1 for number in range(65)}, ": expected at most 64 entries, got 65"),
    ("truncate_prompt_tokens", 0, ": expected an integer >= 1, or -1 for what fits, got 0"),
    ("logit_bias", {"x": 1}, ".x: expected a token id as the key, got 'x'"),
    ("logit_bias", {"-1": 1}, ".-1: expected a token id as the key, got '-1'"),
    ("logit_bias", {"5": 101}, ".5: expected a number from -100 to 100, got 101"),
    ("logit_bias", {"5": "x"}, ".5: expected a number from -100 to 100, got 'x'"),
    ("logit_bias", dict.fromkeys(map(str, range(1025)), 1), ": expected at most 1024 token ids"),
]


@each_row("dialect", ["text", "lmi"])
@each_row(("field", "value", "message"), WRONG)
def test_a_wrong_value_is_named(dialect: str, field: str, value: Any, message: str) -> None:
    assert refused(dialect, {field: value}).startswith(f"{FORMS[dialect].named(field)}{message}")


def test_two_guides_of_a_response() -> None:
    form = {"format": {"type": "json_object"}}
    message = refused("responses", {"text": form, "structured_outputs": {"regex": "a"}})
    assert message == "structured_outputs: cannot be combined with text.format"
    FORMS["responses"].asked(SETTINGS, text=form, structured_outputs={"json_object": True})
