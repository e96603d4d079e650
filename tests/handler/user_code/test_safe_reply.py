"""What an encoder with user code in it makes of an error there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lmi.handler.user_code.safe_reply import GuardedEncoder, plain_error_line

from ...kit.api.errors import LmiError, RequestError, UserCodeError
from ...kit.api.types import Delta, Event, Failed, Response
from ...kit.rows import each_row


class Inner:
    """A dialect's encoder, which writes events' names; `broken`: it fails, too."""

    status, content_type, failure, finished = 200, "text/plain", None, False
    headers: Mapping[str, str] = {"x-inner": "1"}

    def __init__(self, broken: bool) -> None:
        self._broken = broken

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if self._broken:
            raise ValueError("the dialect, too")
        assert isinstance(event, Failed)
        return [b"", f"{prompt} {event.error.message}".encode()]


class Guarded(GuardedEncoder):
    """Has records, and an error after them."""

    def __init__(self, error: Exception | None, *records: bytes, broken: bool = False) -> None:
        super().__init__(
            Inner(broken), lambda error: Response(error.message.encode(), 424, "text/error", {"x-own": "1"})
        )
        self._after = records, error

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        records, error = self._after
        yield from records
        if error is not None:
            raise error


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


ERRORS: list[tuple[Exception, type[LmiError], str]] = [
    (UserCodeError("model.py: f raised"), UserCodeError, "model.py: f raised"),
    (RequestError("its own", "field"), RequestError, "its own"),
    (ValueError("its own"), UserCodeError, "the output formatter failed: ValueError: its own"),
    (KeyError(), UserCodeError, "the output formatter failed: KeyError"),
    (MuteError(), UserCodeError, "the output formatter failed: MuteError"),
]


@each_row(("error", "kind", "message"), ERRORS)
def test_an_error_before_anything_else_is_a_refusal(error: Exception, kind: type[LmiError], message: str) -> None:
    encoder = Guarded(error)
    assert encoder.feed(Delta(0, "text"), 3) == [message.encode()]
    assert (encoder.status, encoder.content_type, encoder.headers) == (424, "text/error", {"x-own": "1"})
    assert encoder.finished
    assert type(encoder.failure) is kind


@each_row(("error", "kind", "message"), ERRORS)
def test_an_error_later_comes_after_what_was_good(error: Exception, kind: type[LmiError], message: str) -> None:
    encoder = Guarded(error, b"one", b"two")
    assert encoder.feed(Delta(0, "text"), 3) == [b"one", b"two", f"3 {message}".encode()]
    assert (encoder.status, encoder.content_type, encoder.headers) == (200, "text/plain", {"x-inner": "1"})
    assert encoder.finished
    assert type(encoder.failure) is kind


@each_row("error", [UserCodeError("bad"), ValueError("bad")])
def test_where_the_dialect_fails_too_there_is_a_plain_line(error: Exception) -> None:
    encoder = Guarded(error, b"one", broken=True)
    records = encoder.feed(Delta(0, "text"))
    assert encoder.failure is not None
    assert records == [b"one", *plain_error_line(encoder.failure)]


def test_without_an_error() -> None:
    encoder = Guarded(None, b"one")
    assert encoder.feed(Delta(0, "text")) == [b"one"]
    assert (encoder.finished, encoder.failure) == (False, None)


def test_the_engines_failure() -> None:
    failed = Failed.of(RequestError("of the engine's"))
    encoder = Guarded(None)
    assert encoder.feed(failed) == [b"of the engine's"]
    assert encoder.failure is not None
    assert (type(encoder.failure), encoder.failure.message) == (RequestError, "of the engine's")
