"""Whatever is sent has been judged: nothing that a content filter flags is in an answer's bytes, in whatever field.

Engines are acted that bring tokens before their text, as they do where a parser of tool calls or reasoning holds it
back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from lmi.handler.user_code.content_filter import ContentFilter, FilteredEncoder

from ...kit.api.dialects import SAMPLING, parse
from ...kit.api.errors import LmiError
from ...kit.api.handler import Workers
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    CallDelta,
    Delta,
    Event,
    Finish,
    Generation,
    ParsedRequest,
    Recording,
    ResponseEncoder,
    Sampling,
    Started,
    Token,
    TopToken,
)
from ...kit.rows import each_row

SETTINGS = typed_settings(tgi_compat=True, reasoning_parser="deepseek_r1")
FLAGGED = ("vile", "völe")
"""With letters that no id in hexadecimal digits has."""
MESSAGES = [{"role": "user", "content": "Hi"}]

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lmi": ("lmi", {"inputs": "Hi", "parameters": {"details": True, "top_n_tokens": 2, "prompt_logprobs": 2}}),
    "dynamic": ("dynamic", {"inputs": "Hi", "parameters": {"details": True, "top_n_tokens": 2}}),
    "tgi": ("tgi", {"inputs": "Hi", "parameters": {"details": True, "top_n_tokens": 2}}),
    "tgi, prefill": ("tgi", {"inputs": "Hi", "parameters": {"details": True, "decoder_input_details": True}}),
    "chat": ("openai", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
    "chat, prompt": ("openai", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 2}),
    "chat, plain": ("openai", {"messages": MESSAGES}),
    "completion": ("openai", {"prompt": "Hi", "logprobs": 2}),
    "completion, echo": ("openai", {"prompt": "Hi", "logprobs": 2, "echo": True}),
    "azure": ("azure", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
    "responses": ("responses", {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}),
    "anthropic": ("anthropic", {"messages": MESSAGES, "max_tokens": 5}),
    "minimal": ("minimal", {"model": "m", "messages": MESSAGES}),
    "transcription": ("transcription", {"file": "UklGRg=="}),
    "transcription, timed": ("transcription", {"file": "UklGRg==", "response_format": "verbose_json"}),
}
"""What asks for all that a dialect can show: the dialect, the body."""
VERSION = {"api-version": "2024-05-01-preview"}
WHOLE_ONLY = {"chat, prompt", "tgi, prefill", "completion, echo", "transcription, timed"}


def token(text: str, *top: TopToken, raw: bytes | None = None) -> Token:
    own = TopToken(1, text, -0.5, text.encode() if raw is None else raw)
    return Token(1, text, -0.5, False, (own, *top), own.raw)


def alternative(text: str, raw: bytes = b"") -> TopToken:
    return TopToken(2, text, -1.0, raw or text.encode())


def held(*texts: str) -> list[Event]:
    """Tokens whose text a parser holds back."""
    return [Delta(0, "", (token(text),)) for text in texts]


def plain(*tokens: Token) -> list[Event]:
    return [Delta(0, one.text, (one,)) for one in tokens]


END = Finish("eos", generated_tokens=9)
CALL = (CallDelta(0, "call_1", "f", '{"a": "vile"}'),)
SCRIPTS: dict[str, list[Event]] = {
    "text": [*plain(token("so "), token("vi"), token("le")), Delta(0, "", finish=END)],
    "a call that is held back": [*held("<call>", "f(", "vi", "le", ")"), Delta(0, "", finish=END, calls=CALL)],
    "a call's name": [*held("<call>"), Delta(0, "", calls=(CallDelta(0, "call_1", "vile", "{}"),), finish=END)],
    "a call's id": [
        *held("<call>", "vile.f:0"),
        Delta(0, "", calls=(CallDelta(0, "vile.f:0", "f", "{}"),), finish=END),
    ],
    "reasoning that is not shown": [
        *held("<think>", "vi", "le", "</think>"),
        *plain(token("so")),
        Delta(0, "", finish=END),
    ],
    "reasoning": [
        Delta(0, "", (token("vi"),), reasoning="vi"),
        Delta(0, "", (token("le"),), finish=END, reasoning="le"),
    ],
    "text after reasoning that is not shown": [
        *held("<think>", "v", "</think>"),
        *plain(token("so vi"), token("le")),
        Delta(0, "", finish=END),
    ],
    "all at once": [Delta(0, "", tuple(map(token, ("<call>", "vi", "le"))), finish=END)],
    "a stop string": [*plain(token("so ")), Delta(0, "", finish=Finish("stop", "vile", 2))],
    "an end that a stop string completes": [*plain(token("so v")), Delta(0, "", finish=Finish("stop", "ile", 2))],
    "another token": [*plain(token("so ", alternative("vile")), token("far")), Delta(0, "", finish=END)],
    "another last token": [*plain(token("so ")), Delta(0, "far", (token("far", alternative("vile")),), END)],
    "another token in its place": [*plain(token("so vi"), token(".", alternative("le"))), Delta(0, "", finish=END)],
    "another token where text is held back": [
        Delta(0, "", (token("<call>", alternative("vile")),)),
        Delta(0, "", finish=END),
    ],
    "the chosen one of a token that a stop string clips": [
        Delta(0, "so ", (Token(1, "so ", -0.5, False, (TopToken(1, "so vile", -0.5, b"so vile"),), b"so "),)),
        Delta(0, "", finish=END),
    ],
    "the rest of a character": [
        *plain(
            token("so v"),
            token("", raw=b"\xc3"),
            token("ä", alternative("\ufffdle", b"\xb6le"), raw=b"\xa4"),
            token("r"),
        ),
        Delta(0, "", finish=END),
    ],
    "another sequence": [
        *plain(token("so ")),
        Delta(1, "", (token("vi"),)),
        Delta(1, "", (token("le"),)),
        Delta(0, "", finish=msgspec.structs.replace(END, last=False)),
        Delta(1, "", finish=END),
    ],
}
"""What an engine brings after the prompt."""
STARTED = Started(2, prefill=(token("H"), token("i", alternative("vile"))), text="Hi", ranks=(None, 1))
HEARD = Started(2, recording=Recording(2.0, (0.0,), "en", first_time=50000))
"""Of a recording in one piece."""

FILTER = ContentFilter(lambda text: next((word for word in FLAGGED if word in text), None), "guard:judge", Workers(1))


def answered(call: ParsedRequest, script: str) -> bytes:
    """What is sent of an engine's answer; `call` may ask for one sequence."""
    sent: list[bytes] = []
    started = STARTED if call.generations[0].transcription is None else HEARD
    for event in (started, *SCRIPTS[script]):
        if not call.reply.finished:
            sent += call.reply.feed(event)
    assert call.reply.finished
    assert call.reply.failure is None
    return b"".join(sent)


def documents(body: bytes) -> Iterator[Any]:
    """The JSON documents of a body, of lines, or of events."""
    for line in body.decode().splitlines():
        text = line.removeprefix("data:").strip()
        if text and not line.startswith("event:") and text not in ("[DONE]", "[END]"):
            yield json.loads(text)


def strings(body: bytes) -> list[str]:
    """All that a client may read: its strings, names of members too, one by one and joined by where they are, and
    bytes likewise."""
    found: list[str] = [body.decode()]
    texts: dict[str, str] = defaultdict(str)
    raws: dict[str, bytes] = defaultdict(bytes)

    def walk(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for name, member in value.items():
                found.append(name)
                walk(member, f"{place}.{name}")
        elif isinstance(value, list) and value and place.endswith("bytes"):
            raws[place] += bytes(value)
            found.append(bytes(value).decode(errors="replace"))
        elif isinstance(value, list):
            for member in value:
                walk(member, f"{place}[]")
        elif isinstance(value, str):
            texts[place] += value
            found.append(value)

    for document in documents(body):
        walk(document, "")
    return [*found, *texts.values(), *(raw.decode(errors="replace") for raw in raws.values())]


def flagged(body: bytes) -> set[str]:
    return {word for word in FLAGGED for text in strings(body) if word in text}


def call_of(name: str, *, stream: bool, n: int = 1) -> ParsedRequest:
    dialect, body = REQUESTS[name]
    if stream and dialect != "dynamic":
        body = {**body, "stream": True}
    if n > 1:
        body = {**body, "n": n}
    return parse(dialect, body, SETTINGS, headers={"extra-parameters": "pass-through"}, query=VERSION)


def cases() -> Iterator[Any]:
    for name in REQUESTS:
        for stream in (False, True):
            for script in SCRIPTS:
                several = script == "another sequence"
                if (stream and name in WHOLE_ONLY) or (several and REQUESTS[name][0] != "openai"):
                    continue
                yield pytest.param(name, stream, script, id=f"{name}-{'stream' if stream else 'whole'}-{script}")


@each_row(("name", "stream", "script"), [*cases()])
def test_what_is_flagged_is_nowhere_in_an_answer(name: str, stream: bool, script: str) -> None:
    assert {dialect.name for dialect in SAMPLING} == {dialect for dialect, _ in REQUESTS.values()}
    n = 2 if script == "another sequence" else 1
    call, _ = FILTER.around(call_of(name, stream=stream, n=n))
    assert flagged(answered(call, script)) == set()


@each_row("script", SCRIPTS)
def test_each_of_these_answers_has_it_without_a_filter(script: str) -> None:
    several = script == "another sequence"
    names = [name for name, (dialect, _) in REQUESTS.items() if dialect == "openai" or not several]
    sent = {name: flagged(answered(call_of(name, stream=False, n=2 if several else 1), script)) for name in names}
    if script != "the rest of a character":
        assert any(sent.values())


class Telling:
    """A reply that tells all that it is given, as a user's may."""

    status = 200
    content_type = "application/jsonlines"
    headers: Mapping[str, str] = {}
    failure: LmiError | None = None

    def __init__(self) -> None:
        self.finished = False
        self.events: list[Event] = []

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        self.events.append(event)
        self.finished = isinstance(event, Delta) and event.finish is not None and event.finish.last
        return [msgspec.json.encode(msgspec.to_builtins(event)) + b"\n"]


def told(script: str, *, tokens: bool, judge: ContentFilter | None) -> list[str]:
    """All that such a reply can read: texts, and each token with those in its place after what stands before it."""
    sampling = Sampling(logprobs=2, n=2 if script == "another sequence" else 1)
    reply = Telling()
    generation = Generation(request_id="r", prompt="Hi", tokens=tokens, sampling=sampling)
    outer: ResponseEncoder = reply if judge is None else FilteredEncoder(reply, judge, [generation])
    for event in (STARTED, *SCRIPTS[script]):
        if not reply.finished:
            outer.feed(event)
    assert reply.finished
    found = [msgspec.json.encode(msgspec.to_builtins(reply.events)).decode()]
    for index in (0, 1):
        deltas = [event for event in reply.events if isinstance(event, Delta) and event.index == index]
        before = b""
        for one in (one for delta in deltas for one in delta.tokens):
            found += [(before + top.raw).decode(errors="replace") for top in one.top]
            before += one.raw
        found.append(before.decode(errors="replace"))
        found.append("".join(one.text for delta in deltas for one in delta.tokens))
        found.append("".join(delta.reasoning + delta.text for delta in deltas))
    return [text for text in found if any(word in text for word in FLAGGED)]


@each_row("tokens", [False, True], ids=["text", "tokens"])
@each_row("script", SCRIPTS)
def test_a_formatter_can_read_nothing_that_is_flagged(script: str, tokens: bool) -> None:
    assert told(script, tokens=tokens, judge=None), "the script has nothing that is flagged"
    assert told(script, tokens=tokens, judge=FILTER) == []


def test_what_is_acceptable_stays() -> None:
    """Of the likeliest in a place only those are left out that are flagged."""
    script = [*plain(token("so ", alternative("vile"), alternative("far"))), Delta(0, "", finish=END)]
    reply = Telling()
    generation = Generation(request_id="r", prompt="Hi", tokens=True, sampling=Sampling(logprobs=2))
    outer = FilteredEncoder(reply, FILTER, [generation])
    for event in script:
        outer.feed(event)
    (first, last) = (event for event in reply.events if isinstance(event, Delta))
    assert [top.text for top in first.tokens[0].top] == ["so ", "far"]
    assert last.finish == END


def test_text_is_judged_once_and_tokens_only_where_they_differ() -> None:
    judged: list[str] = []
    notebook = ContentFilter(judged.append, "guard:notes", Workers(1))
    generation = Generation(request_id="r", prompt="Hi", tokens=True)
    encoder = FilteredEncoder(Telling(), notebook, [generation])
    for event in (
        *plain(Token(1, "so "), Token(1, "far")),
        *(Delta(0, "", (Token(1, one),)) for one in ("<", "f")),
        Delta(0, "", finish=END),
    ):
        encoder.feed(event)
    assert judged == ["so ", "so far", "so far<", "so far<f"]


def test_beams_come_whole() -> None:
    """Engines refuse to stream them."""
    call, _ = FILTER.around(parse("lmi", {"inputs": "Hi", "parameters": {"num_beams": 2}}, SETTINGS))
    (generation,) = call.generations
    assert generation.sampling.beams is not None
    assert not generation.stream
    assert not call.streamed
