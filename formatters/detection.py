"""Which dialect a request is in, and from there to the generations that it asks for or to the answer that refuses it.

    Request --explicit_dialect, else detect--> Dialect --parse--> ParsedRequest | Response

A dialect is found by the request's `route` attribute (routing.py), its `dialect` attribute, `option.dialect`, the path,
and then by the body. Dialects of users are asked before ours. Raises nothing that a client can cause: `receive` and
`refusal` answer every error in the dialect's own form.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ..model.errors import (
    AdapterError,
    Fault,
    GenerationError,
    LmiError,
    ModelNotFoundError,
    PayloadError,
    RequestError,
    UnsupportedError,
    UserCodeError,
)
from ..model.options import Settings
from ..model.options.settings import DOES
from .adapters import NAMING, NO_ADAPTERS, AdapterNames, NotReadyError, select, take_names, with_adapters, with_name
from .azure.request import DEPLOYMENT, EXTRAS
from .base import ParsedRequest, Payload, Request, Response, encode
from .coding import decoded
from .common.body_size import LARGE
from .common.json_body import TOO_DEEP, check_content_type, control_of, holds_file, names_in, read_json
from .control import NO_CONTROL, Control, is_users
from .dialect import Dialect, OpenApi, Way
from .routing import ROUTE, routed, way_of
from .table import DIALECTS, OF_FILES, fallback
from .tracing import with_trace

__all__ = ["Hooks", "detect", "documents_by_body", "explicit_dialect", "read_body", "receive", "refusal"]

log = logging.getLogger(__name__)


def explicit_dialect(request: Request, settings: Settings, user_dialects: Sequence[Dialect] = ()) -> Dialect | None:
    """The dialect that the request's `dialect` attribute names, or `option.dialect`, or the path."""
    name = request.attributes.get("dialect") or settings.dialect
    if not name:
        return way_of(request, user_dialects).dialect
    known = (*user_dialects, *DIALECTS)
    for candidate in known:
        if name == candidate.name:
            return candidate
    separated = " (custom attributes are separated by semicolons)" if "," in name else ""
    raise PayloadError.of("dialect", name, "one of " + ", ".join(candidate.name for candidate in known) + separated)


def comma_error(request: Request) -> PayloadError | None:
    """The error of custom attributes with a comma before one that has a meaning here, which would be overlooked."""
    for name, value in request.attributes.items():
        pair = f"{name}={value}"
        if "," in pair and name.lower() not in LISTS and (found := COMMA_BEFORE.search(pair)):
            known = found[1].lower()
            return PayloadError(f"custom attributes: expected a semicolon before {known}, got a comma", known)
    return None


LISTS = frozenset(("baggage", "cookie", "tracestate"))
"""Headers, which are attributes too, that hold names and values of others."""
COMMA_BEFORE = re.compile(rf",\s*(dialect|{ROUTE}|{EXTRAS}|{DEPLOYMENT})\s*=", re.IGNORECASE)


def detect(payload: Payload, request: Request, settings: Settings, user_dialects: Sequence[Dialect] = ()) -> Dialect:
    """The dialect of a request: by the request's `dialect` attribute, then `option.dialect`, the path, the body.

    Raises PayloadError where none fits (docs/decisions.md: Which dialect a request is).
    """
    explicit = explicit_dialect(request, settings, user_dialects)
    if explicit is not None:
        return explicit
    if holds_file(request.headers):
        return OF_FILES
    known = (*user_dialects, *DIALECTS)
    for candidate in known:
        if candidate.marks is not None and candidate.marks.isdisjoint(payload):
            continue
        if candidate.matches is None or candidate.matches(payload, request, settings):
            return candidate
    usual = fallback(settings)
    # Those of `inputs` share their mark.
    marks = {usual.body_field: usual.name}
    for one in known:
        if one.body_field:
            marks.setdefault(one.body_field, one.name)
    listed = ", ".join(f"{mark} ({name})" for mark, name in marks.items())
    raise PayloadError(f"unknown dialect: expected a field {listed}", usual.body_field)


def documents_by_body(settings: Settings, user_dialects: Sequence[Dialect] = ()) -> list[OpenApi]:
    """What the dialects document that `detect` finds by the body, at an endpoint with these settings.

    Of our dialects with the same field of the body the first one that serves it is found (`inputs`: tgi, dynamic, lmi).
    """
    found = [one for known in user_dialects for one in known.openapi if one.serves(settings)]
    fields: set[str] = set()
    for known in DIALECTS:
        served = [one for one in known.openapi if one.serves(settings)]
        if served and known.body_field not in fields:
            found += served
            fields |= {known.body_field} - {""}
    return found


def _check_task(call: ParsedRequest, settings: Settings) -> None:
    """A model either generates text, embeds it or scores it, in whatever dialect it is asked; any tells tokens."""
    does = DOES.get(settings.task, "generates")
    for generation in call.generations:
        if generation.tokenize:
            continue
        embeds, scores = generation.embedding is not None, generation.scoring is not None
        wanted = "embeds" if embeds else "scores" if scores else "generates"
        if wanted != does:
            raise UnsupportedError(MISTAKEN[does, wanted], FIELD_OF[does])


MISTAKEN = {
    ("generates", "embeds"): "this model generates text and makes no embeddings (option.task=text-embedding is not "
    "set)",
    ("generates", "scores"): "this model generates text and neither ranks nor classifies any (option.task=text-ranking "
    "or text-classification is not set)",
    ("embeds", "generates"): "this model makes embeddings and generates no text: expected a field inputs or input",
    ("embeds", "scores"): "this model makes embeddings and classifies no text",
    ("scores", "generates"): "this model ranks or classifies texts and generates none: expected a field query with "
    "documents, input or inputs",
    ("scores", "embeds"): "this model ranks or classifies texts and makes no embeddings",
}
"""By what the model does and what it is asked for."""
FIELD_OF = {"generates": None, "embeds": "inputs", "scores": "query"}


def _check_query(request: Request, user_dialects: Sequence[Dialect] = ()) -> None:
    """A GET has its body in the query."""
    if request.method != "GET" or request.body:
        return
    route = way_of(request, user_dialects).route
    if route is not None and route.body:
        name = route.body
        raise PayloadError.because(
            Fault(name, expected="the request as JSON in this query parameter, but there is none")
        )


def read_body(request: Request) -> Payload:
    """The fields that a request carries, in a JSON object or in a form; raises RequestError."""
    if holds_file(request.headers) and (read := (way_of(request).dialect or OF_FILES).read_file) is not None:
        return read(request)
    check_content_type(request)
    return read_json(request.body)


def names_nothing(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether a request says nothing by which it could name an adapter or another model, as most do."""
    beside = NAMING.isdisjoint(request.attributes) and NAMING.isdisjoint(request.headers) and not request.query
    return beside and NAMING.isdisjoint(payload) and settings.unknown_models != "error"


class Hooks:
    """What a service may put around a dialect's `parse`. These change nothing."""

    def read(self, request: Request) -> Payload:
        """The body, as dialects are to see it; raises RequestError or UserCodeError, as `ready` does."""
        return read_body(request)

    def ready(
        self, call: ParsedRequest, dialect: Dialect, payload: Payload, request: Request, settings: Settings
    ) -> ParsedRequest:
        """The call that is made in place of the one that `dialect` made of `payload`."""
        return call


NO_HOOKS = Hooks()


def receive(
    request: Request,
    settings: Settings,
    user_dialects: Sequence[Dialect] = (),
    hooks: Hooks = NO_HOOKS,
    adapters: AdapterNames = NO_ADAPTERS,
    control: Control = NO_CONTROL,
) -> ParsedRequest | Response:
    """The call that a request asks for, or the answer to one that asks for none or is refused. Raises nothing that a
    client can cause, but NotReadyError where it names an adapter that is being loaded.
    """
    payload: Payload | None = None
    dialect: Dialect | None = None
    try:
        # Before the body is read: an explicit dialect refuses an unreadable body in its own form.
        dialect = explicit = explicit_dialect(request, settings, user_dialects)
        _check_query(request, user_dialects)
        asked = control_of(request)
        if asked is not None and not is_users(asked, request, settings, user_dialects, explicit):
            check_content_type(request)
            return replace(control.answer(asked, request), dialect=(dialect or fallback(settings)).name)
        try:
            payload = hooks.read(request)
        except (AdapterError, ModelNotFoundError):
            # There are no formatters of the adapter's: the body is what it looks like.
            with suppress(RequestError):
                payload = read_body(request)
                dialect = detect(payload, request, settings, user_dialects)
            raise
        mistaken = comma_error(request)
        if mistaken is not None:
            with suppress(PayloadError):
                dialect = detect(payload, request, settings, user_dialects)
            raise mistaken
        dialect = detect(payload, request, settings, user_dialects)
        if dialect.read_file is None and holds_file(request.headers) and dialect in DIALECTS:
            check_content_type(request)
        way = way_of(request, user_dialects)
        parse = (way.dialect is dialect and way.route and way.route.parse) or dialect.parse
        if adapters is NO_ADAPTERS and dialect in DIALECTS and names_nothing(payload, request, settings):
            call = parse(payload, request, settings)
        else:
            named = None
            if dialect in DIALECTS:
                named, payload = take_names(payload)
            model = payload.get("model") if dialect.names_model else None
            selected = select(named, model, request, settings, adapters)
            settings = with_name(settings, selected)
            call = with_adapters(parse(payload, request, settings), selected, adapters)
        _check_task(call, settings)
        if "traceparent" in request.headers:
            call = with_trace(call, request, settings)
        call = hooks.ready(call, dialect, payload, request, settings)
        return replace(call, dialect=dialect.name)
    except (RequestError, UserCodeError, AdapterError) as error:
        usual = OF_FILES if holds_file(request.headers) else fallback(settings)
        return _refused(dialect or usual, error, payload, request, settings)
    except NotReadyError:
        raise
    except RecursionError:
        # A body that could just be read may still be too deep for what is done with it, such as its repr in a message.
        return _refused(dialect or fallback(settings), PayloadError(TOO_DEEP), None, request, settings)
    except Exception as error:
        # A fault of ours is this request's failure, not its host's: behind DJL its client would wait for ever.
        log.exception("request %s could not be read", request.request_id)
        failure = GenerationError(f"the request could not be read: {type(error).__name__}")
        return _refused(dialect or fallback(settings), failure, None, request, settings)


def refusal(error: LmiError, request: Request, settings: Settings) -> Response:
    """The answer that a host gives to a request before it looks at it, in the form of the dialect that it is in.

    Only of our dialects: a request that is not admitted does not reach user code. A large body is not read for it: its
    dialect is told by the path, the attributes and the names of fields near its ends.
    """
    payload: Payload | None = None
    dialect = fallback(settings)
    request = routed(request)
    if way_of(request).dialect not in DIALECTS:
        request = replace(request, way=Way())
    # It is refused anyway; what else is wrong with it only decides the form.
    with suppress(RequestError, RecursionError):
        if len(request.body) <= LARGE:
            request = decoded(request, LARGE)
            payload = read_json(request.body)
    try:
        dialect = explicit_dialect(request, settings) or dialect
        dialect = detect(names_in(request.body) if payload is None else payload, request, settings)
    except RequestError:
        pass
    except Exception:
        log.exception("request %s could not be read", request.request_id)
    return _refused(dialect, error, payload, request, settings)


def _refused(
    dialect: Dialect, error: LmiError, payload: Payload | None, request: Request, settings: Settings
) -> Response:
    """The answer in the dialect's form; where that itself is at fault, in none."""
    # Tracebacks refer to frames, and these to the answer and to the request's body: a cycle.
    error.__traceback__ = error.__context__ = error.__cause__ = None
    try:
        answer = dialect.refuse(error, payload, request, settings)
    except Exception:
        log.exception("request %s: the dialect %s failed to render an error", request.request_id, dialect.name)
        answer = Response(encode({"error": error.message, "code": error.status}), error.status, failure=error)
    return replace(answer, dialect=dialect.name)
