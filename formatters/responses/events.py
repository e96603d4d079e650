"""The events of a stream, typed, and their records (OpenAI's API reference: Responses, Streaming events).

    event --Emitter.record--> event: NAME, data: {"type": NAME, ..., "sequence_number": 0, 1, 2 ...}

Nearly all events are pieces of a text: the bytes before a piece are encoded once an item (NUMBERED).
"""

from __future__ import annotations

import msgspec

from ..base import named_record
from ..openai.logprobs import TokenLogprob
from .bodies import Item, Part, ResponseBody

__all__ = [
    "NUMBERED",
    "ArgumentsDelta",
    "ArgumentsDone",
    "CustomInputDelta",
    "CustomInputDone",
    "ErrorEvent",
    "Event",
    "ItemAdded",
    "ItemDone",
    "PartAdded",
    "PartDone",
    "ReasoningDelta",
    "ReasoningDone",
    "ResponseCompleted",
    "ResponseCreated",
    "ResponseFailed",
    "ResponseInProgress",
    "ResponseIncomplete",
    "TextDelta",
    "TextDone",
    "record",
]


class ResponseCreated(msgspec.Struct, frozen=True, tag="response.created", tag_field="type"):
    """The first."""

    response: ResponseBody
    sequence_number: int


class ResponseInProgress(msgspec.Struct, frozen=True, tag="response.in_progress", tag_field="type"):
    """The second."""

    response: ResponseBody
    sequence_number: int


class ResponseCompleted(msgspec.Struct, frozen=True, tag="response.completed", tag_field="type"):
    """The last, where the response is whole."""

    response: ResponseBody
    sequence_number: int


class ResponseIncomplete(msgspec.Struct, frozen=True, tag="response.incomplete", tag_field="type"):
    """The last, where it was cut off."""

    response: ResponseBody
    sequence_number: int


class ResponseFailed(msgspec.Struct, frozen=True, tag="response.failed", tag_field="type"):
    """The last, after an ErrorEvent."""

    response: ResponseBody
    sequence_number: int


class ErrorEvent(msgspec.Struct, frozen=True, tag="error", tag_field="type"):
    """What went wrong."""

    code: str
    message: str
    param: str | None
    sequence_number: int


class ItemAdded(msgspec.Struct, frozen=True, tag="response.output_item.added", tag_field="type"):
    """An item begins."""

    output_index: int
    item: Item
    sequence_number: int


class ItemDone(msgspec.Struct, frozen=True, tag="response.output_item.done", tag_field="type"):
    """An item, whole."""

    output_index: int
    item: Item
    sequence_number: int


class PartAdded(msgspec.Struct, frozen=True, tag="response.content_part.added", tag_field="type"):
    """A part of an item begins."""

    item_id: str
    output_index: int
    content_index: int
    part: Part
    sequence_number: int


class PartDone(msgspec.Struct, frozen=True, tag="response.content_part.done", tag_field="type"):
    """A part, whole."""

    item_id: str
    output_index: int
    content_index: int
    part: Part
    sequence_number: int


class TextDelta(msgspec.Struct, frozen=True, tag="response.output_text.delta", tag_field="type"):
    """A piece of a message's text."""

    item_id: str
    output_index: int
    content_index: int
    logprobs: list[TokenLogprob]
    delta: str
    sequence_number: int


class TextDone(msgspec.Struct, frozen=True, tag="response.output_text.done", tag_field="type"):
    """A message's text, whole."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[TokenLogprob]
    sequence_number: int


class ReasoningDelta(msgspec.Struct, frozen=True, tag="response.reasoning_text.delta", tag_field="type"):
    """A piece of a reasoning."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    sequence_number: int


class ReasoningDone(msgspec.Struct, frozen=True, tag="response.reasoning_text.done", tag_field="type"):
    """A reasoning, whole."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    sequence_number: int


class ArgumentsDelta(msgspec.Struct, frozen=True, tag="response.function_call_arguments.delta", tag_field="type"):
    """A piece of a call's arguments."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int


class ArgumentsDone(msgspec.Struct, frozen=True, tag="response.function_call_arguments.done", tag_field="type"):
    """A call's arguments, whole."""

    item_id: str
    output_index: int
    name: str
    arguments: str
    sequence_number: int


class CustomInputDelta(msgspec.Struct, frozen=True, tag="response.custom_tool_call_input.delta", tag_field="type"):
    """A piece of the input of a custom tool's call."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int


class CustomInputDone(msgspec.Struct, frozen=True, tag="response.custom_tool_call_input.done", tag_field="type"):
    """The input of a custom tool's call, whole."""

    item_id: str
    output_index: int
    input: str
    sequence_number: int


Event = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | ErrorEvent
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
)


def record(event: Event) -> bytes:
    """The event with its name."""
    return named_record(_name(event), event)


def _name(event: Event) -> bytes:
    return str(event.__struct_config__.tag).encode()


NUMBERED = b'%b%b,"sequence_number":%d}\n\n'
"""The record of a piece of text: the bytes before it, the piece as JSON, and the event's number."""
