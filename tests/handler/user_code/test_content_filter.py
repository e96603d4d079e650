"""The content filter, with answers fed by hand, in every dialect that there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from lmi.handler.user_code.content_filter import ContentFilter, FilteredEncoder

from ...kit.api.dialects import GENERATING, named, parse
from ...kit.api.errors import ContentFilterError, LmiError, UserCodeError
from ...kit.api.handler import Workers
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    CallDelta,
    Delta,
    Event,
    Failed,
    Finish,
    Generation,
    ParsedRequest,
    Recording,
    Request,
    Started,
    Token,
)
from ...kit.rows import each_row

SETTINGS = typed_settings(tgi_compat=True)
BY_NAME: dict[str, Any] = {dialect.name: dialect for dialect in GENERATING}

REQUEST = Request(b"", query={"api-version": "2024-05-01-preview"})
BODIES: dict[str, dict[str, Any]] = {
    "lmi": {"inputs": "Hi", "parameters": {"details": True}},
    "tgi": {"inputs": "Hi", "parameters": {"details": True}},
    "dynamic": {"inputs": "Hi", "parameters": {"details": True}},
    "openai": {"messages": [{"role": "user", "content": "Hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    "responses": {"input": "Hi"},
    "azure": {"messages": [{"role": "user", "content": "Hi"}]},
    "minimal": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
}
WORDS = {
    "openai": "content_filter",
    "azure": "content_filter",
    "lmi": "content_filter",
    "tgi": "stop_sequence",
}
"""The finish reason of answers that were cut off, where a dialect has a word for it."""


def judge(text: str, stage: str) -> str | None:
    assert stage in ("prompt", "text")
    return "bad word" if "bad" in text else None


FILTER = ContentFilter(judge, "guard:judge", Workers(1))


def filtered(name: str, body: dict[str, Any]) -> tuple[ParsedRequest, list[int]]:
    call, encoder = FILTER.around(parsed(name, body))
    return call, encoder.to_abort


def parsed(name: str, body: dict[str, Any]) -> ParsedRequest:
    parsed: ParsedRequest = BY_NAME[name].parse(body, REQUEST, SETTINGS)
    return parsed


def feed(call: ParsedRequest, *events: Event) -> bytes:
    return b"".join(record for event in events for record in call.reply.feed(event))


def delta(text: str, **more: Any) -> Delta:
    return Delta(0, text, (Token(1, text, -0.5),), **more)


@each_row("name", BY_NAME)
@each_row("stream", [False, True])
def test_text_up_to_what_was_flagged_is_sent(name: str, stream: bool) -> None:
    call, cut = filtered(name, {**BODIES[name], "stream": stream})
    assert all(generation.stream and generation.tokens for generation in call.generations)
    sent = feed(call, Started(1), delta("good, "), delta("very ba"), delta("d indeed"))
    assert call.reply.finished
    assert call.reply.failure is None
    assert call.reply.status == 200
    assert cut == [0]
    assert b"very ba" in sent or b"good, very ba" in sent
    assert b"indeed" not in sent
    if name in WORDS:
        assert f'"finish_reason":"{WORDS[name]}"'.encode() in sent


def piece(index: int, *texts: str | int, last: bool | None = None) -> Delta:
    """Of a recording: texts, and points in time that are counted from 1,000."""
    tokens = tuple(
        Token(one, f"<|{(one - 1000) / 50:.2f}|>", -0.5) if isinstance(one, int) else Token(1, one, -0.5)
        for one in texts
    )
    finish = None if last is None else Finish("eos", generated_tokens=len(tokens), last=last)
    return Delta(index, "".join(token.text for token in tokens), tokens, finish=finish)


RECORDINGS: dict[str, tuple[dict[str, Any], bool, list[Delta]]] = {
    "in a piece": ({}, True, [piece(0, " very "), piece(0, "bad"), piece(1, " good", last=False)]),
    "in a piece that comes first": ({}, True, [piece(1, " bad"), piece(0, " good", last=False)]),
    "across two pieces": ({}, False, [piece(1, "d", last=False), piece(0, "good ba", last=True)]),
    "with a point in time in its midst": (
        {"response_format": "verbose_json"},
        True,
        [piece(0, " good", 1050, 1050, " ba", 1060, "d", last=False), piece(1, " good", 1050, last=True)],
    ),
}


@each_row("case", RECORDINGS)
@each_row("stream", [False, True])
def test_of_a_recording_all_that_is_sent_is_judged(case: str, stream: bool) -> None:
    """What comes after a piece that was flagged goes on, and the answer ends with the last of them."""
    fields, spaced, deltas = RECORDINGS[case]
    if stream and fields:
        return
    body = {"file": "UklGRg==", "stream": stream, **fields}
    call, _ = FILTER.around(named("transcription").parse(body, REQUEST, SETTINGS))
    recording = Recording(4.0, (0.0, 2.0), spaced=spaced, first_time=1000 if fields else None)
    sent = feed(call, Started(1, recording=recording), *deltas)
    assert call.reply.finished
    assert b"good" in sent
    # An id may have any letters up to f.
    for found in (b"very bad", b"good bad", b'"delta":"bad', b'"delta":"d"', b" ba d", b'"d"'):
        assert found not in sent
    assert (b'"finish_reason":"content_filter"' in sent) == stream


def test_words_to_listen_for_are_judged() -> None:
    made = named("transcription").parse({"file": "UklGRg==", "hotwords": "good, bad"}, REQUEST, SETTINGS)
    with pytest.raises(ContentFilterError) as caught:
        FILTER.around(made)
    assert caught.value.param == "hotwords"


class Seen:
    """A Reply that keeps what it is fed."""

    status = 200
    content_type = "text/plain"
    headers: Mapping[str, str] = {}
    failure: LmiError | None = None
    finished = False

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        assert isinstance(event, Delta)
        self.deltas.append(event)
        return []


@each_row("counts", [(1,) * 7, (7,), (3, 4), (5, 2), (6, 1), (4, 2, 1)], ids=repr)
def test_what_stays_does_not_depend_on_how_tokens_come_together(counts: tuple[int, ...]) -> None:
    texts = ["so ", "far ", "", "good, ", "very ba", "d", " indeed"]
    tokens = tuple(Token(n, text, -0.5) for n, text in enumerate(texts))
    seen = Seen()
    reply = FilteredEncoder(seen, FILTER, [Generation(request_id="r", prompt="Hi", tokens=True)])
    start = 0
    for count in counts:
        part = tokens[start : start + count]
        reply.feed(Delta(0, "".join(token.text for token in part), part))
        start += count
    assert "".join(delta.text for delta in seen.deltas) == "so far good, very ba"
    assert [token for delta in seen.deltas for token in delta.tokens] == list(tokens[:5])
    assert [delta.finish for delta in seen.deltas if delta.finish] == [Finish("content_filter", generated_tokens=5)]
    assert reply.to_abort == [0]


def test_of_an_answer_that_is_split_all_that_came_together_is_dropped() -> None:
    """Its tokens do not say which of them are text."""
    call, _ = filtered("openai", BODIES["openai"])
    tokens = (Token(1, "so "), Token(2, "bad"))
    answer = json.loads(feed(call, Started(1), Delta(0, "bad", tokens, reasoning="so ")))
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["usage"]["completion_tokens"] == 0


def test_a_filter_that_fails_while_tokens_are_judged_one_by_one_fails_the_request() -> None:
    def fails(text: str, stage: str) -> str | None:
        if text == "so ":
            raise ValueError("broken")
        return "bad word" if "bad" in text else None

    call, _ = ContentFilter(fails, "guard:fails", Workers(1)).around(
        BY_NAME["lmi"].parse(BODIES["lmi"], Request(b""), SETTINGS)
    )
    feed(call, Started(1), Delta(0, "so bad", (Token(1, "so "), Token(2, "bad"))))
    assert call.reply.failure is not None
    assert "guard:fails raised ValueError: broken" in call.reply.failure.message


@each_row("name", BY_NAME)
def test_a_flagged_prompt_is_refused_with_the_prompts_field(name: str) -> None:
    body = json.loads(json.dumps(BODIES[name]).replace('"Hi"', '"bad"'))
    (field,) = [one for one in ("messages", "inputs", "input") if one in body]
    said = f"{field}: flagged by the content filter: bad word"
    if field == "inputs":
        with pytest.raises(ContentFilterError, match=said) as caught:
            filtered(name, body)
        error: LmiError | None = caught.value
        answer = BY_NAME[name].refuse(caught.value, body, REQUEST, SETTINGS)
        status, sent = answer.status, answer.body
    else:
        call, encoder = FILTER.around(parsed(name, body))
        (generation,) = call.generations
        assert generation.held
        flagged = encoder.judge_prompt("<user>bad</user>", 0)
        assert flagged is not None
        failed = call.fields.failed(Failed.of(flagged))
        error, sent = failed.error, feed(call, failed)
        status = call.reply.status
        assert not encoder.to_release
    assert isinstance(error, ContentFilterError)
    assert (error.status, error.code, error.param) == (400, "content_filter", field)
    assert status >= 400
    assert said.encode() in sent


def test_reasoning_and_calls_are_judged_too() -> None:
    settings_body = {**BODIES["openai"], "stream": True}
    call, _ = filtered("openai", settings_body)
    assert b"content_filter" in feed(call, Started(1), Delta(0, "", reasoning="ba"), Delta(0, "d"))
    call, _ = filtered("openai", settings_body)
    arguments = (CallDelta(0, "id", "f", '{"a": "bad"}'),)
    assert b'"a"' not in feed(call, Started(1), Delta(0, "", calls=arguments))
    assert call.reply.finished


def test_sequences_are_judged_one_by_one() -> None:
    call, cut = filtered("openai", {**BODIES["openai"], "n": 2})
    assert feed(call, Started(1), delta("good"), Delta(1, "bad"), Delta(1, "more", finish=Finish("eos"))) == b""
    assert not cut
    body = json.loads(feed(call, Delta(0, "!", finish=Finish("eos", generated_tokens=2))))
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", "content_filter"]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["good!", ""]


@each_row("name", ["lmi", "openai"])
def test_the_last_sequence_ends_the_answer_while_the_engine_goes_on_with_what_was_cut(name: str) -> None:
    many = {"parameters": {"details": True, "n": 2, "do_sample": True}} if name == "lmi" else {"n": 2}
    call, cut = filtered(name, {**BODIES[name], **many})
    # For the engine the first sequence still runs, so that this end is not the last.
    ended = delta("fine", finish=Finish("eos", generated_tokens=1, last=False))
    body = feed(call, Started(1), Delta(1, "bad"), ended)
    assert call.reply.finished
    assert cut == [0]
    assert b"fine" in body
    assert b"content_filter" in body


def test_prompts_are_judged_one_by_one() -> None:
    call, cut = filtered("openai", {"prompt": ["a", "b"]})
    reply = call.reply
    reply.feed(Started(1), 0)
    reply.feed(Started(1), 1)
    reply.feed(Delta(0, "bad"), 1)
    assert cut == [1]
    (record,) = reply.feed(Delta(0, "fine", finish=Finish("length")), 0)
    assert [choice["finish_reason"] for choice in json.loads(record)["choices"]] == ["length", "content_filter"]


@each_row(
    ("body", "field"),
    [
        (BODIES["openai"], "messages"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"input": [1, 2]}, "input"),
    ],
    ids=["messages", "ids", "ids to embed"],
)
def test_what_is_no_text_is_judged_as_the_engine_renders_it(body: dict[str, Any], field: str) -> None:
    """And starts once it is accepted."""
    request = Request(b"", path="/v1/embeddings" if "input" in body else "")
    settings = typed_settings(task="embed") if "input" in body else SETTINGS
    given = BY_NAME["openai"].parse(body, request, settings)
    call, encoder = FILTER.around(given)
    assert [generation.held for generation in call.generations] == [True]
    assert encoder.judge_prompt("good", 0) is None
    assert encoder.to_release == [0]
    _, encoder = FILTER.around(given)
    flagged = encoder.judge_prompt("it is bad", 0)
    assert flagged is not None
    error = call.fields.failed(Failed.of(flagged))
    assert error.message == f"{field}: flagged by the content filter: bad word"
    assert not encoder.to_release


def test_of_several_prompts_none_starts_before_all_are_accepted() -> None:
    _, encoder = FILTER.around(parsed("openai", {"prompt": [[1], [2], [3]]}))
    for prompt in (2, 0):
        assert encoder.judge_prompt("good", prompt) is None
        assert not encoder.to_release
    assert encoder.judge_prompt("good", 1) is None
    assert encoder.to_release == [0, 1, 2]


def test_a_document_that_is_scored_is_judged_too() -> None:
    ranks = typed_settings(task="rank")
    judged: list[str] = []

    def notes(text: str, stage: str) -> str | None:
        judged.append(text)
        return judge(text, stage)

    notebook = ContentFilter(notes, "guard:notes", Workers(1))
    call, _ = notebook.around(parse("rerank", {"query": "a", "documents": ["b", "c"]}, ranks))
    assert judged == ["a", "b", "c"]
    for prompt in (0, 1):
        delta = Delta(0, "", finish=Finish("eos"), vector=b"\0\0\0\0")
        records = [record for event in (Started(3), delta) for record in call.reply.feed(event, prompt)]
    assert [one["index"] for one in json.loads(records[0])["results"]] == [0, 1]
    with pytest.raises(ContentFilterError) as caught:
        FILTER.around(parse("rerank", {"query": "a", "documents": ["b", "bad"]}, ranks))
    assert caught.value.param == "documents[1]"


def test_text_is_not_held_back() -> None:
    call, _ = FILTER.around(parsed("openai", {"prompt": ["a", "b"]}))
    assert [generation.held for generation in call.generations] == [False, False]


def test_a_filter_that_fails_for_a_rendered_prompt_fails_the_request() -> None:
    def fails(text: str, stage: str) -> str | None:
        raise ValueError("broken")

    _, encoder = ContentFilter(fails, "guard:fails", Workers(1)).around(parsed("openai", BODIES["openai"]))
    error = encoder.judge_prompt("Hi", 0)
    assert isinstance(error, UserCodeError)
    assert "guard:fails raised ValueError: broken" in error.message
    assert not encoder.to_release


@each_row(
    ("verdict", "reason"),
    [
        (None, None),
        (False, None),
        ("", None),
        (True, "no reason given"),
        ("why", "why"),
        ({"reason": "why", "score": 1}, "why"),
    ],
    ids=repr,
)
def test_verdicts(verdict: Any, reason: str | None) -> None:
    assert ContentFilter(lambda text: verdict, "g:j", Workers(1)).judge("text", "text") == reason
