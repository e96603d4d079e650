"""How long a start and a call of the handler may take.

From the moment in which Java has sent a call, it waits `predict_timeout` seconds for the response, of a stream for its
head. Then it kills the worker, with the model in it and with every other request of the batch
(PyProcess.predictStandard; 0.34 and 0.36). While a stream goes on, Java sends the next call, whose time runs already.
A start has `model_loading_timeout` seconds.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from typing import Final

__all__ = ["NextCall", "call_limit", "start_limit"]

CALL_DEFAULT_S: Final = 120
START_DEFAULT_S: Final = 240
USABLE: Final = 0.9
"""The share of the time after which an error is sent, so that it still reaches Java."""
START_USABLE: Final = 0.8
MAX_START_RESERVE_S: Final = 10.0
"""Of a start: the host takes a second or two to end."""


def call_limit(options: Mapping[str, object], environment: Mapping[str, str]) -> float:
    """Seconds after which a call is answered with an error: nine tenths of what Java waits."""
    return _timeout("predict_timeout", options, environment, CALL_DEFAULT_S) * USABLE


def start_limit(options: Mapping[str, object], environment: Mapping[str, str]) -> float:
    """Seconds that a start may take: a little less than Java waits."""
    timeout = _timeout("model_loading_timeout", options, environment, START_DEFAULT_S)
    return max(timeout * START_USABLE, timeout - MAX_START_RESERVE_S)


def _timeout(name: str, options: Mapping[str, object], environment: Mapping[str, str], default: int) -> int:
    """Seconds that Java waits: the option's, else those of the variable that Java and the worker share, else `default`.

    What is no number counts as not given, and 0 too (PyEnv.getPredictTimeout, PyEnv.getModelLoadingTimeout).
    """
    given = (str(options.get(name, "")), environment.get(name.upper(), ""))
    return next((int(text) for text in given if text.isdecimal() and int(text)), default)


class NextCall:
    """When Java has sent the next call, as far as can be known: on the one thread that reads them and streams."""

    def __init__(self) -> None:
        self.since: float | None = None
        """By time.monotonic(); None while none is seen."""
        self._poll: select.poll | None = None

    def watch(self, to_host: socket.socket) -> None:
        """A stream begins: from now on Java may send the next call."""
        self._poll = select.poll()
        self._poll.register(to_host, select.POLLIN)

    def look(self) -> None:
        """Sees whether it is there."""
        if self.since is None and self._poll is not None and self._poll.poll(0):
            self.since = time.monotonic()

    def take(self) -> float:
        """It is being handled: when it was sent."""
        since = time.monotonic() if self.since is None else self.since
        self.since = self._poll = None
        return since
