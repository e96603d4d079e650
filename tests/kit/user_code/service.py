"""A service of user code on an engine that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lmi.formatters import Request
from lmi.handler.exchange import Exchange

from ..api.handler import started_service
from .engine import ScriptedEngine

__all__ = ["HI", "ScriptedService"]

HI = b'{"inputs": "Hi"}'


class ScriptedService:
    """A started service of the model directory `folder`, with `files` in it."""

    def __init__(self, folder: Path, files: dict[str, str], options: dict[str, str]) -> None:
        for name, source in files.items():
            (folder / name).write_text(source)
        self.engine = ScriptedEngine()
        self.service = started_service(self.engine, folder, **options)

    def open(
        self, body: bytes = HI, headers: Mapping[str, str] | None = None, attributes: Mapping[str, str] | None = None
    ) -> Exchange:
        """What a request has become, which must not have been refused at once."""
        return self.service.open(Request(body, headers=headers or {}, attributes=attributes or {}))

    def rest(self) -> None:
        """Returns when the only thread of user code (`user_code_threads` 1) has done what it was asked for."""
        assert self.service.extensions is not None
        self.service.extensions.workers.call(lambda: None).result(30)
