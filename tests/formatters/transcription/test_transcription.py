"""Requests for transcriptions and translations: what is asked, and the answers to events made by hand."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...kit.api.dialects import receive
from ...kit.api.errors import UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    Delta,
    Failed,
    Finish,
    FinishReason,
    Generation,
    ParsedRequest,
    Recording,
    Request,
    Response,
    Sampling,
    Started,
    Token,
    Transcription,
)
from ...kit.rows import each_row

TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
SETTINGS = typed_settings(model_name="m")
FILE = b"RIFF\0\xff\r\n--x"


def form(path: str = TRANSCRIPTIONS, fields: dict[str, Any] | None = None, **more: str) -> Request:
    """As OpenAI's client sends it, by the library that it has."""
    files = {"file": ("a.wav", io.BytesIO(FILE), "audio/wav")}
    sent = httpx.Request("POST", "http://h", data={**(fields or {}), **more}, files=files)
    return Request(sent.read(), headers={"content-type": sent.headers["content-type"]}, path=path)


def in_json(path: str = TRANSCRIPTIONS, **fields: Any) -> Request:
    return Request(json.dumps(fields).encode(), path=path)


def raw(kind: str, path: str = "/invocations", body: bytes = FILE, **query: str) -> Request:
    return Request(body, headers={"content-type": kind}, path=path, query=query)


def parsed(request: Request) -> ParsedRequest:
    made = receive(request, SETTINGS)
    assert isinstance(made, ParsedRequest), made
    assert made.dialect == "transcription"
    return made


def generation(request: Request) -> Generation:
    (one,) = parsed(request).generations
    return one


def transcription(request: Request) -> Transcription:
    found = generation(request).transcription
    assert found is not None
    return found


def refused(request: Request) -> tuple[int, str]:
    made = receive(request, SETTINGS)
    assert isinstance(made, Response), made
    return made.status, json.loads(made.body)["error"]["message"]


# --- What is asked ---

FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "OpenAI's": (
        {"model": "whisper-1", "language": "de", "prompt": "Zürich", "temperature": 0.5},
        {"language": "de", "prompt": "Zürich", "temperature": 0.5},
    ),
    "vLLM's": (
        {"hotwords": "lmi", "to_language": "fr", "seed": 7, "top_p": 0.5, "top_k": 3, "max_completion_tokens": 9},
        {"hotwords": "lmi", "to_language": "fr", "seed": 7, "top_p": 0.5, "top_k": 3, "max_tokens": 9},
    ),
    "as OpenAI's client leaves them out": ({"language": "", "chunking_strategy": "auto"}, {}),
    "streamed": ({"stream": True}, {"stream": True}),
    "with points in time": (
        {"response_format": "verbose_json", "timestamp_granularities[]": ["segment"]},
        {"timestamps": True, "tokens": True, "logprobs": 0},
    ),
    "subtitles": ({"response_format": "vtt"}, {"timestamps": True, "tokens": True, "logprobs": 0}),
    "for a logits processor": ({"vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
}


def said(one: Generation) -> dict[str, Any]:
    """What a generation says that is not said of itself."""
    found: dict[str, Any] = {}
    usual = Generation(request_id="", prompt="")
    parts = ((one, usual), (one.transcription, Transcription()), (one.sampling, Sampling()))
    for part, other in parts:
        names = other.__struct_fields__
        found |= {name: getattr(part, name) for name in names if getattr(part, name) != getattr(other, name)}
    for name in ("request_id", "transcription", "sampling", "audio", "url"):
        found.pop(name, None)
    return {name: value for name, value in found.items() if (name, value) != ("temperature", 0.0)}


@each_row("case", FIELDS)
def test_a_form_and_json_say_the_same(case: str) -> None:
    fields, expected = FIELDS[case]
    lower = {name: json.dumps(value) if isinstance(value, bool | dict) else value for name, value in fields.items()}
    assert said(generation(form(fields=lower))) == expected
    assert said(generation(in_json(file="UklGRg==", **fields))) == expected


def test_words_of_a_form_are_read_as_other_languages_write_them() -> None:
    """Python's clients write True."""
    assert generation(form(stream="True")).stream
    assert not generation(form(stream="False")).stream
    assert generation(form(prompt="5", language="no")).prompt == "5"


def test_the_file() -> None:
    assert transcription(form()).audio == FILE
    assert transcription(raw("audio/wav")).audio == FILE
    assert transcription(raw("video/mp4", TRANSLATIONS)).translate
    encoded = base64.b64encode(FILE).decode()
    assert transcription(in_json(file=encoded)).url.endswith(f";base64,{encoded}")
    given = f"data:audio/wav;base64,{encoded}"
    assert transcription(in_json(file=given)).url == given


def test_it_is_found_by_the_body() -> None:
    assert transcription(in_json("/invocations", file="UklGRg==")).translate is False
    assert transcription(form("/invocations", language="en")).language == "en"
    whole = form("/invocations")
    assert transcription(
        Request(whole.body, whole.headers, attributes={"route": TRANSLATIONS}, path="/invocations")
    ).translate


def test_a_file_alone_takes_its_fields_from_the_query() -> None:
    one = generation(raw("audio/mpeg", language="fr", stream="true", response_format="text"))
    assert one.stream
    assert one.transcription is not None
    assert one.transcription.language == "fr"


def test_a_host_may_have_taken_the_form_apart() -> None:
    parts = (("model", b"m"), ("file", FILE), ("stream", b"true"), ("timestamp_granularities[]", b"segment"),
             ("response_format", b"json"))  # fmt: skip
    request = Request(b"", headers={"content-type": "multipart/form-data; boundary=x"}, form=parts)
    assert refused(request) == (
        400,
        "response_format: expected verbose_json with timestamp_granularities[], got 'json'",
    )
    assert transcription(Request(b"", headers=request.headers, form=parts[:3])).audio == FILE


# --- What is refused ---

NO_FILE = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'
FORM = "multipart/form-data; boundary=x"
AUDIO = "an audio file; in JSON as base64, or as a data URL"
CHAT = "/v1/chat/completions"
REFUSED: dict[str, tuple[Request, int, str]] = {
    "no file": (in_json(language="en"), 400, f"file: expected {AUDIO}, but there is no such field"),
    "a form without a file": (
        raw(FORM, TRANSCRIPTIONS, NO_FILE),
        415,
        "Content-Type: expected application/json, or a form with a part file, got 'multipart/form-data'",
    ),
    "no boundary": (
        raw("multipart/form-data", TRANSCRIPTIONS),
        400,
        "Content-Type: expected a boundary of multipart/form-data",
    ),
    "no form": (raw(FORM, TRANSCRIPTIONS), 400, "the body is no form: "),
    "nothing": (raw("audio/wav", body=b""), 400, "the body is empty, expected a file of type audio/wav"),
    "a stream of subtitles": (
        form(stream="true", response_format="srt"),
        400,
        "response_format: expected json or text with stream: true, got 'srt'",
    ),
    "words": (
        form(fields={"timestamp_granularities[]": ["word"]}),
        400,
        "timestamp_granularities[][0]: expected 'segment', the only one that is supported, got 'word'",
    ),
    "a format that there is not": (
        form(response_format="xml"),
        400,
        "response_format: expected one of json, text, srt, verbose_json, vtt, got 'xml'",
    ),
    "a text for a number": (form(temperature="hot"), 400, "temperature: expected a number from 0 to 2, got 'hot'"),
    "several answers": (form(n="2"), 400, "n: expected 1, the only value that is supported, got 2"),
    "no base64": (in_json(file=5), 400, f"file: expected {AUDIO}, got 5"),
    "a file for a chat": (raw("audio/wav", CHAT), 415, "Content-Type: expected application/json, got 'audio/wav'"),
    "a form for a chat": (form(CHAT), 415, "Content-Type: expected application/json, got 'multipart/form-data'"),
    "a field that is no text": (
        Request(
            b"",
            {"content-type": FORM},
            path=TRANSCRIPTIONS,
            form=(("file", FILE), ("prompt", b"\xff")),
        ),
        400,
        "prompt: expected text in UTF-8, got b'\\xff'",
    ),
    "too many parts": (
        form(fields={f"a{number}": "b" for number in range(70)}),
        400,
        "the body: expected a form of at most 64 parts",
    ),
}


@each_row("case", REFUSED)
def test_what_is_wrong_is_named(case: str) -> None:
    request, status, message = REFUSED[case]
    found, told = refused(request)
    assert told.startswith(message)
    assert found == status


WHOLE = form(model="m", stream="true", temperature="0.5")


@given(st.lists(st.tuples(st.integers(0, len(WHOLE.body)), st.integers(0, 9), st.binary(max_size=9)), max_size=5))
def test_any_form_is_read_or_refused(changes: list[tuple[int, int, bytes]]) -> None:
    """Bytes that are changed, left out and added."""
    body = bytearray(WHOLE.body)
    for place, count, new in changes:
        body[place : place + count] = new
    made = receive(Request(bytes(body), WHOLE.headers, path=TRANSCRIPTIONS), SETTINGS)
    assert isinstance(made, ParsedRequest) or 400 <= made.status < 500


def test_what_the_engine_finds_wrong_has_the_clients_name() -> None:
    call = parsed(form())
    failed = call.fields.failed(Failed.of(UnsupportedError("transcription.timestamps: no", "transcription.timestamps")))
    assert failed.param == "response_format"
    for path, name in (("transcription.audio", "file"), ("transcription.language", "language"), ("prompt", "prompt")):
        assert call.fields.name(path) == name


# --- Answers ---

TWO = Recording(3.5, (0.0, 2.0), "en", audio_tokens=350, first_time=1000)


def events(*deltas: tuple[int, str, FinishReason | None], recording: Recording = TWO) -> list[Any]:
    last = [number for number, (_, _, reason) in enumerate(deltas) if reason][-1]
    return [
        Started(8, recording=recording),
        *(
            Delta(index, text, finish=Finish(reason, generated_tokens=3, last=number == last) if reason else None)
            for number, (index, text, reason) in enumerate(deltas)
        ),
    ]


MIXED = events((1, " So", None), (0, " Hello", None), (1, " long.", "eos"), (0, " you.", "eos"))


def answered(request: Request, fed: list[Any]) -> tuple[str, bytes]:
    reply = parsed(request).reply
    records = [record for event in fed for record in reply.feed(event)]
    assert reply.finished
    return reply.content_type, b"".join(records)


def test_pieces_are_joined_in_their_order() -> None:
    kind, body = answered(form(), MIXED)
    assert (kind, json.loads(body)) == (
        "application/json",
        {"text": "Hello you. So long.", "usage": {"type": "duration", "seconds": 4}},
    )
    assert answered(form(response_format="text"), MIXED) == ("text/plain; charset=utf-8", b"Hello you. So long.\n")


def test_no_blank_stands_where_the_language_has_none() -> None:
    recording = Recording(3.5, (0.0, 2.0), "zh", spaced=False)
    fed = events((0, "你好", "eos"), (1, "再见", "eos"), recording=recording)
    assert json.loads(answered(form(), fed)[1])["text"] == "你好再见"


def test_a_piece_without_a_word_leaves_no_blank() -> None:
    recording = Recording(5.0, (0.0, 2.0, 4.0))
    fed = events((0, " a", "eos"), (1, " ", "eos"), (2, " b", "length"), recording=recording)
    assert json.loads(answered(form(), fed)[1])["text"] == "a b"


def sent(body: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_is_openais_and_vllms() -> None:
    kind, body = answered(form(stream="true"), MIXED)
    assert kind == "text/event-stream"
    *deltas, done = sent(body)
    assert [one["type"] for one in deltas] == ["transcript.text.delta"] * len(deltas)
    assert "".join(one["delta"] for one in deltas) == done["text"] == "Hello you. So long."
    assert "".join(one["choices"][0]["delta"]["content"] for one in deltas) == done["text"]
    assert {one["object"] for one in (*deltas, done)} == {"transcription.chunk"}
    assert (done["type"], done["choices"][0]["finish_reason"]) == ("transcript.text.done", "stop")
    usage = {"input_tokens": 358, "output_tokens": 6, "total_tokens": 364, "prompt_tokens": 358, "completion_tokens": 6}
    assert done["usage"] == {**usage, "type": "tokens"}
    assert sent(answered(form(TRANSLATIONS, stream="true"), MIXED)[1])[0]["object"] == "translation.chunk"


def test_blanks_around_a_piece_are_none_of_its_text() -> None:
    """Whole and streamed; those between words are."""
    fed = events((0, "\n a ", None), (1, "c ", None), (0, " b", None), (0, " \n", "eos"), (1, "", "eos"))
    assert json.loads(answered(form(), fed)[1])["text"] == "a  b c"
    *deltas, done = sent(answered(form(stream="true"), fed)[1])
    assert "".join(one["delta"] for one in deltas) == done["text"] == "a  b c"


def test_openais_types_read_them() -> None:
    from openai.types.audio import TranscriptionTextDeltaEvent, TranscriptionTextDoneEvent, TranscriptionVerbose

    *deltas, done = sent(answered(form(stream="true"), MIXED)[1])
    for one in deltas:
        TranscriptionTextDeltaEvent.model_validate(one)
    TranscriptionTextDoneEvent.model_validate(done)
    verbose = json.loads(answered(form(response_format="verbose_json"), TIMED)[1])
    # Of what nobody knows there is null.
    assert {segment.pop("no_speech_prob") for segment in verbose["segments"]} == {None}
    read = TranscriptionVerbose.construct(**verbose)
    assert read.duration == 3.5


def test_one_that_fails_in_the_midst_says_so() -> None:
    reply = parsed(form(stream="true")).reply
    records = reply.feed(MIXED[0]) + reply.feed(Delta(0, "Hi"))
    records += reply.feed(Failed.of(UnsupportedError("no")))
    assert json.loads(records[-2].removeprefix(b"data: "))["error"]["message"] == "no"
    assert records[-1] == b"data: [DONE]\n\n"


def timed(index: int, *tokens: int | str, ended: bool = True) -> Delta:
    """Points in time are counted from 1,000."""
    made = [
        Token(one, f"<|{(one - 1000) / 50:.2f}|>", -0.5) if isinstance(one, int) else Token(len(one), one, -1.0)
        for one in tokens
    ]
    finish = Finish("eos", generated_tokens=len(tokens), last=index == 1) if ended else None
    return Delta(index, "".join(token.text for token in made), tuple(made), finish)


TIMED = [
    Started(8, recording=TWO),
    timed(0, " Hi", ".", 1050, ended=False),
    timed(0, 1060, " Bye.", 1075, 1075),
    timed(1, 1010, " So --> long."),
]
"""0.0 to 1.0, 1.2 to 1.5, 2.2 to the end."""


def test_what_is_said_when() -> None:
    body = json.loads(answered(form(response_format="verbose_json"), TIMED)[1])
    segments = body.pop("segments")
    assert body == {
        "task": "transcribe",
        "language": "en",
        "duration": 3.5,
        "text": "Hi. Bye. So --> long.",
        "usage": {"type": "duration", "seconds": 4},
    }
    assert [(one["id"], one["start"], one["end"], one["text"], one["seek"]) for one in segments] == [
        (0, 0.0, 1.0, " Hi.", 0),
        (1, 1.2, 1.5, " Bye.", 0),
        (2, 2.2, 3.5, " So --> long.", 200),
    ]
    assert segments[0]["tokens"] == [3, 1]
    assert segments[0]["avg_logprob"] == pytest.approx(-2.5 / 3)
    assert segments[0]["temperature"] == 0.0


def test_subtitles() -> None:
    assert answered(form(response_format="srt"), TIMED) == (
        "text/plain; charset=utf-8",
        (
            b"1\n00:00:00,000 --> 00:00:01,000\nHi.\n\n2\n00:00:01,200 --> 00:00:01,500\nBye.\n\n"
            b"3\n00:00:02,200 --> 00:00:03,500\nSo --> long.\n\n"
        ),
    )
    assert answered(form(response_format="vtt"), TIMED)[1] == (
        b"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nHi.\n\n00:00:01.200 --> 00:00:01.500\nBye.\n\n"
        b"00:00:02.200 --> 00:00:03.500\nSo -> long.\n\n"
    )


def test_nothing_said_is_no_empty_body() -> None:
    silent = [Started(8, recording=Recording(1.0, (0.0,), first_time=1000)), Delta(0, "", finish=Finish("eos"))]
    assert answered(form(response_format="srt"), silent)[1] == b"\n"
    assert answered(form(response_format="vtt"), silent)[1] == b"WEBVTT\n\n"
    assert json.loads(answered(form(), silent)[1])["text"] == ""
