"""What the log says while the engine starts: which step it is at, and how long that has taken.

How much of the weights is loaded, vLLM's own bars of progress say meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["step"]

log = logging.getLogger(__name__)

TOLD_S = 10.0
"""Seconds after which it is told again that a step goes on."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """A step of the start, from its beginning to its end."""
    began = time.monotonic()
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(TOLD_S):
            log.info("%s: %.0f s so far", name, time.monotonic() - began)

    log.info("%s", name)
    telling = threading.Thread(target=tell, name="lmi-steps", daemon=True)
    telling.start()
    try:
        yield
    finally:
        # Before the end is told, behind which it goes on no more.
        ended.set()
        telling.join()
    log.info("%s: done in %.1f s", name, time.monotonic() - began)
