"""What a logger writes, caught."""

from __future__ import annotations

import io
import json
import logging

__all__ = ["HOSTS_WORDS", "MARK", "Caught", "fail"]

MARK = "zqxmark"
"""What a client sends, and what the log must not have."""

HOSTS_WORDS = [
    "[METRICS]a.Count:--",
    "Python engine started.",
    "ModelServerTelemetry: x",
    "\x1b[2J",
    "a\rb",
    "a\u2028b",
]
"""What the host would take for its own, or what breaks a line."""


def fail() -> None:
    """Raises an exception whose message, and whose cause's, quote MARK."""
    try:
        json.loads(f'{{"{MARK}')
    except ValueError as error:
        raise KeyError(MARK) from error


class Caught:
    """A logger and what its only handler writes."""

    def __init__(self, name: str, *filters: logging.Filter) -> None:
        self.logger = logging.getLogger(name)
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        for one in filters:
            self.handler.addFilter(one)
        self.logger.handlers = [self.handler]

    @property
    def text(self) -> str:
        return self._stream.getvalue()
