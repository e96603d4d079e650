"""A model that is being served: its settings, its engine, and requests coming in. Hosts are loops around it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..formatters import Answer, Request, check_dialect, receive
from ..model.engine import Engine, EngineInfo
from ..model.options import Settings
from ..model.remote import RemoteEngine
from .exchange import Exchange

__all__ = ["Service"]

log = logging.getLogger(__name__)


class Service:
    """Opens an exchange for each request."""

    def __init__(self, settings: Settings, engine: Engine | None = None) -> None:
        self.settings = settings
        self.engine = engine or RemoteEngine(settings)
        self.info: EngineInfo

    def start(self) -> EngineInfo:
        """Brings the engine up; raises StartError."""
        check_dialect(self.settings)
        self.info = self.engine.start()
        return self.info

    def open(self, request: Request, on_news: Callable[[Exchange], None] | None = None) -> Exchange | Answer:
        """Starts what the request asks for, or gives the answer that refuses it. Never waits for the engine."""
        call = receive(request, self.settings)
        if isinstance(call, Answer):
            log.info("request %s refused: %s", request.request_id, call.failure)
            return call
        exchange = Exchange(call, self.engine, request_id=request.request_id, on_news=on_news)
        exchange.begin()
        return exchange

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()
