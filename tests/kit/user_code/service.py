"""A service of user code on an engine that says what a test tells it to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lmi.formatters import Request
from lmi.handler.exchange import Exchange
from lmi.handler.threads.pool import Workers
from lmi.model.events import EngineEvent

from ..api.handler import started_service
from ..waiting import until
from .engine import ScriptedEngine

__all__ = ["HI", "MakeScripted", "ScriptedService"]

HI = b'{"inputs": "Hi"}'


class ScriptedService:
    """A started service of the model directory `folder`, with `files` in it."""

    def __init__(
        self, folder: Path, files: Mapping[str, str], options: Mapping[str, str], then: list[EngineEvent] | None = None
    ) -> None:
        """`then`: what the engine says to each generation at once."""
        for name, source in files.items():
            (folder / name).write_text(source)
        self.engine = ScriptedEngine()
        self.engine.submit_then = then or []
        self.service = started_service(self.engine, folder, **options)

    def open(
        self,
        body: object = HI,
        headers: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
        **request: Any,
    ) -> Exchange:
        """What a request has become; `body`: bytes, or what is sent as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.service.open(Request(content, headers=headers or {}, attributes=attributes or {}, **request))

    def ended(self, body: object = HI, headers: Mapping[str, str] | None = None, **request: Any) -> Exchange:
        """The same, once it has ended."""
        exchange = self.open(body, headers, **request)
        until(lambda: exchange.finished)
        return exchange

    def submitted(self, count: int) -> None:
        """Returns when so many generations have been submitted."""
        until(lambda: len(self.engine.generations) >= count)

    def say(self, ticket: int, *events: EngineEvent) -> None:
        """Says it once the generation has been submitted."""
        self.submitted(ticket + 1)
        self.engine.say(ticket, *events)

    @property
    def workers(self) -> Workers:
        """The threads of user code."""
        assert self.service.extensions is not None
        return self.service.extensions.workers

    def pass_time(self, seconds: float) -> None:
        """What the watch does when so much time has passed since now."""
        now = time.monotonic() + seconds
        self.service.admission.sweep(now)
        if self.service.extensions is not None:
            self.workers.sweep(now)

    def rest(self) -> None:
        """Returns when the only thread of user code (`user_code_threads` 1) has done what it was asked for."""
        self.workers.call(lambda: None).result(30)


MakeScripted = Callable[..., ScriptedService]
"""Of `files` and options."""
