"""A conversation in the making: each dialect's reader says what was said, and the builder makes messages of it.

    builder.say("user", content, place)
    turn = builder.answer(place); turn.reasoning.append(...); turn.content.text(...); turn.call(...)
    builder.result(call_id, content, place)
    builder.messages()  -->  (Message, ...)

It alone knows what the engine's side bears: arguments of calls that are no JSON object, contents that are empty. What
templates bear, that side knows (model/text/template_messages.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ...model.conversation import Call, Message
from ...model.errors import Fault, ParameterError, PayloadError
from ..base import encode
from ..common.kinds import Tree
from ..common.schemas import STRING, one_of
from ..dialect import JsonSchema
from .carried import LIMIT, uncarried
from .content import MAX_MESSAGES, Content, content_of

__all__ = ["NONE", "Arguments", "Builder", "Turn"]

RAW = "raw_arguments"
"""What holds arguments of a call that are no JSON object."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: a JSON object, or one as text, which is what it becomes.

    Models write other things than objects, and are cut off: the client, which sends back what it got, cannot help it.
    Of vLLM's servers 0.26 refuses that, and every later turn with it, 0.32 forgets it; here it is a member of an
    object, so that the model sees what it wrote.
    """

    @property
    def schema(self) -> JsonSchema:
        return one_of(STRING, {"type": "object"})

    @property
    def description(self) -> str:
        return "a JSON object, or one as text"

    def read(self, name: str, given: Any) -> str:
        if isinstance(given, dict):
            return encode(Tree().read(name, given)).decode()
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self.description)
        arguments = given
        try:
            read = msgspec.json.decode(arguments) if arguments.strip() else None
        except (msgspec.DecodeError, RecursionError):
            return encode({RAW: arguments}).decode()
        if isinstance(read, dict):
            return arguments
        return NONE if read is None else encode({RAW: arguments}).decode()


NONE = "{}"
"""No arguments."""


class Turn(msgspec.Struct):
    """An answer of the assistant's, as far as it has been read: what it thought, said and called."""

    content: str | Content = ""
    reasoning: list[str] = []
    calls: list[Call] = []
    name: str = ""
    said: bool = False
    """Whether a message of it has been added."""

    def say(self, content: str | Content) -> None:
        """Adds what was said."""
        if self.content:
            self.content = content_of(self.content)
            self.content.add(content)
        else:
            self.content = content
        self.said = True

    def call(self, call_id: str, name: str, arguments: str = NONE) -> None:
        """Adds a call; `arguments`: as Arguments reads them."""
        self.calls.append(Call(call_id, name, arguments))

    @property
    def empty(self) -> bool:
        """Whether nothing was thought, said or called."""
        return not (self.said or self.reasoning or self.calls)


class Builder:
    """The messages of one request, in the order in which they are added."""

    __slots__ = ("_carried", "_count", "_field", "_messages", "_turn", "fields")

    def __init__(self, field: str = "messages") -> None:
        """`field`: what the client calls the list of messages."""
        self._field = field
        self._messages: list[Message] = []
        self._turn: Turn | None = None
        self._count = 0
        self._carried = LIMIT
        """How many bytes of reasoning may still be carried."""
        self.fields: dict[str, str] = {}
        """What the client calls images and their URLs, by their paths (ClientFields.own)."""

    @property
    def turn(self) -> Turn | None:
        """The assistant's answer that was added last, where nothing came after it: it may be added to."""
        return self._turn

    def say(self, role: str, content: str | Content, name: str = "") -> None:
        """A message of the system's, the user's or of whom else the template knows."""
        if self._turn is not None:
            self._close()
        self._add(Message(role, content if isinstance(content, str) else content.made(), name=name), content)

    def result(self, call_id: str, content: str | Content, *, failed: bool = False, name: str = "") -> None:
        """The result of a call. `failed`: it is an error, which templates have no other place for than its text."""
        if self._turn is not None:
            self._close()
        if failed:
            content = content_of(content).after("Error: ")
        said = content if isinstance(content, str) else content.made()
        self._add(Message("tool", said, call_id=call_id, name=name), content)

    def uncarried(self, given: str) -> str:
        """The reasoning that a client carries (carried.py); of more than a request may carry, nothing."""
        reasoning = uncarried(given, self._carried)
        self._carried -= len(reasoning.encode())
        return reasoning

    def answer(self) -> Turn:
        """A further answer of the assistant's, which is to be filled."""
        if self._turn is not None:
            self._close()
        self._turn = turn = Turn()
        return turn

    def messages(self) -> tuple[Message, ...]:
        """All of them."""
        self._close()
        return tuple(self._messages)

    def _close(self) -> None:
        """The end of the assistant's last answer."""
        turn, self._turn = self._turn, None
        if turn is not None:
            content, reasoning = turn.content, "".join(turn.reasoning)
            said = content if isinstance(content, str) else content.made()
            self._add(Message("assistant", said, reasoning, tuple(turn.calls), name=turn.name), content)

    def _add(self, message: Message, content: str | Content) -> None:
        self._count += 1 + len(message.calls) + (0 if isinstance(content, str) else len(content.parts))
        if self._count > MAX_MESSAGES:
            raise ParameterError.because(
                Fault(self._field, expected=f"at most {MAX_MESSAGES} messages, their parts and calls included")
            )
        for index, name in () if isinstance(content, str) else content.fields.items():
            path = f"prompt.messages[{len(self._messages)}].content[{index}]"
            # The client may have the part in another place, too.
            self.fields |= {path: name[: name.rindex("]") + 1], f"{path}.url": name}
        self._messages.append(message)
