"""The engine's process: `python -m lmi.model.process.engine_main FD`, FD being one end of a socket pair
(model/process/client.py).

    Start --> load_backend --> Ready --> engine_loop.py, until the host goes away or the engine fails --> EngineFailed

The process takes with it what the backend has started. While it has work, and makes steps, it sends a message every
second: the host notices when none comes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from ..adapters.adapter import Adapter
from ..backend import AsyncBackend, Backend, load_backend, start_part
from ..errors import ErrorMessage, OptionError, StartError
from ..heap import freeze
from ..log import cause, show_content
from ..log_filters import configure, withhold
from ..options import Settings
from ..options.model_dir import check_model
from .channel import Channel
from .ending.crash_report import crash_at_once, crash_at_once_too
from .ending.exit import closing, end_now, terminated, watch_host
from .ending.exit_report import report_exit_to, shutting_down
from .ending.start_errors import start_error
from .engine_loop import EngineLoop
from .messages import EngineFailed, Ready, Start, ToEngine

__all__ = ["main"]

log = logging.getLogger(__name__)


def main() -> None:
    """Runs the engine's process to its end."""
    configure(own_process=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A background process of a terminal's session (child.py), which may not be stopped for what it logs (stty tostop).
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminated)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    channel: Channel[ToEngine] = Channel(sock, ToEngine)
    start = channel.receive()
    if not isinstance(start, Start):
        return
    watch_host(sock)
    report_exit_to(lambda cause: channel.send_last(EngineFailed("GenerationError", cause)))
    try:
        if start.settings.parallel.follows:
            _follow(channel, start.settings)
        else:
            _run(_serve(channel, start.settings, start.adapters))
    except OSError:
        log.info("the host is gone")
    finally:
        closing.set()
        shutting_down.set()
        for stream in (sys.stdout, sys.stderr):
            # The host may be gone, and with it whoever reads them.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        end_now()


async def _serve(channel: Channel[ToEngine], settings: Settings, adapters: Sequence[Adapter]) -> None:
    """From the engine's start to its end."""
    backend: Backend | AsyncBackend | None = None
    try:
        try:
            # Before an engine's library is imported, which takes its time.
            check_model(settings)
            backend = load_backend(settings)
            max_tokens = settings.limits.max_tokens_in_flight
            loop = EngineLoop(channel, backend, settings.media, max_tokens, settings.engine_stall_timeout)
            if settings.adapters.enable_lora and getattr(backend, "adapters", None) is None:
                raise OptionError.of("enable_lora", f"{settings.backend} has no adapters")
            faults = await loop.begin(adapters)
            # Whatever the engine: a guide may load xgrammar later.
            crash_at_once()
        except Exception as error:  # noqa: BLE001 - told, and logged
            _tell_failure(channel, error, settings)
            return
        # From here on there are requests.
        show_content(settings.log_requests == "true")
        withhold()
        channel.post(Ready(backend.info, {key: ErrorMessage.of(error) for key, error in faults.items()}))
        freeze()
        try:
            await loop.run()
        except Exception as error:
            log.exception("the engine failed")
            # It cannot be closed in the ordinary way any more.
            backend = None
            channel.send_last(EngineFailed("GenerationError", f"the engine failed: {cause(error)}"))
    finally:
        closing.set()
        shutting_down.set()
        if backend is not None:
            timer = threading.Timer(5.0, end_now)
            timer.daemon = True
            timer.start()
            with contextlib.suppress(Exception):
                backend.close()


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Runs the engine on an event loop; uvloop's, which vLLM's own packages bring, takes less time for each step."""
    loops = importlib.import_module("uvloop" if importlib.util.find_spec("uvloop") else "asyncio")
    loops.run(serving)


def _follow(channel: Channel[ToEngine], settings: Settings) -> None:
    """This host's part of an engine whose core is on another one: no requests come here."""
    try:
        check_model(settings)
        info = start_part(settings)
    except Exception as error:  # noqa: BLE001 - told, and logged
        _tell_failure(channel, error, settings)
        return
    withhold()
    channel.post(Ready(info))
    # `watch_host` ends this process with its host, the watch over vLLM's processes with any of these.
    threading.Event().wait()


def _tell_failure(channel: Channel[ToEngine], error: Exception, settings: Settings) -> None:
    """Tells the host why the engine could not start."""
    if not isinstance(error, StartError):
        log.error("the engine could not start", exc_info=error)
    channel.send_last(EngineFailed.of(start_error(error, settings)))


if __name__ == "__main__":
    try:
        main()
    finally:
        end_now()
elif __name__ == "__mp_main__":
    # vLLM's core or one of its workers, spawned: multiprocessing imports its parent's main module first.
    crash_at_once_too()
