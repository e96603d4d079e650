"""What is counted of the requests of a service: for `/metrics` (scraping/) and for the log (djl/metrics_log.py).

    Service.open --> RequestStats --note, with each event--> end --> Metrics
    Engine.listen --> Metrics.tick, after each step

No lock is taken and no clock is read for a token: the clock is read once a step, by the first event that a stream gets
in it, and what a step brings to streams that also got something in the step before is counted together. The engine's
thread alone writes `inter_token`; the rest is written once a request, under the lock.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal

from ...formatters import Request
from ...model.errors import LmiError, RequestError
from ...model.events import Delta, EngineEvent, Finish, FinishReason, Started
from .request_log import KEPT, EndedRequest, RequestLog, beginning_of

__all__ = ["Histogram", "Metrics", "Outcome", "RequestStats"]

log = logging.getLogger(__name__)

Outcome = Literal["ok", "refused", "failed", "aborted"]
"""ok: answered. refused: the client's doing (RequestError). failed: ours. aborted: by the client, or by the host."""

TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
FIRST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
DURATION_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """How often values fell into which range."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        """The largest value of each range, ascending; a last range has no bound."""
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Metrics:
    """The numbers of one service since its start."""

    def __init__(self, request_log: RequestLog) -> None:
        self._log = request_log
        self.requests: Counter[tuple[str, int, Outcome]] = Counter()
        """By dialect, HTTP status and outcome; a stream that fails once it has begun has status 200."""
        self.errors: Counter[str] = Counter()
        """By the error's code (model/errors.py)."""
        self.opened = 0
        self.ended = 0
        """Of those that were taken on; a request that is answered at once, as a page or a refusal, is neither."""
        self.audio_seconds = 0.0
        """Of audio that was written down."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.dropped_characters = 0
        self.first = Histogram(FIRST_SECONDS)
        self.inter_token = Histogram(TOKEN_SECONDS)
        self.per_token = Histogram(TOKEN_SECONDS)
        self.duration = Histogram(DURATION_SECONDS)
        self.decoding = Histogram(FIRST_SECONDS)
        """Of the media of a request."""
        self.step_time = 0.0
        """When the step began that is being handed out; 0 if no stream has got anything of it."""
        self.previous_step_time = -1.0
        """The same of the step before."""
        self.continued_streams = 0
        """How many streams have got something in both."""
        self.loops: list[Callable[[], asyncio.AbstractEventLoop | None]] = []
        """The event loops that requests are served on; some hosts have none."""
        self._lock = threading.Lock()

    @property
    def tasks(self) -> int:
        """asyncio's tasks on these loops that have not ended, its host's own and the caller's among them."""
        loops = {loop for one in self.loops if (loop := one()) is not None}
        return sum(len(asyncio.all_tasks(loop)) for loop in loops)

    @property
    def keeps(self) -> bool:
        """Whether the log needs the bytes that are sent."""
        return self._log.bodies

    @property
    def in_flight(self) -> int:
        """How many requests are open."""
        # In this order: a request that comes and goes meanwhile is never counted as ended only.
        ended = self.ended
        return self.opened - ended

    def open(self, request: Request) -> RequestStats:
        """Begins a request."""
        return RequestStats(self, beginning_of(request.body) if self._log.bodies else b"")

    def batch(self, requests: Sequence[Request]) -> None:
        """Takes note of what the host has put into one dynamic batch."""
        try:
            self._log.batch(requests)
        except Exception:
            log.exception("a batch could not be logged")

    def admit(self, meter: RequestStats) -> None:
        """Counts a request that is taken on."""
        with self._lock:
            meter.admitted = True
            self.opened += 1

    def tick(self) -> None:
        """After each step, on the engine's thread."""
        if now := self.step_time:
            if self.continued_streams:
                self.inter_token.add(now - self.previous_step_time, self.continued_streams)
                self.continued_streams = 0
            self.previous_step_time = now
            self.step_time = 0.0

    def finish(self, meter: RequestStats, request: EndedRequest, *, aborted: bool) -> None:
        """Takes note of a request that has come to its end."""
        reply = request.call.reply
        outcome = "aborted" if aborted else outcome_of(reply.failure)
        with self._lock:
            meter.ended = monotonic()
            self._count(request.call.dialect, reply.status, outcome, None if aborted else reply.failure)
            if meter.admitted:
                self.ended += 1
                self._measure(meter, outcome)
        self._log.ended(request, meter, outcome)

    def _measure(self, meter: RequestStats, outcome: Outcome) -> None:
        self.audio_seconds += meter.audio_seconds
        self.prompt_tokens += meter.prompt_tokens
        self.cached_tokens += meter.cached_tokens
        self.generated_tokens += meter.generated_tokens
        self.dropped_characters += meter.dropped_characters
        if meter.decoding:
            self.decoding.add(meter.decoding)
        if meter.first:
            self.first.add(meter.first - meter.begun)
        if outcome == "ok":
            self.duration.add(meter.ended - meter.begun)
            if meter.first and meter.generated_tokens > 1 and meter.sequences == 1:
                self.per_token.add((meter.last - meter.first) / (meter.generated_tokens - 1))

    def _count(self, dialect: str, status: int, outcome: Outcome, failure: LmiError | None) -> None:
        self.requests[dialect or "none", status, outcome] += 1
        if failure is not None:
            self.errors[failure.code] += 1


def outcome_of(failure: LmiError | None) -> Outcome:
    """The outcome of a request that was not aborted."""
    if failure is None:
        return "ok"
    return "refused" if isinstance(failure, RequestError) else "failed"


class RequestStats:
    """The measurements of one request. Times are `time.monotonic`'s; 0 is never."""

    __slots__ = (
        "_kept",
        "_metrics",
        "admitted",
        "answer",
        "audio_seconds",
        "begun",
        "body",
        "cached_tokens",
        "decoding",
        "dropped_characters",
        "ended",
        "first",
        "generated_tokens",
        "keeps",
        "last",
        "prompt_tokens",
        "reason",
        "sequences",
        "streamed",
    )

    def __init__(self, metrics: Metrics, body: bytes = b"") -> None:
        self._metrics = metrics
        self.admitted = False
        """Whether it was taken on, and not answered at once."""
        self.keeps = metrics.keeps
        """Whether `keep` must be called with what is sent."""
        self.body = body
        self.answer: list[bytes] = []
        """The beginning of what was sent."""
        self._kept = 0
        self.begun = monotonic()
        self.first = 0.0
        """When the first token of a stream came; 0 for what is not streamed, of which only the end is known."""
        self.last = 0.0
        self.ended = 0.0
        self.streamed = False
        self.audio_seconds = 0.0
        self.decoding = 0.0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.dropped_characters = 0
        """What parsers left out of the answers."""
        self.sequences = 0
        """How many have ended."""
        self.reason: FinishReason | None = None
        """Why the last of them ended."""

    def note(self, event: EngineEvent) -> None:
        """Takes an event, on the engine's thread."""
        if type(event) is Delta:
            if self.streamed:
                metrics, last = self._metrics, self.last
                now = metrics.step_time
                if not now:
                    now = metrics.step_time = monotonic()
                if last == metrics.previous_step_time:
                    metrics.continued_streams += 1
                elif not last:
                    self.first = now
                elif last != now:
                    metrics.inter_token.add(now - last)
                self.last = now
            if event.finish is not None:
                self._end_of_sequence(event.finish)
        elif type(event) is Started:
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens
            self.decoding += event.decoding
            if event.recording is not None:
                self.audio_seconds += event.recording.seconds

    def keep(self, records: list[bytes]) -> None:
        """Takes what is sent, for the log."""
        for record in records:
            if self._kept >= KEPT:
                return
            self.answer.append(beginning_of(record))
            self._kept += len(record)

    def admit(self) -> None:
        """Takes note that the request is taken on."""
        self._metrics.admit(self)

    def end(self, request: EndedRequest, *, aborted: bool = False) -> None:
        """Takes the end of the request, which has one."""
        self._metrics.finish(self, request, aborted=aborted)

    def _end_of_sequence(self, finish: Finish) -> None:
        self.generated_tokens += finish.generated_tokens + finish.discarded_tokens
        self.dropped_characters += finish.dropped_characters
        self.sequences += 1
        self.reason = finish.reason
