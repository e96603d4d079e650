"""What a message says: a text, or a list of parts, each of a type that its dialect declares.

    Contents({"text": TEXT, "image_url": IMAGE}).read(place, given, settings) --> Content --> the parts of a Message

A part's type has a Form, which reads its fields, and what these add to the content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.conversation import Media, MediaKind, Part, Text
from ...model.errors import Fault, ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..common.forms import Form, Tagged
from ..common.kinds import Nested
from ..common.kinds import Text as TextKind
from ..common.schemas import STRING, array, one_of
from ..dialect import JsonSchema

__all__ = ["MAX_MESSAGES", "Content", "Contents", "PartForm", "content_of", "text_form"]

MAX_MESSAGES = 1 << 14
"""Messages, parts of their contents and calls in them, together, as templates go through them one by one; a message is
ten tokens or so with its frame."""


@dataclass(slots=True)
class Content:
    """The parts of a message, in the order in which they come."""

    parts: list[Part] = field(default_factory=list[Part])
    fields: dict[int, str] = field(default_factory=dict[int, str])
    """Of each image, audio and video, by its index: what the client calls its URL."""

    def text(self, text: str) -> None:
        """Adds a text."""
        self.parts.append(Text(text))

    def media(self, kind: MediaKind, url: str, field: str) -> None:
        """Adds an image, audio or a video, whose URL the client calls `field`."""
        self.fields[len(self.parts)] = field
        self.parts.append(Media(kind, url))

    def add(self, other: str | Content) -> None:
        """Adds a text, or the parts of another content."""
        if isinstance(other, str):
            self.text(other)
            return
        start = len(self.parts)
        self.fields |= {start + index: name for index, name in other.fields.items()}
        self.parts += other.parts

    def after(self, prefix: str) -> Content:
        """The same, its texts joined as one line each after a prefix."""
        texts = "\n".join(part.text for part in self.parts if isinstance(part, Text))
        made = Content()
        made.text(prefix + texts if texts else prefix.rstrip(": "))
        for index, name in self.fields.items():
            media = self.parts[index]
            assert isinstance(media, Media)
            made.media(media.kind, media.url, name)
        return made

    def made(self) -> str | tuple[Part, ...]:
        """As a Message has it: no parts are an empty text, and a single text is that text."""
        parts = self.parts
        if not parts:
            return ""
        first = parts[0]
        return first.text if len(parts) == 1 and isinstance(first, Text) else tuple(parts)


def content_of(said: str | Content) -> Content:
    """A text as a content; a content is one."""
    if isinstance(said, Content):
        return said
    content = Content()
    content.text(said)
    return content


Add = Callable[[dict[str, Any], Content, str, Settings], None]
"""Adds what the fields of a part, read, are to a content; the part's place and the settings are for errors."""


@dataclass(frozen=True, slots=True)
class PartForm(Form):
    """A part of a content."""

    add: Add = field(kw_only=True)


def text_form(name: str, *beside: str) -> PartForm:
    """A part whose text is in the field `name`; the fields `beside` it have no effect."""

    def add(read: dict[str, Any], content: Content, place: str, settings: Settings) -> None:
        content.text(read[name])

    return PartForm({name: TextKind(), **dict.fromkeys(beside)}, (name,), add=add)


def left_out(kind: object) -> str:
    """What stands in the place of a part that the model cannot read (option.unreadable_parts=text)."""
    return f"[A part of the type {kind!r:.64} was left out: this model cannot read it.]"


@dataclass(frozen=True, slots=True)
class Contents(Nested):
    """A text, or a list of parts."""

    forms: Mapping[str, PartForm]
    where: str = ""
    """Where the content is, for errors about a part's type."""
    infer: Callable[[dict[str, Any]], str | None] | None = None
    """The type of a part that has none."""
    noun: str = "parts"
    make: Callable[[], Content] = Content
    tagged: Tagged = field(init=False)
    any_text = True

    def __post_init__(self) -> None:
        where = f" {self.where}" if self.where else ""
        object.__setattr__(self, "tagged", Tagged("type", self.forms, where, self.infer))

    @property
    def schema(self) -> JsonSchema:
        return one_of(STRING, array(self.tagged.schema))

    @property
    def description(self) -> str:
        return f"a string or a list of {self.noun}"

    def read(self, name: str, given: Any, settings: Settings) -> str | Content:
        if isinstance(given, str):
            return given
        content = self.make()
        if not isinstance(given, list):
            raise PayloadError.of(name, given, self.description)
        if len(given) > MAX_MESSAGES:
            raise ParameterError.because(
                Fault(name, expected=f"at most {MAX_MESSAGES} {self.noun}", given=str(len(given)))
            )
        for index, one in enumerate(given):
            place = f"{name}[{index}]"
            try:
                kind, read = self.tagged.read(place, one, settings)
                self.forms[kind].add(read, content, place, settings)
            except UnsupportedError as error:
                # What has a place of its own within the part is the part's; unknown fields have none.
                if settings.media.unreadable_parts == "error" or not (error.param or "").startswith(place):
                    raise
                content.text(left_out(one.get("type")))
        return content
