"""A worker ends with the host that started it.

DJL's part of the worker notices that its host is gone when it reads the next call. A call that still waits for the
engine, as those of dynamic batches do, would keep the model in memory until then.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time

__all__ = ["end_with_parent"]

log = logging.getLogger(__name__)

EXIT_TIMEOUT_S = 2.0
"""Seconds that the worker has to end by itself, which tidies up."""


def end_with_parent() -> None:
    """Ends this process soon after its parent has ended."""
    threading.Thread(target=_end_after, args=(os.getppid(),), name="lmi-parent", daemon=True).start()


def _end_after(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):
        # An older kernel, or a sandbox. Whoever lost its parent has another.
        while os.getppid() == parent:
            time.sleep(1)
    else:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll()
    log.warning("the host is gone: this worker ends")
    time.sleep(EXIT_TIMEOUT_S)
    os._exit(1)
