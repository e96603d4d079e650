"""Encoders that run user code: what fails there becomes an error in the dialect's own form.

event --_records--> records;   UserCodeError, Failed --_fail--> the dialect's refusal, or its words for a broken stream
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from ...formatters import Response
from ...formatters.base import ResponseEncoder, line_record
from ...model.errors import LmiError, UserCodeError
from ...model.events import Event, Failed
from ...model.log import current
from ..response_store import Kept, kept_of
from .loading import shown

__all__ = ["GuardedEncoder", "end_of_stream", "plain_error_line"]

log = logging.getLogger(__name__)


def end_of_stream(reply: ResponseEncoder, error: LmiError) -> list[bytes]:
    """The records that end a stream that has begun, made without any user code, which may hang."""
    own = getattr(reply, "end_of_stream", None)
    return own(error) if own is not None else reply.feed(Failed.of(error))


def plain_error_line(error: LmiError) -> list[bytes]:
    """The same where no dialect can be asked."""
    return [line_record({"error": error.message, "code": 424})]


class GuardedEncoder:
    """An encoder around another one, `inner`: what user code raises becomes an error in the dialect's form."""

    def __init__(self, inner: ResponseEncoder, refuse: Callable[[LmiError], Response]) -> None:
        self._inner = inner
        self._refuse = refuse
        self.status = inner.status
        self.content_type = inner.content_type
        self.headers: Mapping[str, str] = inner.headers
        self.failure: LmiError | None = None
        self.finished = False
        self._begun = False

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes. Raises nothing that user code can cause."""
        if isinstance(event, Failed):
            return self._fail(event.error, prompt)
        records: list[bytes] = []
        failure: LmiError | None = None
        try:
            # One by one: what was good before something failed is sent.
            for record in self._records(event, prompt):
                records.append(record)  # noqa: PERF402
        except LmiError as error:
            failure = error
        except Exception as error:
            log.exception("request %s: user code in its response failed", current())
            failure = UserCodeError(f"the output formatter failed: {shown(error)}")
        self._begun = self._begun or bool(records)
        return records if failure is None else records + self._fail(failure, prompt)

    @property
    def kept(self) -> Kept | None:
        """What the encoder inside has to be kept."""
        return kept_of(self._inner)

    def end_of_stream(self, error: LmiError) -> list[bytes]:
        """See `end_of_stream`."""
        self.finished, self.failure = True, error
        return end_of_stream(self._inner, error)

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        """What `event` brings; sets `finished`. Raises LmiError."""
        raise NotImplementedError

    def _fail(self, error: LmiError, prompt: int) -> list[bytes]:
        self.finished, self.failure = True, error
        if self._begun:
            return self._end_stream(error, prompt)
        answer = self._refuse(error)
        self.status, self.content_type, self.headers = answer.status, answer.content_type, answer.headers
        return [answer.body] if answer.body else []

    def _end_stream(self, error: LmiError, prompt: int) -> list[bytes]:
        """The end of a stream that has begun."""
        try:
            records = self._inner.feed(Failed.of(error), prompt)
            if all(isinstance(record, bytes) for record in records):
                return [*filter(None, records)]
        except Exception:
            log.exception("request %s: the dialect also failed to render the error", current())
        return plain_error_line(error)
