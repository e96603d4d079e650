"""The dialect of Hugging Face's Text Generation Inference (TGI): a body of `inputs`, answered as TGI does.

    parameters.py   what `parameters` may hold and what it means, on LMI's table
    compat.py       LMI's parameters, for `option.tgi_compat`
    reply.py        the answers; bodies.py their bodies and the errors
    info.py         GET /info
    openapi.py      what is taken and given, for /openapi.json

A request is TGI's where it names the dialect or is on one of TGI's own routes, which the local server has in any case.
There /generate is whole and /generate_stream streams; elsewhere `stream` decides. With `option.tgi_compat` every other
body with `inputs` is LMI's request with TGI's answer (docs/decisions.md: LMI requests with TGI responses). An error is
`{"error", "error_type"}` with its status, for streamed requests too where nothing has been sent yet.

Unlike TGI, a body without `parameters` is greedy and `return_full_text` is false by default
(docs/decisions.md: TGI requests); the last line of a stream has its details unless `details` is false.
"""

from __future__ import annotations

import secrets

from ...model.errors import Fault, LmiError, UnsupportedError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response, encode
from ..client_fields import ClientFields
from ..dialect import Dialect, Route
from ..lmi import framing_of
from ..lmi.formatter_input import for_formatters
from ..lmi.reply import EVENTS, Framing
from . import compat
from .bodies import error_body
from .info import info_page
from .openapi import TGI, TGI_INFO, TGI_ROOT, TGI_STREAM, TGI_WHOLE
from .parameters import BEST_OF, BODY, OWN_BODY, PATHS, parameters_of
from .reply import ResponseOptions, StreamEncoder, WholeEncoder

__all__ = ["DIALECT", "for_formatters", "matches", "parse", "refuse"]


WHOLE_PATH = "/generate"
STREAM_PATH = "/generate_stream"
ROOT_PATH = "/"
OWN_PATHS = (WHOLE_PATH, STREAM_PATH, ROOT_PATH)

ROUTES: tuple[Route, ...] = (
    Route(WHOLE_PATH, described=TGI_WHOLE),
    Route(STREAM_PATH, described=TGI_STREAM),
    Route(ROOT_PATH, described=TGI_ROOT),
    Route("/info", ("GET",), page=info_page, described=TGI_INFO),
)
OPENAPI = (TGI,)

SEED_BITS = 53
"""Of a seed that is drawn: what every JSON reader holds."""


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether the endpoint is to answer `inputs` as TGI does (compat.py)."""
    return settings.tgi_compat and not settings.pools


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation, answered whole or as a stream."""
    if settings.tgi_compat and not _is_tgis_own(request, settings):
        return compat.parse(payload, request, settings)
    body = OWN_BODY if request.path in (WHOLE_PATH, STREAM_PATH) else BODY
    values = body.read_values(payload, settings)
    inputs = values["inputs"]
    framing = _framing(values.get("stream"), request, settings)
    parameters = parameters_of(*values["parameters"])
    sampling = parameters.sampling
    if framing is None:
        details = parameters.details or parameters.prefill is not None
    elif parameters.prefill is not None:
        shown = parameters.prefill_field
        raise UnsupportedError.because(Fault(shown, "cannot be combined with streaming"))
    elif sampling["n"] > 1:
        raise UnsupportedError.of(BEST_OF, sampling["n"], "1, the only value that is supported with streaming")
    else:
        details = parameters.details is not False
    if parameters.samples and details and sampling["seed"] is None:
        # The details tell the seed, as one that gives the same answer again.
        sampling["seed"] = secrets.randbits(SEED_BITS)
    shows_tokens = framing is not None or details
    # Only where the answer shows them or the best one is to be found, for they cost speed.
    logprobs = parameters.top_n_tokens if shows_tokens else 0 if sampling["n"] > 1 else None
    shape = ResponseOptions(
        inputs=inputs,
        details=details,
        return_full_text=parameters.return_full_text,
        seed=sampling["seed"] if parameters.samples else None,
        top=parameters.top_n_tokens > 0,
        prompt_top=bool(parameters.prefill),
        echo=request.path not in OWN_PATHS,
        array=request.path != WHOLE_PATH,
    )
    generation = Generation(
        request_id=request.request_id,
        prompt=inputs,
        sampling=Sampling(
            **sampling,
            logprobs=logprobs,
            prompt_logprobs=parameters.prefill,
        ),
        stream=framing is not None,
        tokens=shows_tokens,
        # Special tokens are shown as what they are.
        token_bytes=shows_tokens,
        # TGI refuses a prompt that with max_new_tokens exceeds the context.
        overflow="refuse",
        **parameters.generation,
    )
    return ParsedRequest(
        (generation,),
        WholeEncoder(shape) if framing is None else StreamEncoder(shape, framing=framing),
        fields=ClientFields(PATHS, parameters.own),
    )


def _is_tgis_own(request: Request, settings: Settings) -> bool:
    """Whether more than the body made the request TGI's: its name, or the path."""
    return bool(request.attributes.get("dialect") or settings.dialect) or request.path in OWN_PATHS


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    status, body = error_body(error)
    return Response(encode(body), status, failure=error)


def _framing(stream: bool | None, request: Request, settings: Settings) -> Framing | None:
    """How the answer is streamed; None: whole. TGI's own routes know no output_formatter."""
    if request.path == WHOLE_PATH:
        return None
    if request.path == STREAM_PATH:
        return EVENTS
    if request.path == ROOT_PATH:
        return EVENTS if stream else None
    return framing_of(stream, settings, EVENTS)


DIALECT = Dialect(
    name="tgi",
    body_field="inputs",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=False,
    matches=matches,
    marks=frozenset(("inputs",)),
    parse=parse,
    refuse=refuse,
    for_formatters=for_formatters,
    read_file=None,
)
