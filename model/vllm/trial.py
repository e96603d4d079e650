"""A token, run through a backend before it is ready: a vLLM whose API differs is told at start, by what failed."""

from __future__ import annotations

import contextlib

from ..engine import Backend
from ..errors import RequestError, StartError
from ..events import Event, Failed
from ..generation import Conversation, Generation, Sampling
from .internals import VERSIONS

__all__ = ["try_out"]


def try_out(backend: Backend) -> None:
    """Runs a token through prepare, add and step; raises StartError."""
    sampling = Sampling(max_tokens=1)
    events: list[tuple[int, Event]] = []
    try:
        with contextlib.suppress(RequestError):
            # There may be no chat template, or one that wants other messages.
            talk = Conversation(messages=({"role": "user", "content": "Hi"},))
            backend.prepare(0, Generation(request_id="start", prompt=talk, sampling=sampling))
        backend.add(backend.prepare(0, Generation(request_id="start", prompt=(0,), sampling=sampling)))
        while backend.busy:
            events += backend.step()
        for _, event in events:
            if isinstance(event, Failed):
                raise event.error
    except Exception as error:
        raise StartError(
            f"vLLM {backend.info.version} does not generate a token: {type(error).__name__}: {error}; "
            f"vLLM {VERSIONS} is supported"
        ) from error
