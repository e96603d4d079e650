"""HTTP requests that the local server has answered, under the names of vLLM's own server: those of the package
prometheus-fastapi-instrumentator, which that one uses, with the same labels.

    a request --> Counted --> the application;   its route --ROUTE, in the request's state--> Counted --> HttpRequests

What is answered before the application has it (a head that is no HTTP, too many connections) is not counted, nor are
probes and scrapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING

from ..telemetry.metrics import Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ROUTE", "Counted", "HttpRequests"]

ROUTE = "lmi.route"
"""Where in a request's state its route's path is, as it was declared."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER = "other"
"""Any other method: clients may make them up."""
NO_ROUTE = "none"
PROBES = frozenset({"/health", "/metrics", "/ping"})
SECONDS = (0.1, 0.5, 1.0)


class HttpRequests:
    """A collector (prometheus_client's). On the event loop."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[str, str, str]] = Counter()
        self._durations: dict[tuple[str, str], Histogram] = {}

    def note(self, method: str, handler: str, status: int, seconds: float) -> None:
        """Counts a request; `handler`: its route's path."""
        if handler in PROBES:
            return
        if method not in METHODS:
            method = OTHER
        self._answered[method, f"{status // 100}xx", handler] += 1
        self._durations.setdefault((method, handler), Histogram(SECONDS)).add(seconds)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        answered = CounterMetricFamily(
            "http_requests", "HTTP requests, without probes.", labels=("method", "status", "handler")
        )
        for labels, count in sorted(self._answered.items()):
            answered.add_metric(labels, count)
        yield answered
        durations = HistogramMetricFamily(
            "http_request_duration_seconds", "From a request to the end of its response.", labels=("method", "handler")
        )
        bounds = [*map(floatToGoString, SECONDS), "+Inf"]
        for of, histogram in sorted(self._durations.items()):
            durations.add_metric(of, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
        yield durations


class Counted:
    """Counts an application's requests. Nothing stands around it: what else does may answer some."""

    def __init__(self, app: ASGIApp, *, requests: HttpRequests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's turn."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, ended = monotonic(), 500, False
        state = scope.setdefault("state", {})

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                # The routes of hooks are FastAPI's, which says so itself.
                handler = state.get(ROUTE) or getattr(scope.get("route"), "path", "") or NO_ROUTE
                self._requests.note(scope["method"], handler, status, monotonic() - begun)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body"):
                # Before it goes: who has the response finds it counted.
                end()
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            end()
