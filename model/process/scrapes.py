"""The engine's own metrics, seen from the host's process: asked for when somebody scrapes, and not kept.

ask --Scrape--> engine_loop.py --> the backend's `metrics` --Scraped--> the Future
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from .channel import Channel
from .messages import FromEngine, Scrape, Scraped

__all__ = ["Scrapes"]


class Scrapes:
    """Of one engine, whose processes come and go. For any thread."""

    def __init__(self, channel: Callable[[], Channel[FromEngine] | None]) -> None:
        """`channel`: the engine's that is up, or None."""
        self._channel = channel
        self._lock = threading.Lock()
        self._asked: dict[str, Future[bytes]] = {}
        """By content type. An engine that does not answer is not asked again and again."""

    def ask(self, content_type: str) -> Future[bytes]:
        """The engine's metrics as text; nothing where it is down, or ends before it answers. It may never answer."""
        with self._lock:
            if (waiting := self._asked.get(content_type)) is not None:
                return waiting
            future = self._asked[content_type] = Future()
        channel = self._channel()
        try:
            if channel is None:
                raise OSError
            channel.post(Scrape(content_type))
        except OSError:
            self.settle(Scraped(content_type, b""))
        return future

    def settle(self, answer: Scraped) -> None:
        """Takes what the engine says."""
        with self._lock:
            future = self._asked.pop(answer.content_type, None)
        if future is not None:
            future.set_result(answer.text)

    def fail(self) -> None:
        """The engine has ended."""
        for content_type in tuple(self._asked):
            self.settle(Scraped(content_type, b""))
