"""The LMI dialect: `{"inputs", "parameters", "stream"}`, the rolling-batch schema of LMI containers.

    inputs.py       one text or several, for the bodies that take a list
    parameters.py   what `parameters` may hold and what it means; schemas.py: what differs by back end
    reply.py        the answers; bodies.py their bodies, status.py the status of errors
    formatter_input.py   what output formatters of users are given in their place
    dynamic.py      the dialect of dynamic batches: lists of texts, with the same parameters
    embeddings.py   the same where the model embeds
    openapi.py      what is taken and given, for /openapi.json

Every error has status 424, but for those of OWN_STATUS. These, and a payload that cannot be read, are `{"error",
"code"}`; anything else that is wrong with a request is the documented generation-error body, with the message in
`error` (docs/decisions.md: LMI errors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...model.errors import LmiError, PayloadError, UnsupportedError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import Dialect, ParsedRequest, Payload, Request, Response, Route
from ..client_fields import ClientFields
from ..common.fields import Parameter, handle_unknown_field
from . import embeddings as lmi_embeddings
from .formatter_input import for_formatters
from .openapi import LMI, VECTORS
from .parameters import PATHS, ROWS, Parameters, read_parameters
from .reply import (
    EVENTS,
    LINES,
    Framing,
    ResponseOptions,
    StreamEncoder,
    TopTokensEncoder,
    WholeEncoder,
    refusal,
    unreadable,
)

__all__ = [
    "DIALECT",
    "FIELDS",
    "LmiRequest",
    "for_formatters",
    "framing_of",
    "generation_of",
    "inputs_of",
    "matches",
    "parameters_of",
    "parse",
    "read_request",
    "refuse",
    "refuse_several",
    "stream_of",
]

ROUTES: tuple[Route, ...] = ()
OPENAPI = (LMI, VECTORS)

FIELDS = ("inputs", "parameters", "stream")


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether there are `inputs`."""
    return "inputs" in payload


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation, answered whole or as a stream."""
    if settings.embeds:
        return lmi_embeddings.parse(payload, request, settings, unreadable)
    asked = read_request(payload, settings)
    parameters, framing = asked.parameters, asked.framing
    shape = ResponseOptions(asked.inputs, parameters.details, parameters.prefill, parameters.return_full_text)
    streamed, top = TopTokensEncoder if parameters.top else StreamEncoder, parameters.top > 0
    return ParsedRequest(
        generations=(generation_of(asked, request),),
        reply=WholeEncoder(shape, top=top) if framing is None else streamed(shape, framing=framing),
        fields=ClientFields(PATHS, parameters.own),
    )


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error in the form that the request asked for, as far as that is known."""
    if settings.embeds:
        # The documented body is one of generated text.
        return unreadable(error)
    try:
        framing = None if payload is None else framing_of(stream_of(payload), settings)
    except PayloadError:
        framing = None
    return refusal(error, framing)


@dataclass(frozen=True, slots=True)
class LmiRequest:
    """A body, read."""

    inputs: str
    parameters: Parameters
    framing: Framing | None
    """How the answer is streamed; None: whole."""


def read_request(
    payload: Payload, settings: Settings, rows: Mapping[str, Mapping[str, Parameter]] = ROWS, usual: Framing = LINES
) -> LmiRequest:
    """What a body asks for; raises RequestError. `rows` are as `read_parameters` has them, `usual` as `framing_of`."""
    inputs = inputs_of(payload)
    framing = framing_of(stream_of(payload), settings, usual)
    parameters = read_parameters(parameters_of(payload, settings), settings, rows)
    if framing is not None:
        refuse_several(parameters)
    return LmiRequest(inputs, parameters, framing)


def generation_of(asked: LmiRequest, request: Request, *, token_bytes: bool = False) -> Generation:
    """What the engine is asked: tokens and log-probabilities only where the answer shows them, for they cost speed.

    `token_bytes`: whether tokens that are shown have their bytes.
    """
    parameters, streams = asked.parameters, asked.framing is not None
    shows_tokens = streams or parameters.details
    sampling = Sampling(
        **parameters.sampling,
        logprobs=parameters.top if shows_tokens else None,
        prompt_logprobs=parameters.prefill,
    )
    return Generation(
        request_id=request.request_id,
        prompt=asked.inputs,
        sampling=sampling,
        stream=streams,
        tokens=shows_tokens,
        token_bytes=token_bytes and shows_tokens,
        overflow="clip",
        **parameters.generation,
    )


def inputs_of(payload: Payload) -> str:
    """The prompt."""
    expected = "a non-empty string"
    if "inputs" not in payload:
        raise PayloadError(f"inputs: expected {expected}, but there is no such field", "inputs")
    inputs = payload["inputs"]
    if isinstance(inputs, list) and all(isinstance(text, str) for text in inputs):
        raise PayloadError(f"inputs: a list of prompts is not supported, expected {expected}", "inputs")
    if not isinstance(inputs, str) or not inputs:
        raise PayloadError.of("inputs", inputs, expected)
    return inputs


def parameters_of(payload: Payload, settings: Settings) -> dict[str, Any]:
    """The object `parameters`, unread; unknown fields of the body are ignored or refused."""
    for name, value in payload.items():
        if name not in FIELDS and value is not None:
            handle_unknown_field(name, FIELDS, settings)
    given = payload.get("parameters")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise PayloadError.of("parameters", given, "an object")
    return cast(dict[str, Any], given)


def stream_of(payload: Payload) -> bool | None:
    """What the body says; None where it says nothing."""
    stream = payload.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise PayloadError.of("stream", stream, "true or false")
    return stream


def framing_of(stream: bool | None, settings: Settings, usual: Framing = LINES) -> Framing | None:
    """How the answer is streamed; None: whole. `usual` is for endpoints whose output_formatter does not say.

    The body's `stream` decides, and where it says nothing whether the endpoint's output_formatter is one that streams.
    An endpoint with output_formatter=json answers whole whatever the body says, as LMI's own handlers do.
    """
    formatter = settings.output_formatter
    streams = formatter in ("jsonlines", "sse") if stream is None else stream
    if not streams or formatter == "json":
        return None
    return {"sse": EVENTS, "jsonlines": LINES}.get(formatter or "", usual)


def refuse_several(parameters: Parameters) -> None:
    """What a stream has no place for: several sequences, or one that is chosen when all of them have ended."""
    if name := parameters.several:
        raise UnsupportedError(f"{name}: above 1 is not supported with streaming", name)


DIALECT = Dialect(
    name="lmi",
    body_field="inputs",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=False,
    matches=matches,
    parse=parse,
    refuse=refuse,
    for_formatters=for_formatters,
)
