"""A token, run through a backend before it is ready: a vLLM whose API differs is told at start, by what failed."""

from __future__ import annotations

from ..backend import AsyncBackend
from ..errors import RequestError, StartError
from ..events import Event, Failed
from ..generation import Conversation, Generation, Sampling
from .internals import VERSIONS

__all__ = ["try_out"]

PROMPT = (0,)
"""The one token that every model has."""


async def try_out(backend: AsyncBackend, pooled: Generation | None = None) -> None:
    """Runs a token through prepare, add and receive, or what a model is to pool; raises StartError."""
    # With its log-probability, which is read from the core's bytes (core_outputs.py).
    sampling = Sampling(max_tokens=1, logprobs=0)
    one = pooled or Generation(request_id="start", prompt=PROMPT, sampling=sampling)
    events: list[tuple[int, Event]] = []
    try:
        if pooled is None:
            _try_conversation(backend)
        backend.add(0, backend.prepare(0, one))
        while backend.busy:
            events += await backend.receive()
        for _, event in events:
            if isinstance(event, Failed):
                raise event.error
    except Exception as error:
        raise StartError(
            f"vLLM {backend.info.version} does not process a token: {type(error).__name__}: {error}; "
            f"vLLM {VERSIONS} is supported"
        ) from error


def _try_conversation(backend: AsyncBackend) -> None:
    """There may be no chat template, or one that wants other messages: that it refuses these is no fault.

    A TypeError from elsewhere is: vLLM turns whatever transformers raises into a fault of the request's.
    """
    talk = Conversation(messages=({"role": "user", "content": "Hi"},))
    try:
        backend.prepare(0, Generation(request_id="start", prompt=talk, sampling=Sampling(max_tokens=1)))
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
