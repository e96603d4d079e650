"""Which prompts are prepared as they come, and which on a thread of their own, so that they hold up no other."""

from __future__ import annotations

import queue
import threading
from typing import Any

import msgspec

from ...kit.api.conversation import Media
from ...kit.api.engine import RequestPreparer
from ...kit.api.errors import RequestError
from ...kit.api.options import MediaRules
from ...kit.api.types import Conversation, EngineInfo, Generation, Message, Sampling, StructuredOutput
from ...kit.rows import each_row

SHORT = Generation(request_id="r", prompt="one two")
CHAT = Conversation(messages=(Message("user", "one two"), Message("assistant", "three")))
LONG = "one " * 2000
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
OTHER_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "g", "parameters": {}, "strict": True}}


class _Backend:
    """Knows on which thread it prepared."""

    def __init__(self) -> None:
        self.info = EngineInfo(engine="e", version="0", context=256)
        self.thread: threading.Thread | None = None
        self.files: Any = ()

    def knows(self, conversation: Conversation) -> bool:
        return OTHER_TOOL not in conversation.tools

    def prepare(self, number: int, generation: Generation, images: Any = ()) -> int:
        self.thread, self.files = threading.current_thread(), images
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
        (_of(msgspec.structs.replace(CHAT, tools=(TOOL,))), True),
        (_of(msgspec.structs.replace(CHAT, tools=(OTHER_TOOL,))), False),
        (_of(msgspec.structs.replace(CHAT, tools=(TOOL,) * 100)), False),
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


def media(kind: Any, url: str) -> Conversation:
    return Conversation(messages=(Message("user", (Media(kind, url),)),))


@each_row(
    ("prompt", "limits", "data", "frames"),
    [
        (media("audio", "data:audio/wav;base64,AAAA"), {"audio": 1}, bytes(3), False),
        (media("video", "data:video/mp4;base64,AAAA"), {"video": 1}, bytes(3), False),
        # Frames that the client has picked, and tensors, are read where they are decoded.
        (media("video", "data:video/JPEG;base64,AAAA,AAAA"), {"video": 1}, b"AAAA,AAAA", True),
        (media("image_embeds", "AAAA"), {"image_embeds": 1}, b"AAAA", False),
        (media("image_embeds", '{"a":"AAAA"}'), {"image_embeds": 1}, b'{"a":"AAAA"}', False),
    ],
)
def test_what_is_handed_on(prompt: Conversation, limits: dict[str, int], data: bytes, frames: bool) -> None:
    backend, told = _Backend(), queue.SimpleQueue[Any]()
    backend.info = msgspec.structs.replace(backend.info, **limits)
    shape: Any = backend

    def ready(*arguments: Any) -> None:
        told.put(arguments)

    preparer = RequestPreparer(shape, MediaRules(), 0.0, ready, ready, ready)
    preparer.take(1, _of(prompt))
    assert told.get(timeout=30) == (1, 1, None)
    (file,) = backend.files
    assert (file.data, file.frames) == (data, frames)
    assert not file.ended.is_set()
    # A model that takes none, and too much of it.
    for info, rules in (
        (EngineInfo(engine="e", version="0", context=256), MediaRules()),
        (backend.info, MediaRules(max_audio_bytes=2, max_video_bytes=2, max_bytes=2)),
    ):
        backend.info = info
        RequestPreparer(shape, rules, 0.0, ready, ready, ready).take(2, _of(prompt))
        number, error = told.get(timeout=30)
        assert number == 2
        assert isinstance(error, RequestError)
        assert str(error.param).startswith("prompt.messages[0].content[0]")


def test_a_request_that_is_dropped_has_ended() -> None:
    """What decodes its files ends."""
    backend = _Backend()
    begun, go_on = threading.Event(), threading.Event()

    def prepare(number: int, generation: Generation, images: Any = ()) -> int:
        backend.files = images
        begun.set()
        go_on.wait(30)
        return number

    backend.info = msgspec.structs.replace(backend.info, audio=1)
    shape: Any = backend
    shape.prepare = prepare
    told: list[Any] = []
    preparer = RequestPreparer(shape, MediaRules(), 0.0, *(lambda *it: told.append(it),) * 3)
    preparer.take(1, _of(media("audio", "data:audio/wav;base64,AAAA")))
    assert begun.wait(30)
    preparer.drop([1])
    assert backend.files[0].ended.is_set()
    go_on.set()
