"""A host's parts: the service and its exchanges, what stands between them and DJL or HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmi.formatters import NotReadyError, Request, Response
from lmi.formatters.base import ATTRIBUTES_HEADER, attributes_of, request_id_of
from lmi.handler.commands.check import check
from lmi.handler.commands.cli import main as lmi_command
from lmi.handler.commands.package import package as package_model
from lmi.handler.djl import frames
from lmi.handler.djl.frames import NOTHING as NO_FRAME
from lmi.handler.djl.frames import Frame, frame_of_exchange, frame_of_response, next_slice
from lmi.handler.djl.metrics_log import Reporter
from lmi.handler.djl.modes import dynamic_batch
from lmi.handler.djl.modes.async_mode import AsyncBatcher
from lmi.handler.djl.modes.dynamic_batch import Chunks, PlainBatch, Whole
from lmi.handler.djl.modes.rolling_batch import RollingBatch
from lmi.handler.exchange import Exchange
from lmi.handler.headers import headers_of
from lmi.handler.response_store import keep
from lmi.handler.scraping.exposition import Exposition
from lmi.handler.secure_mode import SecureMode
from lmi.handler.server import app, streams
from lmi.handler.server.access import Access, allowed_names
from lmi.handler.server.app import application
from lmi.handler.server.connections import connection, direct, waiting
from lmi.handler.server.streams import AsyncService
from lmi.handler.service import Service
from lmi.handler.sessions.store import Store as SessionStore
from lmi.handler.states import State
from lmi.handler.telemetry.metrics import RequestStats
from lmi.handler.threads.deferred import Deferred
from lmi.handler.threads.merging import merge_deltas
from lmi.handler.threads.pool import Task, Workers
from lmi.handler.threads.prepared import Prepared
from lmi.handler.threads.sweeper import Watch
from lmi.handler.user_code.custom_handler import Relayed, RelayedReply
from lmi.handler.user_code.dialect import dialect_of
from lmi.handler.user_code.extensions import load_extensions
from lmi.handler.user_code.formatters.djl_formatters import InputFormatter, input_of
from lmi.handler.user_code.formatters.response_formatter import FormatterResponse, response_of, text_of
from lmi.handler.user_code.loading import Function
from lmi.model.engine import Engine

from .options import make_settings

__all__ = [
    "ATTRIBUTES_HEADER",
    "NO_FRAME",
    "READ_HEADERS",
    "Access",
    "AsyncBatcher",
    "AsyncService",
    "Chunks",
    "Deferred",
    "Exchange",
    "Exposition",
    "FormatterResponse",
    "Frame",
    "Function",
    "InputFormatter",
    "NotReadyError",
    "PlainBatch",
    "Prepared",
    "Relayed",
    "RelayedReply",
    "Reporter",
    "RequestStats",
    "RollingBatch",
    "SecureMode",
    "Service",
    "SessionStore",
    "State",
    "Task",
    "Watch",
    "Whole",
    "Workers",
    "allowed_names",
    "answer_of",
    "application",
    "attributes_of",
    "check_model_dir",
    "connection",
    "dialect_of",
    "djl_request_of",
    "djl_worker",
    "dynamic_batch",
    "frame_of_exchange",
    "frame_of_response",
    "headers_of",
    "input_of",
    "keep",
    "lmi_command",
    "load_extensions",
    "merge_deltas",
    "next_slice",
    "package_model",
    "request_id_of",
    "response_of",
    "started_service",
    "text_of",
    "waiting",
]


def check_model_dir(model_dir: Path, overrides: Mapping[str, str], **further: Any) -> list[str]:
    """What `lmi check` finds, a line each."""
    return [str(finding) for finding in check(model_dir, overrides, **further)]


READ_HEADERS = (frames, dynamic_batch, app, direct, streams)
"""The modules of hosts that ask a response for its headers (handler/headers.py, headers_of)."""


def started_service(engine: Engine, directory: Path | None = None, /, **options: str) -> Service:
    """A service on `engine`, with the settings of options.py: make_settings."""
    service = Service(make_settings(directory, **options), engine, given=options)
    service.start()
    return service


def answer_of(exchange: Exchange) -> Response:
    """The answer of one that has ended, whole; it is taken."""
    assert exchange.finished
    reply = exchange.call.reply
    return Response(
        exchange.take_all(), reply.status, reply.content_type, reply.headers, reply.failure, exchange.call.dialect
    )


def djl_request_of(inputs: Any) -> Request:
    """The request that an Input of djl_python's is; djl_python is on the path."""
    from lmi.handler.djl.convert import request_of

    return request_of(inputs)


def djl_worker() -> Any:
    """What DJL's calls go to in a worker; djl_python is on the path."""
    from lmi.handler.djl.worker import Worker

    return Worker()
