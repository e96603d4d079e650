"""What goes into the log and in which form, in the host's process and in the engine's.

Prompts, responses and whatever else a client sends are not logged, unless `option.log_requests=true` says so. That
concerns messages of errors too, which repeat what was sent: `fault` and `trace` describe errors without them, and
`Withheld` takes them out of what libraries log in the engine's process. Names of fields are logged.

A line about a request begins with `request ID`, ID being the host's.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from datetime import datetime, timezone

from .errors import (
    LmiError,
    OverloadedError,
    SlowReaderError,
    StartError,
    TimeLimitError,
    TooLargeError,
    UnavailableError,
    one_line,
)
from .vllm_messages import CORE_FAILED

__all__ = [
    "JsonFormatter",
    "RequestIds",
    "cause",
    "content_is_shown",
    "current",
    "fault",
    "set_current",
    "show_content",
    "text_of",
    "trace",
]

FORM = "%(levelname)s::%(name)s %(message)s"

_shown = True


def show_content(on: bool) -> None:
    """Whether prompts, answers and messages that may repeat them go into this process' log from now on.

    To be called before the first request; until then everything is logged, as it is about the start.
    """
    global _shown
    _shown = on


def content_is_shown() -> bool:
    """The last value given to `show_content`."""
    return _shown


_FIELD = re.compile(r"[\w.\[\] -]{1,100}", re.ASCII)
_OURS = (OverloadedError, SlowReaderError, StartError, TimeLimitError, TooLargeError, UnavailableError)
"""Errors whose messages repeat nothing of a request."""


def fault(error: LmiError | None) -> str:
    """An error for the log: its code, its field, and its message if that may be shown."""
    if error is None:
        return "no error"
    parts = [error.code]
    if error.param and _FIELD.fullmatch(error.param):
        parts.append(f"({error.param})")
    text = " ".join(parts)
    return f"{text}: {error.message}" if _shown or isinstance(error, _OURS) else text


def trace(error: BaseException, *, shown: bool) -> str:
    """An exception's traceback; with `shown` also what exceptions say."""
    if shown:
        return "".join(traceback.format_exception(error)).rstrip()
    parts: list[str] = []
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        frames = "".join(traceback.format_tb(link.__traceback__))
        kind = type(link)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        parts.append(f"{frames}{name} (message withheld: see option.log_requests)")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "Traceback (most recent call last):\n" + "\nafter\n".join(reversed(parts))


_PLAIN = re.compile(r"(CUDA|HIP|NCCL|cuDNN|CUDNN|cuBLAS|CUBLAS)\b|.*\b(out of memory|allocate memory)\b|" + CORE_FAILED)
"""What a device, or vLLM of its core, has to say."""


def cause(error: BaseException) -> str:
    """Why an engine failed, by an exception: its message, or its class where that message could be about a request."""
    text = one_line(str(error))
    plain = isinstance(error, LmiError | MemoryError | OSError) or _PLAIN.match(text)
    return text if text and (_shown or plain) else f"an unexpected {type(error).__name__}"


_local = threading.local()


def set_current(request_id: str) -> None:
    """Sets the id of the request that this thread works on."""
    _local.request_id = request_id


def current() -> str:
    """The id of the request that this thread works on; `-` for none."""
    return getattr(_local, "request_id", None) or "-"


def text_of(record: logging.LogRecord) -> str:
    """A line's message, whatever its arguments."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a format that does not fit its arguments
        return str(record.msg)


class JsonFormatter(logging.Formatter):
    """A line as one JSON object: time, level, logger, message, and request_id where it is about a request."""

    def format(self, record: logging.LogRecord) -> str:
        message = text_of(record)
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if found := _ABOUT.match(message):
            entry["request_id"] = found[1]
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            entry["exception"] = record.exc_text
        return json.dumps(entry)


_ABOUT = re.compile(r"request ([^\s:]\S*?):? ")


class RequestIds:
    """Ids of the requests that came last, by the numbers of their generations."""

    def __init__(self, size: int = 10_000) -> None:
        self._ids: dict[int, str] = {}
        self._size = size

    def add(self, number: int, request_id: str) -> None:
        """Remembers a generation, and forgets the oldest."""
        self._ids[number] = request_id
        if len(self._ids) > self._size:
            del self._ids[next(iter(self._ids))]

    def __getitem__(self, number: int) -> str:
        return self._ids.get(number) or "-"
