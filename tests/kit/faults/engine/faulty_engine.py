"""An engine that fails where it is told to: by the prompt, and at start by the file that LMI_TEST_STARTS names.

Each start takes the first line of that file, and does what it says; without a line it is up at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmi.model.engine import EngineInfo, EngineStats
from lmi.model.errors import MemoryShortError
from lmi.model.events import Delta, Event, Finish, Started, Token
from lmi.model.generation import Generation
from lmi.model.media.parts import MediaFile
from lmi.model.options import Settings

FOREVER = 3600.0

STEPS = {"many tokens": 50, "fault in stats": 300, "odd stats": 300}
"""Before the answer to these prompts; how busy the engine is is asked for once a second."""
WRONG = {"cannot be encoded": object(), "cannot be decoded": 5}
"""What comes in place of text, by prompt, again and again until it is aborted."""


class Panic(BaseException):
    """What a library in Rust raises where it panics (PyO3's PanicException)."""


def next_start() -> str:
    """What this start is to do."""
    file = Path(os.environ.get("LMI_TEST_STARTS", "/nowhere"))
    if not file.exists():
        return ""
    first, _, rest = file.read_text().partition("\n")
    file.write_text(rest)
    return first


class FaultyEngine:
    """A Backend (model/backend.py)."""

    def __init__(self, settings: Settings) -> None:
        del settings
        what, _, argument = next_start().partition(" ")
        if what == "fail":
            raise ValueError(argument)
        if what == "short":
            raise MemoryShortError(argument)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleep":
            time.sleep(float(argument))
        self.info = EngineInfo(engine="faulty", version="1", context=1000)
        self._running: dict[int, str] = {}
        self._steps: dict[int, int] = {}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def stats(self) -> EngineStats:
        """How busy it is; fails where a prompt says so."""
        if "fault in stats" in self._running.values():
            raise RuntimeError("a fault in stats")
        if "odd stats" in self._running.values():
            odd: Any = object()
            return EngineStats(running=odd)
        return EngineStats(running=len(self._running))

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> tuple[int, str]:
        """Fails where the prompt says so."""
        del images
        prompt = str(generation.prompt)
        if prompt == "no memory in prepare":
            raise MemoryError
        if prompt.startswith("fault in prepare"):
            raise RuntimeError(prompt)
        if prompt == "panic in prepare":
            raise Panic("a panic")
        if prompt == "stuck in prepare":
            time.sleep(FOREVER)
        if prompt == "slow prepare":
            time.sleep(2)
        return number, prompt

    def prompt_text(self, prepared: tuple[int, str]) -> str:
        """As it came."""
        return prepared[1]

    def add(self, prepared: tuple[int, str]) -> None:
        """Fails where the prompt says so."""
        number, prompt = prepared
        if prompt == "no memory in add":
            raise MemoryError("no room for it")
        if prompt == "panic in add":
            raise Panic("a panic in add")
        if prompt == "fault in add":
            raise RuntimeError("a fault in add")
        self._running[number] = prompt

    def abort(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._running.pop(number, None)

    def step(self) -> list[tuple[int, Event]]:
        """Answers what is to be answered, and fails as prompts say."""
        time.sleep(0.005)
        events: list[tuple[int, Event]] = []
        for number, prompt in list(self._running.items()):
            if prompt == "no memory in step":
                raise MemoryError("out of memory: 1 TiB was asked for")
            if prompt == "stuck in step":
                time.sleep(FOREVER)
            if prompt == "crash in step":
                # As a fault of its own would: on this thread.
                signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)
            if prompt == "many steps that bring nothing":
                continue
            if prompt in WRONG:
                wrong: Any = WRONG[prompt]
                events.append((number, Delta(0, wrong)))
                continue
            if (step := self._steps.get(number, 0)) < STEPS.get(prompt, 0):
                self._steps[number] = step + 1
                events.append((number, Delta(0, f"{step} ")))
                continue
            if prompt == "endless":
                events.append((number, Delta(0, "more ", (Token(1, "more ", -1.0),))))
                continue
            del self._running[number]
            end = Finish("eos", generated_tokens=1)
            events += [(number, Started(1)), (number, Delta(0, "an answer", (Token(2, "an answer", -1.0),), end))]
        return events

    def close(self) -> None:
        """Nothing is held."""
