"""Audio written down: OpenAI's transcriptions and translations.

    parameters.py     the fields, of forms and of JSON
    reply.py          the answers: bodies.py; pieces.py: the pieces of long audio joined; segments.py: what is said when
    openapi.py        what is taken and given, for /openapi.json

A body is a form with a part `file`, the file itself (by its content type), or JSON with the file in base64
(file_body.py).
"""

from __future__ import annotations

from functools import partial

from ...model.errors import LmiError, ParameterError
from ...model.generation import Generation, Sampling, Transcription
from ...model.options import Settings
from ..base import SSE, ParsedRequest, Payload, Request, Response
from ..client_fields import ClientFields
from ..common.json_body import holds_file
from ..dialect import Dialect, Route, own_response
from ..openai.reply import Identity, error_response
from .file_body import FILE, read_file_body
from .openapi import TRANSCRIPTION, TRANSLATION
from .parameters import PATHS, ROWS, TIMED, typed
from .reply import Reply, TextReply, TimedReply, TranscriptStream

__all__ = ["DIALECT", "TRANSCRIPTIONS_PATH", "TRANSLATIONS_PATH", "parse"]

TRANSCRIPTIONS_PATH = "/v1/audio/transcriptions"
TRANSLATIONS_PATH = "/v1/audio/translations"
OTHERS = ("messages", "inputs", "input", "query")
"""Fields of other dialects' bodies, which may have a `file` of their own."""


def parse(payload: Payload, request: Request, settings: Settings, *, translates: bool = False) -> ParsedRequest:
    """One generation; raises RequestError."""
    values, names = ROWS.read("", typed(payload) if holds_file(request.headers) else payload, settings)
    form, streams = values["format"], values["stream"]
    timed = form in TIMED
    if streams and timed:
        raise ParameterError.of("response_format", form, "json or text with stream: true")
    if values["granularities"] and form != "verbose_json":
        raise ParameterError.of("response_format", form, f"verbose_json with {names['granularities']}")
    file = values["file"]
    given = {key: values[key] for key in SAMPLED if values[key] is not None}
    generation = Generation(
        request_id=request.request_id,
        prompt=values["prompt"],
        transcription=Transcription(
            audio=file if isinstance(file, bytes) else b"",
            url=file if isinstance(file, str) else "",
            translate=translates,
            language=values["language"] or None,
            to_language=values["to_language"] or None,
            hotwords=values["hotwords"] or None,
            timestamps=timed,
        ),
        sampling=Sampling(**given, logprobs=0 if timed else None),
        stream=streams,
        tokens=timed,
        priority=values["priority"] or 0,
    )
    reply: Reply
    if streams:
        prefix = "translate-" if translates else "transcribe-"
        identity = Identity.new(prefix, settings.model_name)
        reply = TranscriptStream(content_type=SSE, translates=translates, identity=identity)
    elif timed:
        reply = TimedReply(translates=translates, format=form, temperature=values["temperature"])
    else:
        reply = TextReply(translates=translates, alone=form == "text")
    return ParsedRequest((generation,), reply, fields=ClientFields(PATHS))


SAMPLED = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
    "max_tokens", "extra_args",
)  # fmt: skip


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether the body is nothing else's."""
    return not any(name in payload for name in OTHERS)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return error_response(error)


DIALECT = Dialect(
    name="transcription",
    body_field=FILE,
    routes=(
        Route(TRANSCRIPTIONS_PATH, described=TRANSCRIPTION),
        Route(TRANSLATIONS_PATH, parse=partial(parse, translates=True), described=TRANSLATION),
    ),
    openapi=(TRANSCRIPTION,),
    names_model=True,
    matches=matches,
    parse=parse,
    refuse=refuse,
    marks=frozenset((FILE,)),
    for_formatters=own_response,
    read_file=read_file_body,
)
