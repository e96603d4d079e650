"""Which prompts are prepared as they come, and which on a thread of their own, so that they hold up no other."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from ...kit.api.engine import RequestPreparer
from ...kit.api.options import MediaRules
from ...kit.api.types import Conversation, EngineInfo, Generation, Message, Sampling, StructuredOutput
from ...kit.rows import each_row

SHORT = Generation(request_id="r", prompt="one two")
CHAT = Conversation(messages=(Message("user", "one two"), Message("assistant", "three")))
LONG = "one " * 2000
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}


class _Backend:
    """Knows on which thread it prepared."""

    def __init__(self) -> None:
        self.info = EngineInfo(engine="e", version="0", context=256)
        self.thread: threading.Thread | None = None

    def prepare(self, number: int, generation: Generation, images: Any = ()) -> int:
        self.thread = threading.current_thread()
        return number


def _of(prompt: Any = "one two", **sampling: Any) -> Generation:
    return msgspec.structs.replace(SHORT, prompt=prompt, sampling=Sampling(**sampling))


@each_row(
    ("generation", "at_once"),
    [
        (SHORT, True),
        (_of((5, 6, 7)), True),
        (_of(CHAT), True),
        (_of(LONG), False),
        (_of((5,) * 5000), False),
        (_of(Conversation(messages=(Message("user", LONG),))), False),
        (_of(Conversation(messages=(Message("user", "a"),) * 100)), False),
        (_of(Conversation(messages=({"role": "user", "content": "a"},))), False),
        (_of(msgspec.structs.replace(CHAT, tools=(TOOL,))), False),
        (_of(msgspec.structs.replace(CHAT, chat_template="{{ messages }}")), False),
        (_of(msgspec.structs.replace(CHAT, template_arguments={"a": 1})), False),
        (_of(n=2), False),
        (_of(structured_output=StructuredOutput(regex="a+")), False),
    ],
)
def test_threads(generation: Generation, at_once: bool) -> None:
    backend, done = _Backend(), threading.Event()
    shape: Any = backend

    def ready(*_: Any) -> None:
        done.set()

    RequestPreparer(shape, MediaRules(), 0.0, ready, ready, ready).take(1, generation)
    assert done.is_set() or not at_once
    assert done.wait(30)
    assert (backend.thread is threading.current_thread()) == at_once
