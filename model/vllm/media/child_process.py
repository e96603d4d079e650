"""Decoding in child processes, one for each audio or video: forked from a process that has vLLM imported already.

Decoders.decode(Job, bytes) --fork server--> decoding.py --pipe--> samples or frames
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from ...media.url_policy import MediaError
from ...options.media_rules import MediaRules
from . import decoding
from .decoding import Job

__all__ = ["Decoders"]

PRELOADED = f"{__package__}.preloaded"
POLL_INTERVAL_S = 0.25
"""Seconds between two looks whether anybody still waits for a file."""
WARM = 60.0
"""Seconds that a first file waits for the process from which the others are forked: it imports vLLM."""


def _main_module() -> list[str]:
    """The module that this process runs, which each process that is forked would import first."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return [] if spec is None or spec.name.endswith("__main__") else [spec.name]


class Decoders:
    """May be used by several threads at once."""

    def __init__(self, rules: MediaRules) -> None:
        self._memory = rules.media_decode_memory
        self._seconds = rules.media_decode_timeout
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED, *_main_module()])
        self._warming = threading.Lock()
        self._warm = False

    def warm_up(self) -> None:
        """Has the process ready from which the others are forked, which takes seconds the first time."""
        with self._warming:
            if not self._warm:
                process = self._context.Process(target=decoding.warm_up, daemon=True)
                process.start()
                process.join(WARM)
                self._warm = True

    def decode(self, job: Job, data: bytes, ended: threading.Event | None = None) -> Any:
        """What vLLM makes of the file; raises MediaError, also once `ended` is set."""
        self.warm_up()
        ours, theirs = self._context.Pipe(duplex=False)
        limited = replace(job, memory=self._memory, seconds=self._seconds)
        process = self._context.Process(target=decoding.run, args=(theirs, limited, data), daemon=True)
        ends = time.monotonic() + self._seconds
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            while ended is None or not ended.is_set():
                if ours.poll(min(POLL_INTERVAL_S, max(0.0, ends - time.monotonic()))):
                    break
                if time.monotonic() >= ends:
                    limit = f"{self._seconds:g} seconds (option.media_decode_timeout)"
                    raise MediaError(f"the {job.kind} could not be decoded within {limit}")
            else:
                raise MediaError("its request has ended")
            decoded, reason = ours.recv()
        except (EOFError, OSError):
            raise MediaError(f"the {job.kind} cannot be decoded: what reads it has failed") from None
        finally:
            ours.close()
            process.kill()
            process.join()
        if reason is not None:
            raise MediaError(f"the {job.kind} cannot be decoded: {reason}")
        return decoded
