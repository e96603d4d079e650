"""Dynamic batch's dialect: `{"inputs": string or list, "parameters"}`, answered by a list.

It is the dialect of `inputs` where rolling batch is off and DJL's asynchronous mode too. `parameters` are the LMI
dialect's. Whether an answer is streamed is up to `stream` in the body, and where that says nothing to
`option.enable_streaming` and `option.output_formatter`.

Every error is `{"code": 424, "message", "error"}` with status 424, but for those of status.py's OWN_STATUS
(docs/decisions.md: Dynamic batch).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ...model.errors import LmiError
from ...model.events import Delta
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import JSON, JSON_LINES, SSE, ParsedRequest, Payload, Request, Response, encode
from ..client_fields import ClientFields, prompt_names
from ..common.encoder import Encoder
from ..dialect import Dialect, OpenApi, Route, own_response
from . import embeddings as lmi_embeddings
from . import framing_of, refuse_several
from .body import Body, Inputs, described
from .parameters import PATHS, ROWS, SHOWN_KEYS, Parameters, parameters_of
from .reply import Framing
from .schemas import schema_of
from .status import REFUSED, status_of

__all__ = ["DIALECT", "WITHOUT", "matches", "parse", "refuse"]

ROUTES: tuple[Route, ...] = ()


WITHOUT = ("details", "decoder_input_details", *SHOWN_KEYS)
"""Of the keys of LMI's parameters those that mean nothing here: the answers have no place for details."""


class Text(msgspec.Struct, frozen=True):
    """What became of one input."""

    generated_text: str


class Line(msgspec.Struct, frozen=True):
    """A line of a stream: what is new, with an entry for each input."""

    outputs: list[str]


class ErrorBody(msgspec.Struct, frozen=True):
    """LMI's schema, Dynamic Batch, Error Responses."""

    code: int
    error: str
    message: str = "invoke handler failure"


BODIES = {name: Body(rows, Inputs()) for name, rows in ROWS.items()}
"""By schema."""
OPENAPI = (
    OpenApi(
        "Generated texts as dynamic batches give them, whole or as a stream",
        described(BODIES),
        {JSON: (list[Text],), JSON_LINES: (Line, ErrorBody), SSE: (Line, ErrorBody)},
        {JSON: (ErrorBody,)},
        serves=lambda settings: settings.dynamic_batch and not settings.pools,
    ),
)


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether the endpoint makes dynamic batches of `inputs`."""
    return settings.dynamic_batch


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each input."""
    if settings.embeds:
        return lmi_embeddings.parse(payload, request, settings, error_response)
    schema = schema_of(settings)
    values = BODIES[schema.name].read_values(payload, settings)
    (inputs, listed), stream = values["inputs"], values["stream"]
    framing = framing_of(settings.enable_streaming or None if stream is None else stream, settings)
    parameters = parameters_of(schema, *values["parameters"])
    if framing is not None:
        refuse_several(parameters)
    full = tuple(inputs) if parameters.return_full_text else ("",) * len(inputs)
    reply = WholeTexts(full) if framing is None else StreamedTexts(full, framing=framing)
    generations = (_generation(text, parameters, request, framing is not None) for text in inputs)
    each = prompt_names("inputs", len(inputs), listed=listed)
    return ParsedRequest(tuple(generations), reply, fields=ClientFields(PATHS, parameters.own, each))


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The documented error, whether the answer was to be streamed or not."""
    return error_response(error)


def error_response(error: LmiError) -> Response:
    """An error before any record."""
    status = status_of(error)
    return Response(encode(ErrorBody(status, error.message)), status, failure=error)


def _generation(text: str, parameters: Parameters, request: Request, streams: bool) -> Generation:
    return Generation(
        request_id=request.request_id,
        prompt=text,
        # An answer has a place for the likeliest sequence only.
        sampling=Sampling(**{**parameters.sampling, "n": 1}),
        stream=streams,
        # A line of a stream is a token.
        tokens=streams,
        overflow="clip",
        **parameters.generation,
    )


@dataclass(slots=True)
class _Encoder(Encoder):
    """What complete and streamed responses share. An input that fails ends the whole request."""

    beginnings: tuple[str, ...]
    """What each text begins with: the input itself with return_full_text."""

    def __post_init__(self) -> None:
        self.prompts = len(self.beginnings)

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error)


@dataclass(slots=True)
class WholeTexts(_Encoder):
    """One list, once every input has ended."""

    texts: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        _Encoder.__post_init__(self)
        self.texts = [[beginning] for beginning in self.beginnings]

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        self.texts[prompt].append(delta.text)
        return []

    def _close(self) -> list[bytes]:
        return [encode([Text("".join(parts)) for parts in self.texts])]


@dataclass(slots=True, kw_only=True)
class StreamedTexts(_Encoder):
    """A line for every token, in the order in which they come; the inputs that it is not of have "" in it."""

    framing: Framing

    def __post_init__(self) -> None:
        _Encoder.__post_init__(self)
        self.content_type = self.framing.content_type

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        lines: list[list[str]] = []
        if not self.begun:
            self.begun = True
            if any(self.beginnings):
                lines.append(list(self.beginnings))
        lines += [
            [token.text if index == prompt else "" for index in range(len(self.beginnings))] for token in delta.tokens
        ]
        return [self.framing.record(Line(outputs)) for outputs in lines]

    def _close(self) -> list[bytes]:
        return []

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [self.framing.record(ErrorBody(REFUSED, error.message))]


DIALECT = Dialect(
    name="dynamic",
    body_field="inputs",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=False,
    matches=matches,
    marks=frozenset(("inputs",)),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
