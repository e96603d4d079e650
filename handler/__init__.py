"""The hosts. `handle` is the entry point that DJL Serving calls: `option.entryPoint=lmi.handler`.

    rolling batch    Java calls handle again and again with every open request      rolling.py
    async            Java awaits handle once a request                              asynchronous.py
    local server     `lmi serve MODEL_DIR`                                          server.py

djl.py is the only module that uses DJL's Python package. Importing this package loads neither torch nor vLLM: DJL
allows a worker two minutes until it has started.
"""

from __future__ import annotations

from typing import Any

__all__ = ["handle"]


def handle(inputs: Any) -> Any:
    """Serves DJL's call with an Input: gives an Output where DJL calls it plainly, an awaitable where DJL runs an
    event loop (async mode).

    The first call has no content: its properties are the options, and the engine is started. Raises nothing that a
    request or an option can cause: errors are in what it returns.
    """
    global _worker
    if _worker is None:
        from ..model.startup import mark

        # Until here djl_python has come by itself, and has waited for Java.
        mark("djl_python")
        from .djl import worker

        _worker = worker()
    return _worker.handle(inputs)


_worker: Any = None
"""What `handle` passes its calls on to: a djl.Worker."""
