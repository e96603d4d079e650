"""What the chaos test asks for: greedy requests in every dialect, and bodies that are no requests.

Each case has a mark of its own, and its answer brings the mark back: decoding is guided to a text that is made of it,
or the answer repeats the prompt. Cases that run at the same time have different marks.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..demo.model import QUESTIONS, question
from ..kit.hosts.host import WITHOUT_JAVA
from .wire import request_bytes

__all__ = ["BAD", "KINDS", "MARK", "Case", "bad_request", "pool"]

MARK = re.compile(r"mk\d{5}q")
"""What a mark looks like."""

PLAIN = [one.prompt for one in QUESTIONS if one.kind in {"plain", "unicode", "json"}]
ENDLESS = question("endless").prompt
Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A request that is good, whatever else happens."""

    number: int
    kind: str
    mark: str
    request: bytes
    reader: str
    """How its answer is read (answers.READERS)."""


@dataclass(frozen=True)
class Kind:
    """One dialect and form."""

    reader: str
    body: Callable[[str, int], Body]
    """By mark and number."""
    dialect: str
    routes: tuple[str, ...]
    """On the local server; without one, and behind DJL, it is /invocations and an attribute names the dialect."""
    accept: str = "application/json"


def _prompt(mark: str, number: int) -> str:
    return f"{mark} {PLAIN[number % len(PLAIN)]}"


def _guided(mark: str, number: int) -> str:
    """The text that the model is guided to: the mark, once or several times."""
    return " ".join([mark] * (1 + number % 5))


def _inputs(stream: bool, /, **parameters: Any) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        given = {"max_new_tokens": 8 + number % 24, "details": True, "return_full_text": True, **parameters}
        return {"inputs": _prompt(mark, number), "parameters": given, "stream": stream}

    return body


def _long(mark: str, number: int) -> Body:
    given = {"max_new_tokens": 200, "ignore_eos_token": True, "details": True, "return_full_text": True}
    return {"inputs": f"{mark} {ENDLESS}", "parameters": given, "stream": True}


def _regex(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        grammar = {"type": "regex", "value": re.escape(_guided(mark, number)).replace("\\ ", " ")}
        given = {"max_new_tokens": 90, "details": True, "grammar": grammar}
        return {"inputs": _prompt(mark, number), "parameters": given, "stream": stream}

    return body


def _chat(stream: bool, guided: str = "choice", /, **fields: Any) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        guides: dict[str, Body] = {
            "choice": {"guided_choice": [_guided(mark, number)]},
            "schema": {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "mark", "schema": {"enum": [_guided(mark, number)]}},
                }
            },
        }
        messages = [{"role": "user", "content": _prompt(mark, number)}]
        # Azure's API has no place for usage in a stream.
        usage: Body = {"stream_options": {"include_usage": True}} if stream and guided == "choice" else {}
        asked = {"messages": messages, "temperature": 0, "max_tokens": 90, "stream": stream, **usage}
        return {**asked, **guides[guided], **fields}

    return body


def _minimal(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        messages = [{"role": "user", "content": _prompt(mark, number)}]
        asked = {"model": f"model-{mark}", "messages": messages, "temperature": 0, "max_tokens": 90, "stream": stream}
        return {**asked, "guided_choice": [_guided(mark, number)]}

    return body


def _completion(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        asked: Body = {"prompt": _prompt(mark, number), "max_tokens": 8 + number % 24, "temperature": 0, "echo": True}
        usage: Body = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return {**asked, **usage, **({"logprobs": 0} if number % 2 else {})}

    return body


def _batched(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        given = {"max_new_tokens": 90, "guided_choice": [_guided(mark, number)]}
        return {"inputs": [_prompt(mark, number)], "parameters": given, "stream": stream}

    return body


def _anthropic(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        messages = [{"role": "user", "content": _prompt(mark, number)}]
        form = {"type": "json_schema", "schema": {"enum": [_guided(mark, number)]}}
        asked = {"messages": messages, "temperature": 0, "max_tokens": 90, "stream": stream}
        return {**asked, "output_config": {"format": form}}

    return body


def _responses(stream: bool) -> Callable[[str, int], Body]:
    def body(mark: str, number: int) -> Body:
        asked = {"input": _prompt(mark, number), "temperature": 0, "max_output_tokens": 90, "stream": stream}
        return {**asked, "structured_outputs": {"choice": [_guided(mark, number)]}}

    return body


LMI = ("/invocations", "/predictions/model")
AZURE = "/chat/completions?api-version=2024-05-01-preview"
KINDS: dict[str, Kind] = {
    "LMI whole": Kind("whole", _inputs(False), "lmi", LMI),
    "LMI stream": Kind("lines", _inputs(True), "lmi", LMI),
    "LMI prefill": Kind("whole", _inputs(False, decoder_input_details=True), "lmi", LMI),
    "LMI long stream": Kind("lines", _long, "lmi", LMI),
    "LMI beams": Kind("whole", _inputs(False, num_beams=2, max_new_tokens=6), "lmi", LMI),
    "TGI whole": Kind("whole", _inputs(False), "tgi", ("/generate", "/")),
    "TGI stream": Kind("lines", _inputs(True), "tgi", ("/generate_stream", "/")),
    "TGI guided": Kind("whole", _regex(False), "tgi", ("/generate", "/")),
    "TGI guided stream": Kind("lines", _regex(True), "tgi", ("/generate_stream", "/")),
    "completion": Kind("text", _completion(False), "openai", ("/v1/completions",)),
    "completion stream": Kind("text chunks", _completion(True), "openai", ("/v1/completions",)),
    "chat": Kind("chat", _chat(False), "openai", ("/v1/chat/completions", "/invocations")),
    "chat stream": Kind("chat chunks", _chat(True), "openai", ("/v1/chat/completions", "/invocations")),
    "chat logprobs": Kind("chat", _chat(False, logprobs=True, top_logprobs=0), "openai", ("/v1/chat/completions",)),
    "Azure": Kind("chat", _chat(False, "schema"), "azure", (AZURE,)),
    "Azure stream": Kind("Azure chunks", _chat(True, "schema"), "azure", (AZURE,)),
    "dynamic": Kind("batch", _batched(False), "dynamic", ()),
    "dynamic stream": Kind("batch lines", _batched(True), "dynamic", ()),
    "Anthropic": Kind("anthropic", _anthropic(False), "anthropic", ("/v1/messages",)),
    "Anthropic stream": Kind("anthropic events", _anthropic(True), "anthropic", ("/v1/messages",)),
    "response": Kind("response", _responses(False), "responses", ("/v1/responses",)),
    "response stream": Kind("response events", _responses(True), "responses", ("/v1/responses",)),
    "minimal": Kind("message", _minimal(False), "minimal", ("/chat/completions",)),
    "minimal lines": Kind("message lines", _minimal(True), "minimal", ("/chat/completions",)),
    "minimal events": Kind("message events", _minimal(True), "minimal", ("/chat/sse",), "text/event-stream"),
}

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def pool(size: int, host: str, kinds: Sequence[str] = tuple(KINDS)) -> list[Case]:
    """So many cases for a kind of host (tests/kit/hosts/host.py), of all `kinds` in turn."""
    cases: list[Case] = []
    for number in range(size):
        name = kinds[number % len(kinds)]
        kind, mark = KINDS[name], f"mk{10007 * (number + 1) % 100_000:05d}q"
        if host in WITHOUT_JAVA and kind.routes:
            path, told = kind.routes[number // len(kinds) % len(kind.routes)], {}
        else:
            path, told = "/invocations", {ATTRIBUTES: f"dialect={kind.dialect}"}
        content = json.dumps(kind.body(mark, number)).encode()
        request = request_bytes(path, {"Accept": kind.accept, **told}, content)
        cases.append(Case(number, name, mark, request, kind.reader))
    assert len({case.mark for case in cases}) == size
    return cases


def _deep(mark: str) -> bytes:
    return b'{"inputs": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"


def _asked(**parameters: Any) -> Callable[[str], bytes]:
    return lambda mark: json.dumps({"inputs": mark, "parameters": parameters}).encode()


def _messages(**fields: Any) -> Callable[[str], bytes]:
    return lambda mark: json.dumps({"messages": [{"role": "user", "content": mark}], **fields}).encode()


BAD: dict[str, Callable[[str], bytes]] = {
    "empty": lambda mark: b"",
    "torn": lambda mark: b'{"inputs": "' + mark.encode(),
    "not JSON": lambda mark: f"inputs={mark}".encode(),
    "not UTF-8": lambda mark: b'{"inputs": "' + mark.encode() + b'\xff\xfe"}',
    "trailing comma": lambda mark: f'{{"inputs": "{mark}",}}'.encode(),
    "no field": lambda mark: b'{"parameters": {}}',
    "a list": lambda mark: b"[1, 2, 3]",
    "deep": _deep,
    "long": lambda mark: json.dumps({"inputs": f"{mark} " * 4000}).encode(),
    "large": lambda mark: json.dumps({"inputs": mark, "parameters": "x" * 3_000_000}).encode(),
    "empty prompt": lambda mark: b'{"inputs": ""}',
    "tokens": _asked(max_new_tokens="many"),
    "temperature": _asked(temperature=-1),
    "NaN": lambda mark: f'{{"inputs": "{mark}", "parameters": {{"temperature": NaN}}}}'.encode(),
    "a huge integer": lambda mark: f'{{"inputs": "{mark}", "parameters": {{"seed": {"9" * 400}}}}}'.encode(),
    "stops": _asked(stop_sequences=5),
    "beams": _asked(num_beams=2, temperature=0.5),
    "role": _messages(messages=[{"role": "the boss", "content": "hello"}]),
    "no messages": _messages(messages=[]),
    "schema": _messages(guided_json={"type": "nonsense"}),
    "empty grammar": _messages(guided_grammar=" "),
    "broken grammar": _messages(guided_grammar="root ::= ("),
    "broken regex": _messages(guided_regex="(["),
    "two guides": _messages(guided_regex="a", guided_choice=["b"]),
    "image": _messages(
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x"}}]}]
    ),
    "logprobs": _messages(logprobs=True, top_logprobs=99),
    "dialect": lambda mark: json.dumps({"inputs": mark, "dialect": mark}).encode() + b"}",
}


def bad_request(rng: random.Random, mark: str) -> tuple[str, bytes]:
    """One that must be refused, and its name."""
    name = rng.choice(list(BAD))
    headers: dict[str, str] = {}
    if rng.random() < 0.1:
        name, headers = "attribute", {ATTRIBUTES: f"dialect={mark}"}
        return name, request_bytes("/invocations", headers, json.dumps({"inputs": mark}).encode())
    if rng.random() < 0.1:
        name, headers = "type", {"Content-Type": "text/csv"}
        return name, request_bytes("/invocations", headers, json.dumps({"inputs": mark}).encode())
    return name, request_bytes("/invocations", headers, BAD[name](mark))
