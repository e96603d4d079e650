"""Filters of the log's handlers: which lines pass, and with what text.

Tidy        breaks up what DJL would take for its own, takes out control characters, and formats exceptions by `trace`
Withheld    lets only warnings of libraries through, without what may be a client's
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping

from .log import FORM, JsonFormatter, content_is_shown, text_of, trace
from .vllm_messages import START_FAILED, START_MEMORY

__all__ = ["Tidy", "Withheld", "configure", "tidy", "withhold", "withhold_in_children"]

# DJL reads its worker's output (PyProcess.ReaderThread): the first of these makes a metric of what follows, which with
# a client's words could be any; the second marks the worker as started; a line with the third is dropped.
_ODD = re.compile(
    r"\[METRICS\]|Python engine started\.|ModelServerTelemetry:|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)


def tidy(text: str) -> str:
    """`text` without control characters, and without what the host would take for its own."""
    return _ODD.sub(lambda found: found[0][0] + "_" + found[0][1:] if len(found[0]) > 1 else "?", text)


class Tidy(logging.Filter):
    """Tidies lines, ours or everybody's, and formats our exceptions by `trace`."""

    def __init__(self, *, everybody: bool) -> None:
        super().__init__()
        self._everybody = everybody

    def filter(self, record: logging.LogRecord) -> bool:
        ours = _top(record) in OURS
        if ours:
            _trace_exception(record, shown=content_is_shown())
        if ours or self._everybody:
            text = text_of(record)
            if (tidied := tidy(text)) != text:
                record.msg, record.args = tidied, None
        return True


OURS = {"lmi", "__main__"}
STATS = "vllm.v1.metrics.loggers"
"""vLLM's logger of what it computes and how busy it is, in numbers: where it logs, the owner has asked for it."""


def _top(record: logging.LogRecord) -> str:
    return record.name.partition(".")[0]


def _trace_exception(record: logging.LogRecord, *, shown: bool) -> None:
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = tidy(trace(record.exc_info[1], shown=shown))
        record.exc_info = None


class Withheld(logging.Filter):
    """Of the lines of others, those in `loggers` or all, lets warnings and worse through, without what may be a
    client's.

    Of a line with arguments, those that are no numbers are taken out; of an exception, what it says. A line without
    arguments may have been put together of anything, so only the function that logged it is named.
    """

    def __init__(self, loggers: Collection[str] = ()) -> None:
        super().__init__()
        self._loggers = loggers

    def filter(self, record: logging.LogRecord) -> bool:
        if self._passes(record):
            return True
        if record.levelno < logging.WARNING:
            return False
        _trace_exception(record, shown=False)
        if record.args:
            record.msg, record.args = _numbers_only(record.msg, record.args), None
        else:
            record.msg = f"({record.funcName}: message withheld: see option.log_requests)"
        return True

    def _passes(self, record: logging.LogRecord) -> bool:
        top = _top(record)
        known = top in OURS or record.name == STATS
        return content_is_shown() or known or bool(self._loggers and top not in self._loggers)


class WithheldInChildren(Withheld):
    """The same in processes that are forked from this one, except that the reason why one did not start is logged, and
    what memory it took."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = os.getpid()

    def _passes(self, record: logging.LogRecord) -> bool:
        return os.getpid() == self._parent or record.msg in START_FAILED | START_MEMORY


def _numbers_only(form: object, arguments: tuple[object, ...] | Mapping[str, object]) -> str:
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


def withhold(loggers: Collection[str] = ()) -> None:
    """Lets `Withheld` look at what every handler gets that there is now; of all loggers, and of these only."""
    _filter(Withheld(loggers))
    _filter(Tidy(everybody=True))


def withhold_in_children() -> None:
    """Does the same for processes that will be forked from this one. One that is spawned is not reached."""
    _filter(WithheldInChildren())


def _filter(added: logging.Filter) -> None:
    known = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for logger in known:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            handler.addFilter(added)


def configure(*, own_process: bool) -> None:
    """Sets up this process' log by LMI_LOG_LEVEL and LMI_LOG_FORMAT (`json`).

    Without `own_process` (DJL's worker) the host has set it up: only lines of ours are tidied, and the form is changed
    where it is to be JSON.
    """
    if own_process:
        logging.basicConfig(level=os.environ.get("LMI_LOG_LEVEL", "INFO").upper(), format=FORM)
    as_json = os.environ.get("LMI_LOG_FORMAT", "").lower() == "json"
    for handler in logging.getLogger().handlers:
        handler.addFilter(Tidy(everybody=False))
        if as_json:
            handler.setFormatter(JsonFormatter())
