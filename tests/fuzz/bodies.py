"""Hostile requests out of random bytes, for hypothesis and atheris alike.

bytes --Source--> a documented sample, mutated as a value, then as JSON text, then as bytes; hostile headers and queries

The same bytes give the same request, so that whatever is found can be tried again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ..kit.api.dialects import (
    CHAT_ROWS,
    DIALECTS,
    LMI_ROWS,
    RERANK_NAMES,
    RESPONSE_ROWS,
    TEXT_ROWS,
)
from ..kit.api.handler import ATTRIBUTES_HEADER, attributes_of
from ..kit.api.types import Request, Settings
from .samples import REFUSED, SAMPLES, Sample

__all__ = ["NAMES", "SETTINGS", "Source", "hostile_request", "places", "raw_request"]

SETTINGS = Settings(model_dir="/model", model_id="/model", model_name="/model")
T = TypeVar("T")

VARIED: Sequence[Mapping[str, Any]] = (
    {},
    {"unknown_parameters": "error"},
    {"tgi_compat": True},
    {"rolling_batch": "disable"},
    {"task": "embed"},
    {"task": "embed", "rolling_batch": "disable"},
    {"task": "rank"},
    {"task": "classify"},
    {"output_formatter": "sse"},
    {"output_formatter": "jsonlines", "parameter_schema": "trtllm"},
    {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"},
)

# fmt: off
LEAVES: Sequence[Any] = (
    None, True, False, 0, 1, -1, 2, 5.0, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**31 - 1, 2**32, 2**53, 2**63 - 1,
    2**63, 2**64, -(2**63), -(2**63) - 1, 10**20, 10**299, 10**400, float("nan"), float("inf"), float("-inf"), "", " ",
    "a", "\x00", "\n", "\r\n\r\nHTTP/1.1 200 OK", "\u2028", "\ud800", "\udc00\ud800", "\ufeff", "é", "日本", "𝔘",
    "a" * 5000, "{" * 200, "true", "null", "5", "auto", "required", "none", "user", "assistant", "tool", "text",
    "image_url", "json_schema", "json_object", "structural_tag", "data:image/png;base64,!!!!", "data:,",
    "file:///etc/passwd", "http://169.254.169.254/latest/meta-data", "https://[::1]/", "//", "http://", "%00",
    "../../etc/passwd", "__proto__", [], {}, [[]], [{}], {"": {}}, [None], [""], [1, "a"], [0] * 1030, ["a"] * 70,
    {"type": "text"}, {"a": [1, {"b": 2}]}, {"type": "function", "function": {"name": "a"}}, {"5": 1, "x": 2},
    {"type": "image_url", "image_url": {"url": "data:,"}}, {"role": "user", "content": "a"},
    {"type": "json_schema", "json_schema": {"schema": {}}},
)
NAMES: Sequence[str] = tuple(dict.fromkeys((
    *CHAT_ROWS, *TEXT_ROWS, *RESPONSE_ROWS, *LMI_ROWS["common"], "prompt",
    "input", "inputs", "parameters", "query", "documents", "texts", "queries", "text_1", "text_2", *RERANK_NAMES,
    "requestType", "adapters", "adapter", "role", "content", "type", "url", "extra_args", "", "\n", "é" * 99,
)))
TYPES = (
    "application/json", "application/json", "", "text/plain", "application/octet-stream", "application/x+json", ";",
    "\x00", "application/json; charset=utf-16", "multipart/form-data", "APPLICATION/JSON", "é", "a" * 3000,
    "text/event-stream",
)
ATTRIBUTES = (
    "", "dialect=", "dialect=none", "=", ",,;;", "a=b=c", "dialect=\n", "x" * 5000, "dialect=lmi;dialect=tgi",
    "k=\r\nX: 1", "dialect=azure,extra-parameters=pass-through", "DIALECT=openai",
    *(f"dialect={known.name}" for known in DIALECTS),
)
HEADERS: Sequence[Mapping[str, str]] = (
    {}, {}, {}, {"accept": "text/event-stream"}, {"x-amzn-sagemaker-adapter-identifier": "a"},
    {"x-amzn-sagemaker-session-id": "\r\n"}, {"extra-parameters": "drop"}, {"extra-parameters": "pass-through"},
    {"extra-parameters": "\x00"}, {"azureml-model-deployment": "../x"},
)
QUERIES: Sequence[Mapping[str, str]] = (
    {}, {}, {}, {"api-version": "2024-05-01-preview"}, {"api-version": ""}, {"api-version": "9999-99-99"},
    {"request": "{}"}, {"request": "\ud800"}, {"api-version": "\n"},
)
PATHS = tuple(dict.fromkeys((*(sample.path for sample in SAMPLES), "", "/nothing", "/v1/models", "/info", "/\n")))
BYTES = (
    b"", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf8\x88\x80\x80\x80", b"\\ud800", b"\\u",
    b"NaN", b"-", b"Infinity", b",", b"}", b"{", b"[" * 40, b'"', b"1e999", b"1" * 400, b"/*", b"\\", b'"a":1,',
    b"\r\n", b"\x1f", b"'",
)
# fmt: on


class Source:
    """Decisions out of bytes; when they have run out, the first choice every time."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        width = 1 if count <= 256 else 2
        taken = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(taken, "big") % count if count else 0

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def rest(self) -> bytes:
        return self._data[self._at :]


def _settings(source: Source, sample: Sample | None) -> Settings:
    changed = dict(source.pick(VARIED)) or dict(sample.settings if sample else {})
    return msgspec.structs.replace(SETTINGS, **changed)


def places(value: Any) -> Iterable[tuple[Any, Any]]:
    """Every container in a value and a key or index of it."""
    stack = [value]
    while stack:
        item = stack.pop()
        keys: Iterable[Any] = (
            list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        )
        for key in keys:
            yield item, key
            stack.append(item[key])


def _mutate(body: dict[str, Any], source: Source) -> None:
    """Changes one thing."""
    found = list(places(body))
    if not found:
        body["inputs"] = copy.deepcopy(source.pick(LEAVES))
        return
    container, key = source.pick(found)
    what = source.below(9)
    if what == 0:
        container[key] = copy.deepcopy(source.pick(LEAVES))
    elif what == 1:
        del container[key]
    elif what == 2:
        body[source.pick(NAMES)] = copy.deepcopy(source.pick(LEAVES))
    elif what == 3 and isinstance(container, dict):
        container[source.pick(NAMES)] = copy.deepcopy(source.pick(LEAVES))
    elif what == 4 and isinstance(container, dict):
        container[source.pick(NAMES)] = container.pop(key)
    elif what == 5 and isinstance(container, list):
        times = source.pick((0, 2, 70, 300))
        # Long enough for every limit on a list, short enough for many tries.
        container *= times if len(found) * times <= 5000 else 1
    elif what == 6:
        for _ in range(source.pick((1, 30, 99, 101, 400, 990))):
            container[key] = [container[key]] if source.below(2) else {"a": container[key]}
    elif what == 7:
        other = copy.deepcopy(source.pick(SAMPLES).body)
        body.update({name: other[name] for name in list(other)[: 1 + source.below(3)]})
    else:
        parameters = body.setdefault("parameters", {})
        if isinstance(parameters, dict):
            parameters[source.pick(NAMES)] = copy.deepcopy(source.pick(LEAVES))


def _text(body: Any, source: Source) -> bytes:
    ascii_only = source.below(2) == 0
    try:
        text = json.dumps(body, ensure_ascii=ascii_only)
    except RecursionError:
        text = "[" * 2000
    data = text.encode(errors="surrogatepass")
    for _ in range(source.pick((0, 0, 0, 1, 1, 3))):
        at = source.below(len(data) + 1)
        gone = source.pick((0, 0, 1, 5, 1000))
        data = data[:at] + source.pick(BYTES) + data[at + gone :]
    return data


def hostile_request(data: bytes) -> tuple[Request, Settings]:
    """A near-valid request with some things wrong."""
    source = Source(data)
    sample = source.pick((*SAMPLES, *REFUSED))
    settings = _settings(source, sample)
    body = copy.deepcopy(sample.body)
    for _ in range(source.below(5)):
        _mutate(body, source)
    content = _text(body, source)
    odd = source.below(4) == 0
    attributes = source.pick(ATTRIBUTES) if odd else ""
    query = {**sample.query, **(source.pick(QUERIES) if odd else {})}
    path = source.pick(PATHS) if odd and source.below(2) else sample.path
    method = source.pick(("POST", "GET")) if odd else "POST"
    headers = {"content-type": source.pick(TYPES) if odd else "application/json"}
    headers |= {ATTRIBUTES_HEADER: attributes, **(source.pick(HEADERS) if odd else {})}
    return Request(
        content, headers, query, attributes_of([(ATTRIBUTES_HEADER, attributes)]), path, method, "fuzz"
    ), settings


def raw_request(data: bytes) -> tuple[Request, Settings]:
    """A request whose body is what is left of the bytes after some decisions."""
    source = Source(data)
    path, attributes, settings = source.pick(PATHS), source.pick(ATTRIBUTES), _settings(source, None)
    query = source.pick(QUERIES)
    return Request(
        source.rest(), {}, query, attributes_of([(ATTRIBUTES_HEADER, attributes)]), path, request_id="fuzz"
    ), settings
