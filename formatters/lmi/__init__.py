"""The LMI dialect: `{"inputs", "parameters", "stream"}`, the rolling-batch schema of LMI containers.

    body.py         the body: one text or several, `parameters`, `stream`
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

from ...model.errors import Fault, LmiError, UnsupportedError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response
from ..client_fields import ClientFields
from ..dialect import Dialect, Route
from . import embeddings as lmi_embeddings
from .body import BODIES, Body
from .formatter_input import for_formatters
from .openapi import LMI, VECTORS
from .parameters import PATHS, Parameters, parameters_of
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
from .schemas import schema_of

__all__ = [
    "DIALECT", "LmiRequest", "for_formatters", "framing_of", "generation_of", "parse", "read_request",
    "refuse", "refuse_several",
]  # fmt: skip

ROUTES: tuple[Route, ...] = ()
OPENAPI = (LMI, VECTORS)


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
    stream = False if payload is None else payload.get("stream")
    return refusal(error, framing_of(stream, settings) if stream is None or isinstance(stream, bool) else None)


@dataclass(frozen=True, slots=True)
class LmiRequest:
    """A body, read."""

    inputs: str
    parameters: Parameters
    framing: Framing | None
    """How the answer is streamed; None: whole."""


def read_request(
    payload: Payload, settings: Settings, bodies: Mapping[str, Body] = BODIES, usual: Framing = LINES
) -> LmiRequest:
    """What a body asks for; raises RequestError. `bodies` are as BODIES, `usual` as `framing_of` has it."""
    schema = schema_of(settings)
    values = bodies[schema.name].read_values(payload, settings)
    framing = framing_of(values["stream"], settings, usual)
    parameters = parameters_of(schema, *values["parameters"])
    if framing is not None:
        refuse_several(parameters)
    return LmiRequest(values["inputs"], parameters, framing)


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
        raise UnsupportedError.because(Fault(name, "above 1 is not supported with streaming"))


DIALECT = Dialect(
    name="lmi",
    body_field="inputs",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=False,
    matches=None,
    marks=frozenset(("inputs",)),
    parse=parse,
    refuse=refuse,
    for_formatters=for_formatters,
    read_file=None,
)
