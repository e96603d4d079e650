"""Messages between the host's process and the engine's, over a socket pair (channel.py).

Everything that is new after a step goes in one message: one system call, one wake-up, whatever the number of sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..adapters.adapter import Adapter
from ..engine import EngineInfo, EngineStats
from ..errors import ErrorMessage, GenerationError
from ..events import EngineEvent, Failed
from ..generation import Generation
from ..options import Settings

__all__ = [
    "ENCODE_ERRORS",
    "Abort",
    "AdapterOutcome",
    "Add",
    "BadMessage",
    "EngineFailed",
    "FromEngine",
    "Gather",
    "Ready",
    "Release",
    "RemoveAdapter",
    "Scrape",
    "Scraped",
    "SetAdapter",
    "Start",
    "Stats",
    "Step",
    "ToEngine",
    "readable_step",
    "sendable",
]


class Start(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The first message: what to start, and the adapters that are registered."""

    settings: Settings
    adapters: tuple[Adapter, ...] = ()


class Add(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Start a generation."""

    number: int
    generation: Generation


class Release(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Start generations that are held back."""

    numbers: tuple[int, ...]


class Abort(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """End generations."""

    numbers: tuple[int, ...]


class Gather(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Have the text of streams gather (Engine.gather)."""

    seconds: float


class SetAdapter(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Register an adapter, or pin one that is registered. AdapterOutcome answers it."""

    adapter: Adapter


class RemoveAdapter(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Unload an adapter once the generations that were sent before this have ended."""

    key: str


class Scrape(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Tell the engine's own metrics, as this content type. Scraped answers it."""

    content_type: str


ToEngine = Start | Add | Release | Abort | Gather | SetAdapter | RemoveAdapter | Scrape


class BadMessage(NamedTuple):
    """A message that was received whole and cannot be decoded, which its sender did not check (msgspec checks only what
    it decodes).
    """

    number: int | None
    """Of the generation that it was to start."""
    request_id: str
    """Of that generation's request."""
    error: msgspec.DecodeError
    body: bytes


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The engine is up."""

    info: EngineInfo
    adapter_faults: dict[str, ErrorMessage] = {}
    """Of the adapters in Start those that could not be loaded, by key."""


class AdapterOutcome(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """What became of a SetAdapter, by key."""

    key: str
    fault: ErrorMessage | None = None


class EngineFailed(ErrorMessage, array_like=True, frozen=True, tag=True):
    """The engine could not start, or can go on no longer. The last message."""


class Step(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """What a step brought, by generation."""

    events: Sequence[tuple[int, EngineEvent]]


class Stats(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """How busy the engine is: about once a second while it has something to do, and once when it has no more."""

    stats: EngineStats


class Scraped(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The engine's own metrics; no text where it has none."""

    content_type: str
    text: bytes


FromEngine = Ready | EngineFailed | Step | Stats | AdapterOutcome | Scraped


class _RawStep(msgspec.Struct, array_like=True, frozen=True, tag="Step"):
    """A Step whose events are not decoded yet."""

    events: list[tuple[int, msgspec.Raw]]


_RAW_STEP = msgspec.msgpack.Decoder(_RawStep)
_EVENT: msgspec.msgpack.Decoder[EngineEvent] = msgspec.msgpack.Decoder(EngineEvent)

ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoding a message raises: a value of another type, a number of more than 64 bits, half a surrogate pair."""


def readable_step(message: BadMessage) -> tuple[Step, list[int]] | None:
    """A step in which some events cannot be decoded, with failures in their places, and the generations that these end.

    None where it is no step, or one of which nobody knows whose its events are.
    """
    try:
        raw = _RAW_STEP.decode(message.body)
    except msgspec.DecodeError:
        return None
    events: list[tuple[int, EngineEvent]] = []
    failed: list[int] = []
    for number, event in raw.events:
        try:
            events.append((number, _EVENT.decode(event)))
        except msgspec.DecodeError as error:  # noqa: PERF203 - each event by itself
            events.append((number, _unsendable(error)))
            failed.append(number)
    return Step(events), failed


def sendable(events: Sequence[tuple[int, EngineEvent]]) -> tuple[list[tuple[int, EngineEvent]], dict[int, Exception]]:
    """Events of which some cannot be encoded, with failures in their places, and why the generations that these end
    failed."""
    result: list[tuple[int, EngineEvent]] = []
    failed: dict[int, Exception] = {}
    for number, event in events:
        try:
            msgspec.msgpack.encode(event)
            result.append((number, event))
        except ENCODE_ERRORS as error:  # noqa: PERF203 - each event by itself
            result.append((number, _unsendable(error)))
            failed[number] = error
    return result, failed


def _unsendable(error: Exception) -> Failed:
    return Failed.of(GenerationError(f"the engine's output could not be sent: {error}"))
