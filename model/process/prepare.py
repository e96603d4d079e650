"""Generations on their way to the backend, beside its steps: none holds up the engine, nor another for long.

    a short prompt -------> on the caller's thread: Backend.prepare --------------> ready
    no media -------------> preparers: Backend.prepare ---------------------------> ready
    data URLs ------------> decoders: check images' headers, Backend.prepare ----------> ready
    other URLs --> fetchers --all there--^

Of a prompt of which only the tokens are wanted (Generation.tokenize), Backend.tokenize tells them there instead.

Media are fetched and decoded here, in the engine's process or a child of it, and not in the host's: a decoder that a
hostile file brings down takes an engine with it at most, which is rebuilt, and never the worker; what is fetched need
not cross to this process; and only here is it known whether the model takes them at all. Fetching is
waiting and has many threads; preparing is work, and few threads keep few decoded media in memory at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ..backend import BackendBase, tokenized
from ..conversation import MediaKind
from ..errors import Fault, ParameterError, UnsupportedError
from ..events import Started
from ..generation import Conversation, Generation
from ..media.fetch import Fetcher
from ..media.images import check_image
from ..media.parts import (
    AUDIO,
    EMBEDS,
    FRAMES,
    WORDS,
    Budget,
    MediaFile,
    MediaPart,
    called,
    data_url_bytes,
    parts_of,
    without_media,
)
from ..media.url_policy import MediaError
from ..options.media_rules import MediaRules

__all__ = ["RequestPreparer"]

FETCHERS = 16
DECODERS = 4
"""Threads for what has media."""
PREPARERS = 2
"""Threads for what has none: behind a prompt that takes long there is another."""
SHORT = 4096
"""Characters or tokens of a prompt for which none of them is woken, which is a third of what a short request takes here
(docs/performance.md, Tried)."""
OVERHEAD = 64
"""What a message takes beside its text, in characters."""


class _Pending:
    """A generation that is being prepared."""

    def __init__(self, number: int, generation: Generation, parts: Sequence[MediaPart], rules: MediaRules) -> None:
        self.number = number
        self.generation = generation
        self.parts = parts
        images = Budget(rules.max_bytes, "bytes", "max_image_bytes")
        self.bytes: dict[MediaKind, Budget] = {
            "image": images,
            EMBEDS: images,
            "audio": Budget(rules.max_audio_bytes, "bytes", "max_audio_bytes", "audio"),
            "video": Budget(rules.max_video_bytes, "bytes", "max_video_bytes", "video"),
        }
        self.pixels = Budget(rules.max_pixels, "pixels", "max_image_pixels")
        self.fetched: dict[int, bytes] = {}
        self.missing = sum(not part.is_there for part in parts)
        self.ended = threading.Event()
        """It has been aborted or refused: what still arrives is dropped."""


class RequestPreparer:
    """Prepares generations; calls `ready` or `refuse` for each, by number, on any thread.

    `ready` gets what was prepared, and of a generation that is to be held back its prompt's text; `tell` the tokens of
    one that wants nothing else. `stall_timeout` is Settings.engine_stall_timeout, in seconds; 0: none.
    """

    def __init__(
        self,
        backend: BackendBase,
        rules: MediaRules,
        stall_timeout: float,
        ready: Callable[[int, Any, str | None], None],
        tell: Callable[[int, Started], None],
        refuse: Callable[[int, BaseException], None],
    ) -> None:
        self._backend = backend
        self._knows: Callable[[Conversation], bool] | None = getattr(backend, "knows", None)
        self._rules = rules
        self._ready = ready
        self._tell = tell
        self._refuse = refuse
        self._fetcher = Fetcher(rules)
        self._fetchers = ThreadPoolExecutor(FETCHERS, "lmi-fetch")
        self._decoders = ThreadPoolExecutor(DECODERS, "lmi-decode")
        self._preparers = ThreadPoolExecutor(PREPARERS, "lmi-prepare")
        # All of them now, so that a process that has served has no more threads than one that has not.
        begun = threading.Barrier(PREPARERS)
        for _ in range(PREPARERS):
            self._preparers.submit(begun.wait)
        self._stall_timeout = stall_timeout
        self._begun: dict[int, float] = {}
        """When the preparation of what has no media began."""
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()

    def take(self, number: int, generation: Generation) -> None:
        """Prepares a generation, or has it prepared on another thread. Raises nothing that a request can cause."""
        try:
            prompt = generation.prompt
            self._check_task(generation)
            parts = parts_of(generation)
            if parts and isinstance(prompt, Conversation) and self._rules.unreadable_parts == "text":
                kinds: set[MediaKind] = {part.kind for part in parts if not self._backend.info.limit(part.kind)}
                if kinds:
                    generation = replace(generation, prompt=without_media(prompt, kinds))
                    parts = [part for part in parts if part.kind not in kinds]
            if parts:
                self._admit(parts)
            short = not parts and self._is_short(generation)
        except BaseException as error:  # noqa: BLE001 - becomes the generation's error; libraries in Rust panic with one
            self._refuse(number, error)
            return
        pending = _Pending(number, generation, parts, self._rules)
        self._pending[number] = pending
        # Where the system has no thread left, that too is this generation's failure alone.
        self._run_step(pending, self._prepare_text if short else self._submit_steps)

    def alive(self) -> bool:
        """Whether prompts are still being prepared: one whose preparation never ends would block later ones."""
        since = min(self._begun.copy().values(), default=None)
        return since is None or not self._stall_timeout or time.monotonic() - since < self._stall_timeout

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets generations that are not prepared yet; `ready` is not called for them any more."""
        with self._lock:
            for number in numbers:
                if (pending := self._pending.pop(number, None)) is not None:
                    pending.ended.set()

    def _is_short(self, generation: Generation) -> bool:
        """Whether it is prepared in well under a millisecond: a short prompt, and no new schema or template of the
        client's.
        """
        prompt, sampling = generation.prompt, generation.sampling
        if sampling.n > 1 or sampling.structured_output is not None or generation.scoring is not None:
            return False
        if not isinstance(prompt, Conversation):
            return len(prompt) <= SHORT
        if prompt.chat_template is not None or prompt.template_arguments:
            return False
        size = 0
        if prompt.tools:
            # Their schemas may be a guide, which takes seconds.
            if self._knows is None or not self._knows(prompt):
                return False
            size = len(msgspec.msgpack.encode(prompt.tools))
        for message in prompt.messages:
            if isinstance(message, dict) or not isinstance(message.content, str) or message.calls:
                return False
            size += OVERHEAD + len(message.content) + len(message.reasoning)
        return size <= SHORT

    def _check_task(self, generation: Generation) -> None:
        """Raises UnsupportedError for what the model does not do."""
        info = self._backend.info
        if generation.transcription is not None:
            if not info.transcribes:
                raise UnsupportedError("this model does not transcribe audio", AUDIO)
        elif not (info.answers or generation.tokenize):
            raise UnsupportedError(
                "this model transcribes audio (/v1/audio/transcriptions) and answers no prompts", "prompt"
            )

    def _admit(self, parts: Sequence[MediaPart]) -> None:
        """Raises where the model does not take so many of a kind."""
        for kind, word in WORDS.items():
            found = [part.place for part in parts if part.kind == kind]
            limit = self._backend.info.limit(kind)
            if found and not limit:
                allowed = " without option.enable_mm_embeds" if kind == EMBEDS else ""
                expected = f"'text' (the model takes no {word}{allowed})"
                raise UnsupportedError.because(Fault(f"{found[0]}.type", expected=expected, given=called(kind)))
            if len(found) > limit:
                raise ParameterError(
                    f"{found[limit]}: expected at most {limit} {word} in a prompt (option.limit_mm_per_prompt, or the "
                    f"model's own limit), got {len(found)}",
                    found[limit],
                )

    def _submit_steps(self, pending: _Pending) -> None:
        if not pending.parts:
            self._preparers.submit(self._run_step, pending, self._prepare_text)
        elif not pending.missing:
            self._decoders.submit(self._run_step, pending, self._prepare)
        for index, part in enumerate(pending.parts):
            if not part.is_there:
                self._fetchers.submit(self._run_step, pending, self._fetch, index)

    def _run_step(self, pending: _Pending, step: Callable[..., None], *arguments: Any) -> None:
        """A step on a thread of a pool; its failure ends this generation alone."""
        if pending.ended.is_set():
            return
        try:
            step(pending, *arguments)
        except BaseException as error:  # noqa: BLE001 - as in `take`
            with self._lock:
                pending_still = self._pending.pop(pending.number, None) is not None
                pending.ended.set()
            if pending_still:
                self._refuse(pending.number, error)

    def _fetch(self, pending: _Pending, index: int) -> None:
        part = pending.parts[index]
        try:
            data = self._fetcher.fetch(part.url, pending.bytes[part.kind].take, pending.ended, part.kind)
        except MediaError as error:
            raise ParameterError.because(Fault(part.field, f"{error}")) from error
        with self._lock:
            pending.fetched[index] = data
            pending.missing -= 1
            complete = not pending.missing
        if complete:
            self._decoders.submit(self._run_step, pending, self._prepare)

    def _prepare_text(self, pending: _Pending) -> None:
        self._begun[pending.number] = time.monotonic()
        try:
            self._finish(pending, ())
        finally:
            del self._begun[pending.number]

    def _prepare(self, pending: _Pending) -> None:
        files = [
            MediaFile(_bytes(pending, index, part), part.field, part.kind, part.is_frames, pending.ended)
            for index, part in enumerate(pending.parts)
        ]
        for file in files:
            if file.kind == "image":
                check_image(file, pending.pixels)
        self._finish(pending, files)

    def _finish(self, pending: _Pending, media: Sequence[MediaFile]) -> None:
        number, generation = pending.number, pending.generation
        hand_over: Callable[[], None]
        if generation.tokenize:
            hand_over = partial(self._tell, number, tokenized(self._backend, generation, media))
        else:
            prepared = self._backend.prepare(number, generation, media)
            prompt = self._backend.prompt_text(prepared) if generation.held else None
            hand_over = partial(self._ready, number, prepared, prompt)
        with self._lock:
            # Under the lock, so that whoever drops it afterwards knows that it has been handed over.
            if self._pending.pop(number, None) is not None:
                hand_over()


def _bytes(pending: _Pending, index: int, part: MediaPart) -> bytes:
    if index in pending.fetched:
        return pending.fetched[index]
    budget = pending.bytes[part.kind]
    try:
        if part.data:
            budget.take(len(part.data))
            return part.data
        if part.kind == EMBEDS or part.is_frames:
            text = part.url[len(FRAMES) :] if part.is_frames else part.url
            budget.take(len(text) // 4 * 3)
            return text.encode()
        return data_url_bytes(part.url, budget, part.kind)
    except MediaError as error:
        raise ParameterError.because(Fault(part.field, f"{error}")) from None
