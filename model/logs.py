"""What goes into the log and in which form, in the host's process and in the engine's.

Prompts, answers and what else a client sends are no matter for the log, unless `option.log_requests=true` says so. That
concerns messages of errors too, for they repeat what was given: `fault` and `trace` tell of errors without them, and
`Withheld` takes them out of what libraries log in the engine's process. Names of fields are logged.

A line about a request begins with `request ID`, ID being the host's.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from types import FrameType

from .errors import LmiError, OverloadedError, StartError, UnavailableError, one_line

__all__ = [
    "cause",
    "configure",
    "content_is_shown",
    "current",
    "fault",
    "set_current",
    "show_content",
    "tidy",
    "trace",
    "withhold",
]

FORM = "%(levelname)s::%(name)s %(message)s"

_shown = True


def show_content(on: bool) -> None:
    """Whether prompts, answers and messages that may repeat them go into this process' log from now on.

    To be called before the first request; until then everything is told, for it is about how the service starts.
    """
    global _shown
    _shown = on


def content_is_shown() -> bool:
    """What `show_content` was last told."""
    return _shown


_FIELD = re.compile(r"[\w.\[\] -]{1,100}", re.ASCII)
_OURS = (OverloadedError, StartError, UnavailableError)
"""Errors whose messages repeat nothing of a request."""


def fault(error: LmiError | None) -> str:
    """An error as the log tells it: its code, the field that it is about, and what it says if that may be shown."""
    if error is None:
        return "no error"
    parts = [error.code]
    if error.param and _FIELD.fullmatch(error.param):
        parts.append(f"({error.param})")
    text = " ".join(parts)
    return f"{text}: {error.message}" if _shown or isinstance(error, _OURS) else text


def trace(error: BaseException) -> str:
    """An exception's traceback; what exceptions say only if that may be shown."""
    if _shown:
        return "".join(traceback.format_exception(error)).rstrip()
    parts: list[str] = []
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        frames = "".join(traceback.format_tb(link.__traceback__))
        kind = type(link)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        parts.append(f"{frames}{name} (what it says is withheld: option.log_requests)")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "Traceback (most recent call last):\n" + "\nafter\n".join(reversed(parts))


_PLAIN = re.compile(
    r"(CUDA|HIP|NCCL|cuDNN|CUDNN|cuBLAS|CUBLAS)\b|.*\b(out of memory|allocate memory)\b|EngineCore encountered an issue"
)
"""What a device, or vLLM of its core, has to say."""


def cause(error: BaseException) -> str:
    """What an exception says of why an engine is beyond use; its class where that could be about a request."""
    text = one_line(str(error))
    plain = isinstance(error, LmiError | MemoryError | OSError) or _PLAIN.match(text)
    return text if text and (_shown or plain) else f"an unexpected {type(error).__name__}"


_local = threading.local()


def set_current(request_id: str) -> None:
    """Says whose request this thread is at."""
    _local.request_id = request_id


def current() -> str:
    """The id of the request that this thread is at; `-` for none."""
    return getattr(_local, "request_id", None) or "-"


# DJL reads its worker's output (PyProcess.ReaderThread): the first of these makes a metric of what follows, which with
# a client's words could be any; the second marks the worker as started; a line with the third is dropped.
_ODD = re.compile(
    r"\[METRICS\]|Python engine started\.|ModelServerTelemetry:|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)


def tidy(text: str) -> str:
    """`text` without control characters, and without what the host would take for its own."""
    return _ODD.sub(lambda found: found[0][0] + "_" + found[0][1:] if len(found[0]) > 1 else "?", text)


class Tidy(logging.Filter):
    """Tidies lines, of ours or of everybody, and has our exceptions told by `trace`."""

    def __init__(self, *, everybody: bool) -> None:
        super().__init__()
        self._everybody = everybody

    def filter(self, record: logging.LogRecord) -> bool:
        ours = _top(record) in OURS
        if ours:
            _trace_exception(record)
        if ours or self._everybody:
            text = _text(record)
            if (tidied := tidy(text)) != text:
                record.msg, record.args = tidied, None
        return True


OURS = {"lmi", "__main__"}


def _top(record: logging.LogRecord) -> str:
    return record.name.partition(".")[0]


def _trace_exception(record: logging.LogRecord) -> None:
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = tidy(trace(record.exc_info[1]))
        record.exc_info = None


class Withheld(logging.Filter):
    """Takes out of the lines of others what may be a client's; of those in `loggers`, or of all.

    Of a line with arguments, those that are no numbers; of an exception, what it says. A line without arguments stays
    where it is written in the source as it is, and is withheld where it was put together.
    """

    def __init__(self, loggers: Collection[str] = ()) -> None:
        super().__init__()
        self._loggers = loggers

    def filter(self, record: logging.LogRecord) -> bool:
        top = _top(record)
        if _shown or top in OURS or (self._loggers and top not in self._loggers):
            return True
        _trace_exception(record)
        if record.args:
            record.msg, record.args = _text_of(record.msg, record.args), None
        elif not _written_so(record):
            record.msg = f"({record.funcName}: what this line says is withheld: option.log_requests)"
        return True


def _text_of(form: object, arguments: tuple[object, ...] | Mapping[str, object]) -> str:
    """A message with its numbers only."""
    known: object
    if isinstance(arguments, Mapping):
        known = {name: _number(value) for name, value in arguments.items()}
    else:
        known = tuple(_number(value) for value in arguments)
    try:
        return str(form) % known
    except (TypeError, ValueError):
        return str(form)


def _number(value: object) -> object:
    return value if isinstance(value, int | float) else "..."


def _written_so(record: logging.LogRecord) -> bool:
    """Whether the message is a constant of the function that logs it, which is still running."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == record.pathname and frame.f_lineno == record.lineno:
            return record.msg in frame.f_code.co_consts
        frame = frame.f_back
    return False


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a format that does not fit its arguments
        return str(record.msg)


def withhold(loggers: Collection[str] = ()) -> None:
    """Lets `Withheld` look at what every handler gets that there is now; of all loggers, and of these only."""
    known = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for logger in known:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if not any(isinstance(present, Withheld) for present in handler.filters):
                handler.addFilter(Withheld(loggers))
                handler.addFilter(Tidy(everybody=True))


class JsonFormatter(logging.Formatter):
    """A line as one JSON object: time, level, logger, message, and request_id where it is about a request."""

    def format(self, record: logging.LogRecord) -> str:
        message = _text(record)
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


def configure(*, own_process: bool) -> None:
    """Sets up this process' log by LMI_LOG_LEVEL and LMI_LOG_FORMAT (`json`).

    Without `own_process` (DJL's worker) the host has set it up: only lines of ours are tidied, and the form is changed
    where it is to be JSON.
    """
    if own_process:
        logging.basicConfig(level=os.environ.get("LMI_LOG_LEVEL", "INFO").upper(), format=FORM)
    as_json = os.environ.get("LMI_LOG_FORMAT", "").lower() == "json"
    for handler in logging.getLogger().handlers:
        if not any(isinstance(present, Tidy) for present in handler.filters):
            handler.addFilter(Tidy(everybody=False))
        if as_json:
            handler.setFormatter(JsonFormatter())
