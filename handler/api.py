"""What user code imports, in one place: `from lmi.handler.api import Response, ...`. These names stay.

handle                               the entry point, for a model.py that calls ours
Dialect, Route, OpenApi              a dialect of one's own: what it must have, its paths, what /openapi.json shows
Request, Payload, Session            what comes in; a body, decoded; a request's session
ParsedRequest, ResponseEncoder       what `parse` returns: what to generate, and what makes records of the events
ClientFields                         what the client calls what an engine may find wrong
Response                             a whole answer that needs no engine, a refusal for one
Generation, Sampling, Conversation, StructuredOutput      what to generate
template_messages                    the messages of a conversation in OpenAI's form, for an engine of one's own
Event, Started, Delta, Failed, Token, Finish              what comes back
RequestError, PayloadError, ParameterError, UnsupportedError, SessionError, LmiError    errors for the client
Backend, EngineInfo, EngineStats, Settings, MediaFile     an engine of one's own (option.backend=module:name)
JSON, JSON_LINES, SSE, encode, line_record, event_record  content types, and values as their bytes
"""

from __future__ import annotations

from ..formatters.base import (
    JSON,
    JSON_LINES,
    SSE,
    ParsedRequest,
    Payload,
    Request,
    Response,
    ResponseEncoder,
    encode,
    event_record,
    line_record,
)
from ..formatters.client_fields import ClientFields
from ..formatters.dialect import DialectShape as Dialect
from ..formatters.dialect import OpenApi, Route
from ..formatters.sessions import Session
from ..model.backend import Backend
from ..model.engine import EngineInfo, EngineStats
from ..model.errors import LmiError, ParameterError, PayloadError, RequestError, SessionError, UnsupportedError
from ..model.events import Delta, Event, Failed, Finish, Started, Token
from ..model.generation import Conversation, Generation, Sampling, StructuredOutput
from ..model.media.parts import MediaFile
from ..model.options import Settings
from ..model.text.template_messages import template_messages
from . import handle

__all__ = [
    "JSON",
    "JSON_LINES",
    "SSE",
    "Backend",
    "ClientFields",
    "Conversation",
    "Delta",
    "Dialect",
    "EngineInfo",
    "EngineStats",
    "Event",
    "Failed",
    "Finish",
    "Generation",
    "Image",
    "LmiError",
    "MediaFile",
    "OpenApi",
    "ParameterError",
    "ParsedRequest",
    "Payload",
    "PayloadError",
    "Request",
    "RequestError",
    "Response",
    "ResponseEncoder",
    "Route",
    "Sampling",
    "Session",
    "SessionError",
    "Settings",
    "Started",
    "StructuredOutput",
    "Token",
    "UnsupportedError",
    "encode",
    "event_record",
    "handle",
    "line_record",
    "template_messages",
]

Image = MediaFile
"""Its former name."""
