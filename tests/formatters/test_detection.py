"""How a body is read and its dialect found: every body gets an answer, and none of them raises."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from lmi.formatters import DIALECTS, Dialect, ParsedRequest, Request, Response, detect, receive, refusal

from ..kit.answers.forms import FORMS
from ..kit.api.dialects import named, read_json
from ..kit.api.errors import PayloadError, UnauthorizedError
from ..kit.api.options import typed_settings
from ..kit.api.types import Settings
from ..kit.rows import each_row

anthropic, azure, lmi, minimal, openai, responses, tgi = map(
    named, ("anthropic", "azure", "lmi", "minimal", "openai", "responses", "tgi")
)

SETTINGS = typed_settings()

KNOWN = ", ".join(known.name for known in DIALECTS)

NOT_JSON = "the body is not JSON: "
"""The rest is the decoder's own."""
NESTED = "the body is nested too deeply"
NO_DIALECT = (
    "unknown dialect: expected a field inputs (lmi), query (rerank), messages, prompt or input (openai), "
    "file (transcription)"
)

UNREADABLE: list[tuple[bytes, str]] = [
    (b"", "the body is empty, expected a JSON object"),
    (b" \n", "the body is empty, expected a JSON object"),
    (b"hello", NOT_JSON),
    (b'{"inputs": "a"', NOT_JSON),
    (b'{"inputs": "a",}', NOT_JSON),
    (b'{"inputs": "a"} {}', NOT_JSON),
    (b'{"inputs": "\xe9"}', "the body is not UTF-8: invalid continuation byte at byte 12"),
    ('{"inputs": "a"}'.encode("utf-16"), "the body is not UTF-8: invalid start byte at byte 0"),
    (b'["a"]', "expected a JSON object, but the body is an array"),
    (b'"a"', "expected a JSON object, but the body is a string"),
    (b"null", "expected a JSON object, but the body is null"),
    (b"true", "expected a JSON object, but the body is a boolean"),
    (b"5.5", "expected a JSON object, but the body is a number"),
    (b"NaN", "the body: expected a finite number, got NaN"),
    (b"[" * 100_000 + b"]" * 100_000, NESTED),
    (b'{"inputs": ' + b"[" * 100_000 + b"NaN" + b"]" * 100_000 + b"}", NESTED),
]


@each_row(("body", "message"), UNREADABLE)
def test_unreadable(body: bytes, message: str) -> None:
    with pytest.raises(PayloadError) as caught:
        read_json(body)
    shown = caught.value.message
    assert shown.startswith(NOT_JSON) if message is NOT_JSON else shown == message


@each_row("body", [b"", b"hello", b'["a"]', b'{"temperature": NaN}'])
def test_unreadable_is_answered(body: bytes) -> None:
    """Nothing fits (docs/decisions.md: Which dialect a request is)."""
    answer = receive(Request(body), SETTINGS)
    assert isinstance(answer, Response)
    assert (answer.status, answer.content_type) == (424, "application/json")
    assert list(json.loads(answer.body)) == ["error", "code"]
    assert json.loads(answer.body)["code"] == 424
    assert b"\n" not in answer.body
    assert isinstance(answer.failure, PayloadError)


@each_row("form", ["chat", "anthropic", "responses", "azure", "minimal", "tgi", "tokens", "rerank"])
def test_the_path_tells_who_refuses_a_request_that_is_not_read(form: str) -> None:
    """Before it is admitted, and where it is no JSON."""
    error = UnauthorizedError("no key")
    refused = refusal(error, replace(FORMS[form].request(), body=b""), SETTINGS)
    assert (refused.dialect, refused.status, refused.failure) == (FORMS[form].dialect, 401, error)
    received = receive(replace(FORMS[form].request(), body=b"{"), SETTINGS)
    assert isinstance(received, Response)
    assert received.dialect == FORMS[form].dialect


@each_row("depth", [100, 400, 900, 970, 980, 985, 990, 995, 1000, 5000])
@each_row(("form", "field"), [
    ("lmi", "inputs"), ("lmi", "parameters"), ("chat", "messages"), ("chat", "tools"), ("chat", "functions"),
    ("chat", "guided_json"), ("chat", "chat_template_kwargs"), ("chat", "documents"), ("chat", "metadata"),
    ("chat", "odd"), ("azure", "audio"), ("azure", "messages"), ("anthropic", "messages"), ("responses", "input"),
])  # fmt: skip
def test_no_depth_is_too_deep(depth: int, form: str, field: str) -> None:
    """What is accepted can be sent to the engine."""
    whole = msgspec.json.encode({**FORMS[form].body, field: None})
    for begin, core, end in (("[", "NaN", "]"), ("[", "5", "]"), ('{"a":', "1", "}")):
        value = begin * depth + core + end * depth
        body = whole.replace(b"null", value.encode())
        found = receive(replace(FORMS[form].request(), body=body), SETTINGS)
        if isinstance(found, ParsedRequest):
            assert msgspec.msgpack.encode(found.generations)
        else:
            assert found.status in (400, 422, 424)
            assert json.loads(found.body)


def test_long_names_are_cut() -> None:
    answer = receive(Request(b'{"' + b"x" * 100_000 + b'": NaN}'), SETTINGS)
    assert isinstance(answer, Response)
    assert len(answer.body) < 300


EXPLICIT = msgspec.structs.replace(SETTINGS, dialect="lmi")
COMPATIBLE = msgspec.structs.replace(SETTINGS, tgi_compat=True)
EMBEDS = msgspec.structs.replace(SETTINGS, task="embed")
ODD = msgspec.structs.replace(SETTINGS, dialect="odd")


@each_row(
    ("payload", "attributes", "settings", "found"),
    [
        ({"inputs": "a"}, {}, SETTINGS, lmi),
        ({"requestType": "CLOSE"}, {}, SETTINGS, NO_DIALECT),
        ({}, {"dialect": "lmi"}, SETTINGS, lmi),
        ({}, {}, EXPLICIT, lmi),
        ({}, {"dialect": "lmi"}, ODD, lmi),
        ({"messages": []}, {}, SETTINGS, openai),
        ({"prompt": "a"}, {}, SETTINGS, openai),
        ({"inputs": "a", "messages": []}, {}, SETTINGS, lmi),
        ({"messages": []}, {}, EXPLICIT, lmi),
        ({"inputs": "a"}, {"dialect": "openai"}, EXPLICIT, openai),
        ({}, {}, SETTINGS, NO_DIALECT),
        ({"input": "a"}, {}, SETTINGS, responses),
        ({"input": [{"role": "user", "content": "a"}]}, {}, SETTINGS, responses),
        # Of embeddings, whatever the model is.
        ({"input": ["a"]}, {}, SETTINGS, openai),
        ({"input": [1]}, {}, SETTINGS, openai),
        ({"input": "a", "encoding_format": "float"}, {}, SETTINGS, openai),
        ({"input": "a"}, {}, EMBEDS, openai),
        ({"input": [{}]}, {}, EMBEDS, openai),
        ({"input": "a", "messages": []}, {}, SETTINGS, openai),
        ({"input": "a", "inputs": "a"}, {}, SETTINGS, lmi),
        ({"text": "a"}, {}, SETTINGS, NO_DIALECT),
        ({"messages": []}, {"dialect": "azure"}, SETTINGS, azure),
        ({"messages": []}, {"dialect": "minimal"}, SETTINGS, minimal),
        ({"inputs": "a"}, {"dialect": "odd"}, SETTINGS, f"dialect: expected one of {KNOWN}, got 'odd'"),
        ({"inputs": "a"}, {}, COMPATIBLE, tgi),
        ({"inputs": "a"}, {"dialect": "lmi"}, COMPATIBLE, lmi),
        ({"inputs": "a"}, {"dialect": "tgi"}, SETTINGS, tgi),
        ({"inputs": "a", "messages": []}, {}, COMPATIBLE, tgi),
        ({"messages": []}, {}, COMPATIBLE, openai),
        ({"inputs": "a"}, {}, msgspec.structs.replace(COMPATIBLE, rolling_batch="disable"), tgi),
        ({}, {}, COMPATIBLE, NO_DIALECT),
        ({"messages": [], "system": "a"}, {}, SETTINGS, anthropic),
        ({"messages": [], "system": [{"type": "text", "text": "a"}]}, {}, SETTINGS, anthropic),
        ({"messages": [], "stop_sequences": ["a"]}, {}, SETTINGS, anthropic),
        ({"messages": [], "anthropic_version": "bedrock-2023-05-31"}, {}, SETTINGS, anthropic),
        ({"messages": [], "output_config": {"effort": "low"}}, {}, SETTINGS, anthropic),
        ({"messages": [], "output_format": {"type": "json_schema"}}, {}, SETTINGS, anthropic),
        ({"messages": [], "thread": {"type": "create"}}, {}, SETTINGS, anthropic),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, {}, SETTINGS, anthropic),
        ({"messages": [], "tools": [{"name": "a", "input_schema": {}}]}, {}, SETTINGS, anthropic),
        ({"messages": [{"content": [{"type": "tool_use"}]}]}, {}, SETTINGS, anthropic),
        ({"messages": [{"content": [{"type": "tool_result"}]}]}, {}, SETTINGS, anthropic),
        ({"messages": [{"content": "a"}, {"content": [{"type": "thinking"}]}]}, {}, SETTINGS, anthropic),
        ({"messages": [{"content": [{"type": "image", "source": {}}]}]}, {}, SETTINGS, anthropic),
        ({"messages": [{"content": [{"type": "image", "content": "a"}]}]}, {}, SETTINGS, openai),
        ({"messages": [], "system": None, "max_tokens": 5}, {}, SETTINGS, openai),
        ({"messages": [5, {}, {"content": [5]}], "tools": [5, {"type": "function"}]}, {}, SETTINGS, openai),
        ({"messages": {}, "system": "a"}, {}, SETTINGS, openai),
        ({"inputs": "a", "messages": [], "system": "a"}, {}, SETTINGS, lmi),
        ({"messages": [], "system": "a"}, {"dialect": "openai"}, SETTINGS, openai),
        ({"messages": []}, {"dialect": "anthropic"}, SETTINGS, anthropic),
    ],
)
def test_detect(payload: dict[str, Any], attributes: dict[str, str], settings: Settings, found: Dialect | str) -> None:
    request = Request(b"", attributes=attributes)
    if not isinstance(found, str):
        assert detect(payload, request, settings) is found
        return
    with pytest.raises(PayloadError) as caught:
        detect(payload, request, settings)
    assert caught.value.message == found


COMMA = "custom attributes: expected a semicolon before {}, got a comma"


@each_row(
    ("attributes", "known"),
    [
        ({"trace": "abc,dialect=minimal"}, "dialect"),
        ({"trace": "abc, Dialect = minimal"}, "dialect"),
        ({"abc,dialect": "minimal"}, "dialect"),
        ({"a": "b,c=d,extra-parameters=drop"}, "extra-parameters"),
        ({"a": "b,azureml-model-deployment=c"}, "azureml-model-deployment"),
    ],
)
@each_row(("body", "status"), [({"messages": []}, 400), ({"inputs": "a"}, 424), ({"nothing": 1}, 424)], ids=str)
def test_a_comma_before_an_attribute_that_would_be_overlooked(
    attributes: dict[str, str], known: str, body: dict[str, Any], status: int
) -> None:
    """In the form of the dialect that the body tells."""
    answer = receive(Request(json.dumps(body).encode(), attributes=attributes), SETTINGS)
    assert isinstance(answer, Response)
    assert answer.status == status
    assert COMMA.format(known) in answer.body.decode()
    # What the attribute would have chosen is not what refuses.
    assert answer.dialect == ("openai" if "messages" in body else "lmi")


@each_row("value", ["abc,def=g", "a,b", "mydialect=c", "a;dialects=b", ",dialect"])
def test_commas_that_mean_nothing_are_left_alone(value: str) -> None:
    received = receive(Request(b'{"inputs": "a"}', attributes={"trace": value, "accept": "a/b,c/d"}), SETTINGS)
    assert isinstance(received, ParsedRequest)


@each_row("header", ["baggage", "Cookie", "tracestate"])
def test_headers_that_list_names_of_others(header: str) -> None:
    received = receive(Request(b'{"inputs": "a"}', attributes={header: "user=7,dialect=postgres"}), SETTINGS)
    assert isinstance(received, ParsedRequest)


def test_a_dialect_with_a_comma_is_told_what_separates() -> None:
    answer = receive(Request(b'{"inputs": "a"}', attributes={"dialect": "minimal,trace=abc"}), SETTINGS)
    assert isinstance(answer, Response)
    assert "(custom attributes are separated by semicolons), got 'minimal,trace=abc'" in answer.body.decode()


VERSION = {"api-version": "2024-05-01-preview"}


@each_row(
    ("path", "query", "found"),
    [
        ("/chat/completions", VERSION, azure),
        ("/chat/completions", {"api-version": ""}, azure),
        ("/chat/completions", {}, minimal),
        ("/chat/completions", {"version": "1"}, minimal),
        ("/chat/sse", {}, minimal),
        ("/chat/sse", VERSION, minimal),
        ("/v1/chat/completions", VERSION, openai),
        ("/invocations", VERSION, azure),
        ("/invocations", {}, openai),
        ("/v1/messages", {}, anthropic),
        ("/v1/messages", {"beta": "true"}, anthropic),
        ("/v1/messages/count_tokens", {}, anthropic),
    ],
)
def test_the_path_and_the_query_tell(path: str, query: dict[str, str], found: Dialect) -> None:
    """What goes first (docs/decisions.md: Which dialect a request is)."""
    assert detect({"messages": []}, Request(b"", path=path, query=query), SETTINGS) is found
    assert detect({"messages": []}, Request(b"", path=path, query=query), EXPLICIT) is lmi
    named = Request(b"", path=path, query=query, attributes={"dialect": "openai"})
    assert detect({"messages": []}, named, EXPLICIT) is openai


@each_row("member", [member.name for member in fields(Dialect)])
def test_a_dialect_has_every_member(member: str) -> None:
    """One that was forgotten is no silent default."""
    others = {one.name: getattr(lmi, one.name) for one in fields(Dialect) if one.name != member}
    with pytest.raises(TypeError, match=f"'{member}'"):
        Dialect(**others)


def test_formats_have_names_of_their_own() -> None:
    assert len({known.name for known in DIALECTS}) == len(DIALECTS)
