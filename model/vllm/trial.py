"""Some tokens, run through a backend before it is ready: a vLLM whose API differs is told at start, by what failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..backend import AsyncBackend
from ..errors import RequestError, StartError
from ..events import EngineEvent, Failed
from ..generation import Conversation, Generation, Sampling, StructuredOutput
from .library.version import VERSIONS

__all__ = ["try_out"]

log = logging.getLogger(__name__)

START = "start"
"""The id of the requests that a start makes."""
PROMPT = (0, 0)
"""A token that every model has, twice: the first one has no log-probability."""

TRIALS = {
    "a request": Sampling(max_tokens=1),
    # They are read from the core's bytes (core_outputs.py).
    "log-probabilities": Sampling(max_tokens=1, logprobs=2, prompt_logprobs=2),
    "a stop string": Sampling(max_tokens=2, stop=("\n\n\n",)),
    "structured output": Sampling(max_tokens=1, structured_output=StructuredOutput(regex="[0-9a-zA-Z ]+")),
}
"""One of each way through vLLM. That the model or an option refuses one is no fault."""


async def try_out(
    backend: AsyncBackend, pooled: Generation | None = None, transcribed: Callable[[int, str], Any] | None = None
) -> None:
    """Runs some tokens through prepare, add and receive, or what a model is to pool; raises StartError.

    `transcribed` prepares audio for a model that writes it down, by its number and its request's id.
    """
    asked = {"a request": pooled} if pooled else {}
    if pooled is None and backend.info.answers:
        asked = {name: Generation(request_id=START, prompt=PROMPT, sampling=one) for name, one in TRIALS.items()}
        with _failing(backend, "a conversation"):
            _try_conversation(backend)
    for number, (what, one) in enumerate(asked.items()):
        with _failing(backend, what, refusable=number > 0):
            await _run(backend, number, backend.prepare(number, one))
    if transcribed is not None:
        with _failing(backend, "audio"):
            await _run(backend, len(asked), transcribed(len(asked), START))


@contextmanager
def _failing(backend: AsyncBackend, what: str, *, refusable: bool = False) -> Iterator[None]:
    """Turns what is raised into a StartError, unless the model or an option may refuse it."""
    try:
        yield
    except Exception as error:
        if refusable and isinstance(error, RequestError):
            log.info("%s: not taken at start: %s", what, error.message)
            return
        raise StartError(
            f"vLLM {backend.info.version} cannot process {what}: {type(error).__name__}: {error}; "
            f"{VERSIONS} is supported"
        ) from error


async def _run(backend: AsyncBackend, number: int, prepared: Any) -> None:
    backend.add(number, prepared)
    events: list[tuple[int, EngineEvent]] = []
    while backend.busy:
        events += await backend.receive()
    for _, event in events:
        if isinstance(event, Failed):
            raise event.error


def _try_conversation(backend: AsyncBackend) -> None:
    """There may be no chat template, or one that wants other messages: that it refuses these is no fault.

    A TypeError from elsewhere is: vLLM turns whatever transformers raises into a fault of the request's.
    """
    talk = Conversation(messages=({"role": "user", "content": "Hi"},))
    try:
        backend.prepare(0, Generation(request_id=START, prompt=talk, sampling=Sampling(max_tokens=1)))
    except RequestError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, TypeError) and not _in_template(cause):
            raise


def _in_template(error: BaseException) -> bool:
    """Whether a template raised it, or what was called from there (Jinja's debug.py names its frames so)."""
    trace = error.__traceback__
    while trace is not None:
        if not {"__jinja_template__", "__jinja_exception__"}.isdisjoint(trace.tb_frame.f_globals):
            return True
        trace = trace.tb_next
    return False
