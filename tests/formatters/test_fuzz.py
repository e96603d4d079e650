"""Every request gets a call or a well-formed refusal of its dialect, in bounded time; nothing raises (hypothesis).

tests/fuzz/decoders.py does the same with atheris, guided by coverage.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lmi.formatters import DIALECTS, ParsedRequest, Request, Response, openai, receive

from ..fuzz.bodies import LEAVES, NAMES, SETTINGS, hostile_request, places, raw_request
from ..fuzz.oracle import check
from ..fuzz.samples import SAMPLES, Sample
from ..kit.api.errors import GenerationError, PayloadError
from ..kit.api.handler import headers_of
from ..kit.clients.scripts import run_python, theirs
from ..kit.paths import TESTS
from ..kit.rows import each_row


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A line for each of a thousand unknown names would hide what a failure says."""
    logger = logging.getLogger("lmi.formatters.common.fields")
    logger.disabled = True
    yield
    logger.disabled = False


@settings(max_examples=800)
@given(st.binary(max_size=60))
def test_near_valid_requests(data: bytes) -> None:
    check(*hostile_request(data))


@settings(max_examples=500)
@given(st.binary(max_size=80))
@example(b"\xef\xbb\xbf{}")
def test_arbitrary_bytes(data: bytes) -> None:
    check(*raw_request(data))
    check(Request(data), SETTINGS)


PASSED = {"extra-parameters": "pass-through"}
"""Azure has fields that are not its own refused, unless it is told so."""


FORMS = {sample.path: sample for sample in reversed(SAMPLES)}.values()


def tried(sample: Sample, target: Any, key: Any, values: Iterable[Any]) -> Iterator[ParsedRequest | Response]:
    """What becomes of a sample with each of these values at `key` of `target`, which is in its body."""
    for target[key] in values:
        request = Request(json.dumps(sample.body).encode(), query=sample.query, attributes=PASSED, path=sample.path)
        yield check(request, replace(SETTINGS, **sample.settings))


@each_row("sample", SAMPLES, ids=lambda sample: sample.name)
def test_anything_in_any_field(sample: Sample) -> None:
    """Wherever a value is, one at a time: a third of all values in each place, another third in the next one."""
    changed = copy.deepcopy(sample)
    kinds: Counter[type] = Counter()
    for place, (target, key) in enumerate([*places(changed.body)]):
        kinds.update(map(type, tried(changed, target, key, [*LEAVES[place % 3 :: 3], target[key]])))
    assert changed == sample
    assert min(kinds[ParsedRequest], kinds[Response]) > kinds.total() / 20


@each_row("sample", FORMS, ids=lambda sample: sample.name)
def test_anything_in_a_field_that_another_form_has(sample: Sample) -> None:
    kinds: Counter[type] = Counter()
    for place, name in enumerate(NAMES):
        changed = copy.deepcopy(sample)
        inner = changed.body.get("parameters")
        target = inner if isinstance(inner, dict) else changed.body
        values = (None, True, 5, "a", [5], {"5": 1})[place % 2 :: 2]
        kinds.update(map(type, tried(changed, target, name, values)))
    assert kinds[ParsedRequest] > kinds.total() / 20


def test_every_dialect_has_a_sample() -> None:
    asked = [Request(json.dumps(one.body).encode(), path=one.path, query=one.query) for one in SAMPLES]
    found = {receive(one, replace(SETTINGS, **of.settings)).dialect for one, of in zip(asked, SAMPLES, strict=True)}
    assert found == {known.name for known in DIALECTS}


texts = st.text(max_size=40)


@settings(max_examples=150)
@given(
    st.sampled_from([known.name for known in DIALECTS]) | texts,
    st.dictionaries(texts, texts, max_size=3),
    st.dictionaries(st.sampled_from(["api-version", "request"]) | texts, texts, max_size=2),
    st.sampled_from([sample.path for sample in SAMPLES]) | texts,
    texts,
)
def test_any_headers_query_and_path(
    dialect: str, headers: dict[str, str], query: dict[str, str], path: str, kind: str
) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    for sent in (lower, {**lower, "content-type": kind}):
        check(Request(b'{"inputs": "a", "model": "m"}', sent, query, {"dialect": dialect, **lower}, path), SETTINGS)


@each_row("sample", SAMPLES, ids=lambda sample: sample.name)
def test_duplicate_keys_are_read_as_the_last(sample: Sample) -> None:
    """As every JSON reader in the way does: nobody is shown one value and asked for another."""
    first = json.dumps(dict.fromkeys(sample.body))
    body = (first[:-1] + ", " + json.dumps(sample.body)[1:]).encode()
    request = Request(body, path=sample.path, query=sample.query)
    settings_of = replace(SETTINGS, **sample.settings)
    plain = Request(json.dumps(sample.body).encode(), path=sample.path, query=sample.query)
    doubled, single = check(request, settings_of), check(plain, settings_of)
    assert isinstance(doubled, ParsedRequest)
    assert isinstance(single, ParsedRequest)
    assert [one.prompt for one in doubled.generations] == [one.prompt for one in single.generations]


HUGE_TOOL = {"type": "function", "function": {"name": "a", "parameters": {"maximum": 2**64}}}
FOUND: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"inputs": "a", "parameters": {"min_p": 0.1, "n": 2, "num_beams": 2}},
        {"parameter_schema": "trtllm"},
        "parameters.min_p: cannot be combined with parameters.num_beams above 1",
    ),
    (
        {"messages": [{"role": "user", "content": "a"}], "tools": [HUGE_TOOL]},
        {},
        "tools[0].function.parameters: expect",
    ),
    ({"inputs": {"\x1b[2J": float("inf")}}, {}, "inputs.\\x1b[2J: expected a finite number, got Infinity"),
]
"""What fuzzing found: a KeyError, integers that cannot be sent to the engine, control characters in messages."""


@each_row(("body", "changed", "message"), FOUND, ids=range(len(FOUND)))
def test_what_fuzzing_found(body: dict[str, Any], changed: dict[str, Any], message: str) -> None:
    answer = check(Request(json.dumps(body).encode()), replace(SETTINGS, **changed))
    assert isinstance(answer, Response)
    assert answer.failure is not None
    assert answer.failure.message.startswith(message)


def faulty(payload: Any, request: Request, settings: Any) -> ParsedRequest:
    raise KeyError("top_k")


FAULTY = dataclasses.replace(openai.DIALECT, name="faulty", routes=(), parse=faulty)
"""A dialect with a fault of ours in it."""


def test_a_fault_of_a_dialect_is_its_requests_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Behind DJL's asynchronous mode an exception would leave the client waiting for ever."""
    request = Request(b'{"inputs": "a"}', attributes={"dialect": "faulty"}, request_id="7")
    answer = receive(request, SETTINGS, (FAULTY,))
    assert isinstance(answer, Response)
    assert (answer.status, isinstance(answer.failure, GenerationError)) == (500, True)
    assert json.loads(answer.body)["error"]["message"] == "the request could not be read: KeyError"
    assert "request 7 could not be read" in caplog.text


BODIES = int(os.environ.get("LMI_FUZZ_BODIES", "20000"))


@pytest.mark.hosts
def test_guided_by_coverage(tmp_path: Path) -> None:
    """atheris on the same decoders; docs/threat-model.md has what a million bodies found."""
    script = TESTS / "fuzz" / "decoders.py"
    limits = [f"-runs={BODIES}", "-max_len=800", "-timeout=120", "-rss_limit_mb=3000", f"-artifact_prefix={tmp_path}/"]
    told = run_python(theirs(), [str(script), str(tmp_path / "corpus"), *limits, "-print_final_stats=1"], errors=True)
    assert f"stat::number_of_executed_units: {BODIES}" in told
    assert not [*tmp_path.glob("crash-*")]
    # It was guided: what reached something new was kept.
    assert len([*(tmp_path / "corpus").iterdir()]) > 2 * len(SAMPLES)


@each_row("value", ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "\x00\x85\u2028X-Evil: 1", "\r\n\r\n<html>", "日本"])
def test_a_header_cannot_hold_another(value: str) -> None:
    """Of a dialect of the user's that puts what a request says into a header, and into a header's name."""
    headers = headers_of(Response(b"{}", headers={"X-About": value, value: "a"}))
    assert list(headers)[:2] == ["Content-Type", "X-About"]
    for name, told in headers.items():
        assert (name + told).isprintable()
        assert (name + told).encode("latin-1")
    assert headers["X-About"].startswith(("a ", " "))


HEAVY = 1 << 20
"""Bytes of a body that takes as long as a body may."""


def _filled(unit: bytes, head: bytes, tail: bytes) -> bytes:
    return head + unit * (HEAVY // len(unit)) + tail


@each_row(
    "body",
    [
        _filled(b"a", b'{"inputs": "', b'", "parameters": {"temperature": NaN}}'),
        _filled(b'"a":1,', b'{"inputs":"a",', b'"z":1}'),
        _filled(b'{"a":[', b'{"inputs":', b""),
        _filled(b"[", b'{"inputs":', b""),
        _filled(b"[],", b'{"messages":[', b"[]]}"),
        _filled(b'{"role":"user","content":"a"},', b'{"messages":[', b'{"role":"x"}]}'),
        _filled(b'"a",', b'{"prompt":[', b'"a"]}'),
        _filled(b"1,", b'{"prompt":[', b"-1]}"),
        _filled(b"NaN,", b'{"prompt":[', b"NaN]}"),
        _filled(b"\\ud800", b'{"prompt":"', b'"}'),
        _filled(b"\\u", b'{"prompt":"', b'"}'),
        _filled(b"9", b'{"seed":', b"}"),
        _filled(b"9", b'{"temperature":0.', b"}"),
        _filled(b"9", b'{"temperature":1e', b"}"),
        _filled(b" ", b"", b""),
        _filled(b'"x":{"', b'{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{', b""),
        _filled(b'{"a":1},', b'{"messages":[{"role":"user","content":"a"}],"documents":[', b"{}]}"),
        _filled(b" x:", b'{"inputs":"a","parameters":{"', b'":1}}'),
        _filled(b'{"type":"text","text":"a"},', b'{"messages":[{"role":"user","content":[', b"5]}]}"),
        _filled(b"\n", b'{"messages":[{"role":"', b'"}]}'),
    ],
    ids=range(20),
)
def test_a_large_body_takes_no_longer_than_its_size_explains(body: bytes) -> None:
    """Quadratic work on a megabyte would take minutes; the oracle allows 2 seconds of CPU."""
    for path in ("/invocations", "/v1/chat/completions", "/v1/completions"):
        check(Request(body, path=path), SETTINGS)


def test_the_oracle_finds_what_is_wrong() -> None:
    """It would be no test if it passed everything."""
    from ..fuzz import oracle

    request = Request(b"{}")
    error = PayloadError("a")
    good = Response(b'{"error": "a", "code": 424}', 424, failure=error)
    oracle._check_answer(good, request)
    faults: list[dict[str, Any]] = [
        {"status": 500},
        {"failure": None},
        {"body": b"no JSON"},
        {"body": b'{"other": "a"}'},
        {"body": b'{"error": "b", "code": 424}'},
        {"body": b'{"error": "a", "code": 424}\n{}'},
        {"headers": {"x": "a\r\nb"}},
        {"content_type": "text/html"},
    ]
    for fault in faults:
        given_fields = {"body": good.body, "status": 424, "failure": error, **fault}
        with pytest.raises(oracle.BrokenRuleError):
            oracle._check_answer(Response(**given_fields), request)
