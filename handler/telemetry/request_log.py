"""The log's lines about requests: those that went wrong, and with `option.log_requests` all of them.

summary   request ID: dialect, status, outcome, finish reason, tokens, times; batch of N: the IDs of a dynamic batch
true      the same, and the bodies of request and answer, cut
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Literal, Protocol

from ...formatters import ParsedRequest, Request
from ...model.events import FinishReason
from ...model.log import fault
from ...model.log_filters import tidy

__all__ = ["KEPT", "EndedRequest", "RequestLog", "beginning_of"]

log = logging.getLogger(__name__)

MAX_BODY_CHARACTERS = 2000
"""Characters of a body that are logged."""
KEPT = 4 * MAX_BODY_CHARACTERS + 1
"""Bytes that tell these characters, and that there are more: UTF-8 has at most four for one."""


class EndedRequest(Protocol):
    """A request that has ended (handler/exchange.py)."""

    request_id: str
    call: ParsedRequest


class Measured(Protocol):
    """What is noted of one (metrics.py, RequestStats)."""

    admitted: bool
    begun: float
    first: float
    ended: float
    body: bytes
    answer: list[bytes]
    prompt_tokens: int
    generated_tokens: int
    reason: FinishReason | None


class RequestLog:
    """Writes the lines; `asked` is `option.log_requests`."""

    def __init__(self, asked: Literal["false", "summary", "true"]) -> None:
        self._every = asked != "false"
        self.bodies = asked == "true"
        """Whether it wants what requests and answers say."""

    def batch(self, requests: Sequence[Request]) -> None:
        """A dynamic batch, as the host put it together."""
        if self._every:
            log.info("batch of %d: %s", len(requests), " ".join(request.request_id for request in requests))

    def ended(self, request: EndedRequest, meter: Measured, outcome: str) -> None:
        """A request that has come to its end."""
        reply = request.call.reply
        name = request.request_id
        if outcome == "failed" and meter.admitted:
            log.warning("request %s failed: %s", name, fault(reply.failure))
        elif outcome in {"refused", "failed"}:
            # What was not taken on has met no fault, however busy we are.
            log.info("request %s refused: %s", name, fault(reply.failure))
        if not self._every:
            return
        first = f" first_token={meter.first - meter.begun:.3f}" if meter.first else ""
        log.info(
            "request %s: dialect=%s status=%d outcome=%s finish=%s prompt_tokens=%d generated_tokens=%d%s total=%.3f%s",
            name,
            request.call.dialect or "none",
            reply.status,
            outcome,
            meter.reason or "none",
            meter.prompt_tokens,
            meter.generated_tokens,
            first,
            meter.ended - meter.begun,
            self._of(meter.body),
        )
        if self.bodies:
            log.info("request %s: answer=%s", name, shown(b"".join(meter.answer)))

    def _of(self, body: bytes) -> str:
        return f" body={shown(body)}" if self.bodies else ""


def beginning_of(body: bytes) -> bytes:
    """What is kept of a body for the log, while its request runs: a body may be large."""
    return body[:KEPT]


def shown(body: bytes) -> str:
    """The beginning of a body on one line, as a JSON string."""
    text = beginning_of(body).decode(errors="replace")
    cut = text[:MAX_BODY_CHARACTERS] + "..." if len(text) > MAX_BODY_CHARACTERS else text
    return tidy(json.dumps(cut, ensure_ascii=True))
