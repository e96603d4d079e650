"""Hands the engine's events to those who wait for them: sinks, each of which is one request's, and listeners.

    Step --step--> sink(event), sink(event), ...; listener(), listener()

Never on two threads at once: what a sink feeds is one request's, and listeners count what a step brings.
"""

from __future__ import annotations

import logging
import threading

from ..engine import Listener, Sink
from ..errors import GenerationError
from ..events import Delta, EngineEvent, Failed
from .child import EngineChild
from .messages import Step

__all__ = ["Dispatcher"]

log = logging.getLogger(__name__)


class Dispatcher:
    """The listeners of one engine; its sinks are in the EngineChild that they run in."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.lock = threading.Lock()
        """Held while sinks and listeners are called: once a step."""

    def step(self, step: Step, child: EngineChild) -> None:
        """Hands out what a step brought."""
        with self.lock:
            sinks = child.sinks
            for number, event in step.events:
                sink = sinks.get(number)
                if sink is None:
                    continue
                if isinstance(event, Failed):
                    sinks.pop(number, None)
                elif isinstance(event, Delta) and event.finish and event.finish.last:
                    sinks.pop(number, None)
                    child.served = True
                try:
                    sink(event)
                except Exception as error:  # noqa: BLE001 - logged there
                    self._not_taken(sink, event, error)
                    if sinks.pop(number, None) is not None:
                        child.abort((number,))
            if step.events:
                self._notify()

    def fail(self, child: EngineChild, failed: Failed) -> None:
        """Ends whatever runs with `failed`."""
        with self.lock:
            for number in list(child.sinks):
                if (sink := child.sinks.pop(number, None)) is not None:
                    self._give(sink, failed)
            self._notify()

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        """Delivers `event` to a sink that no step tells of it."""
        with self.lock:
            sink(event)

    def _give(self, sink: Sink, event: EngineEvent) -> None:
        try:
            sink(event)
        except Exception as error:  # noqa: BLE001 - logged there
            self._not_taken(sink, event, error)

    def _not_taken(self, sink: Sink, event: EngineEvent, error: Exception) -> None:
        """A sink that did not take an event, which is its request's fault alone, is told of its end."""
        log.error("an event could not be delivered", exc_info=error)
        if not isinstance(event, Failed):
            message = f"the response could not be delivered: {type(error).__name__}"
            self._give(sink, Failed.of(GenerationError(message)))

    def _notify(self) -> None:
        for listener in self.listeners:
            try:
                listener()
            except Exception:  # noqa: PERF203 - the next one is to be called all the same
                log.exception("a listener failed")
