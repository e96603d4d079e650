"""The hosts. `handle` is the entry point that DJL Serving calls: `option.entryPoint=lmi.handler`.

service.py        what all hosts share: a request in, an exchange with the engine out
opening.py        what becomes of a request: an exchange; preparing.py: pages, sessions, CANCEL, model.py's handle
exchange.py       one request on its way: events in, records out; states.py: its states; unsent.py: how much may wait
admission.py      what is taken on, and for how long
control.py        requests about sessions and about other requests: `requestType`, CANCEL
headers.py        HTTP headers and custom attributes, in and out
model_code.py     which code a model directory brings, before any of it runs
response_store.py responses that are kept in memory
file_lock.py      a lock between processes
secure_mode.py    what SageMaker's secure mode forbids
api.py            what user code imports
threads/          exchanges whose work runs on threads: user code, large bodies, sessions
adapters/         LoRA adapters: which are registered
sessions/         stateful sessions
djl/              behind DJL Serving: rolling batch, async mode, dynamic batch
server/           the local server, `lmi serve MODEL_DIR`
telemetry/        metrics and the log's lines about requests
scraping/         the metrics, for Prometheus
user_code/        model.py, formatters, dialects and content filters of users
commands/         the command `lmi`

Importing this package loads neither torch nor vLLM: DJL allows a worker two minutes until it has started.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

__all__ = ["handle", "register_adapter", "unregister_adapter", "update_adapter"]


def handle(inputs: Any) -> Any:
    """Serves DJL's call with an Input: gives an Output where DJL calls it plainly, an awaitable where DJL runs an
    event loop (async mode).

    The first call has no content: its properties are the options, and the engine is started. Raises nothing that a
    request or an option can cause: errors are in what it returns.

    Where model.py's own `handle` calls it, which is asked first (user_code/custom_handler.py), it gives None: what that
    one returns for requests that are to be served.
    """
    return _nothing() if calls_custom_handler.get() else _the_worker().handle(inputs)


calls_custom_handler: ContextVar[bool] = ContextVar("calls_custom_handler", default=False)
"""Whether this is within a call of model.py's own `handle`."""


def _nothing() -> Any:
    """None, for whoever waits for it too."""
    try:
        nothing = asyncio.get_running_loop().create_future()
    except RuntimeError:
        return None
    nothing.set_result(None)
    return nothing


def register_adapter(inputs: Any) -> Any:
    """Registers the LoRA adapter that an Input of DJL's describes (handler/djl/adapters.py); answers as `handle`."""
    return _the_worker().adapter_call(inputs)


def update_adapter(inputs: Any) -> Any:
    """Changes whether an adapter is preloaded or pinned; answers as `handle`."""
    return _the_worker().adapter_call(inputs)


def unregister_adapter(inputs: Any) -> Any:
    """Ends an adapter; answers as `handle`."""
    return _the_worker().adapter_call(inputs)


def _the_worker() -> Any:
    global _worker
    if _worker is None:
        from .djl.worker import worker

        _worker = worker()
    return _worker


_worker: Any = None
"""What `handle` passes its calls on to: a djl.Worker."""
