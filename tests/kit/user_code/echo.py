"""A user's engine in one file: it says what it was asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lmi.handler.api import (
    Conversation,
    Delta,
    EngineInfo,
    EngineStats,
    Event,
    Finish,
    Generation,
    Image,
    ParameterError,
    Settings,
    Started,
    Token,
    template_messages,
)

Prepared = tuple[int, Generation, str]

# With this, which an engine's process imports (crash_report.py), comes torch: three seconds of each start.
sys.modules.setdefault("tvm_ffi", None)  # type: ignore[arg-type]


class Echo:
    """A Backend (lmi/model/backend.py)."""

    def __init__(self, settings: Settings) -> None:
        self.info = EngineInfo(engine="echo", version="1", context=100)
        self._running: dict[int, Prepared] = {}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def stats(self) -> EngineStats:
        return EngineStats(running=len(self._running))

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Prepared:
        prompt = generation.prompt
        text = str(template_messages(prompt.messages)[-1]["content"] if isinstance(prompt, Conversation) else prompt)
        if len(text) > self.info.context:
            raise ParameterError("prompt: too long to be said again", "prompt")
        return number, generation, text

    def tokens(self, prepared: Prepared) -> int:
        return 2

    def prompt_text(self, prepared: Prepared) -> str:
        return prepared[2]

    def add(self, prepared: Prepared) -> None:
        self._running[prepared[0]] = prepared

    def abort(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._running.pop(number, None)

    def step(self) -> list[tuple[int, Event]]:
        events: list[tuple[int, Event]] = []
        for number, generation, text in self._running.values():
            events.append((number, Started(1)))
            count = generation.sampling.n
            for index in range(count):
                end = Finish("eos", generated_tokens=1, last=index == count - 1)
                tokens = (Token(1, text, -1.0),) if generation.tokens else ()
                events.append((number, Delta(index, text, tokens, end)))
        self._running.clear()
        return events

    def close(self) -> None:
        self._running.clear()
