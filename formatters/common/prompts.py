"""Token ids; prompts, and inputs of embeddings: texts or token ids, one or several.

Prompts(2048).read(name, given) --> ("a text", (1, 2, 3), ...)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ...model.errors import Fault, ParameterError, PayloadError
from ..dialect import JsonSchema
from .kinds import ID, LARGEST_ID, Filled, Integer, Text
from .schemas import array, one_of

__all__ = ["IDS", "Ids", "PromptIds", "Prompts", "TextPrompt"]

IDS = 1024
TokenIds = tuple[Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)], ...]
TextPrompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompts:
    """At most `most` of them. A list of numbers is one prompt, a list of anything else several."""

    most: int
    may_be_empty: bool = False
    """Whether texts may be."""

    @property
    def schema(self) -> JsonSchema:
        text, ids = self._text.schema, array(ID, 1)
        return one_of(text, array(text, 1, self.most), ids, array(ids, 1, self.most))

    @property
    def description(self) -> str:
        return f"{self._text.description}, a list of token ids, or a list of either"

    @property
    def _text(self) -> Text | Filled:
        return Text() if self.may_be_empty else Filled()

    def read(self, name: str, given: Any) -> tuple[TextPrompt, ...]:
        if isinstance(given, str):
            return (self._text.read(name, given),)
        if not isinstance(given, list):
            raise PayloadError.of(name, given, self.description)
        if not given:
            raise ParameterError.of(name, given, self.description)
        if isinstance(given[0], int):
            return (_ids(name, given),)
        if len(given) > self.most:
            raise ParameterError.because(Fault(name, expected=f"at most {self.most} of them", given=str(len(given))))
        # All are of the first one's kind, as in OpenAI's schema.
        read = self._text.read if isinstance(given[0], str) else _ids
        return tuple(read(f"{name}[{index}]", one) for index, one in enumerate(given))


@dataclass(frozen=True, slots=True)
class Ids:
    """A list of token ids."""

    schema = array(ID, le=IDS)
    description = "a list of token ids"

    def read(self, name: str, given: Any) -> tuple[int, ...]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, self.description)
        if len(given) > IDS:
            raise ParameterError.because(Fault(name, expected=f"at most {IDS} token ids"))
        one = Integer(0, LARGEST_ID)
        return tuple(one.read(f"{name}[{index}]", value) for index, value in enumerate(given))


@dataclass(frozen=True, slots=True)
class PromptIds:
    """A prompt's token ids. Of the million that there may be only a wrong one is checked by itself."""

    schema = array(ID)
    description = "a list of token ids"

    def read(self, name: str, given: Any) -> tuple[int, ...]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, self.description)
        try:
            return msgspec.convert(given, TokenIds)
        except msgspec.ValidationError:
            one = Integer(0, LARGEST_ID)
        return tuple(
            int(value)
            if type(value) in (int, float) and 0 <= value <= LARGEST_ID and value == int(value)
            else one.read(f"{name}[{index}]", value)
            for index, value in enumerate(given)
        )


def _ids(name: str, given: Any) -> tuple[int, ...]:
    ids = PromptIds().read(name, given)
    if not ids:
        raise ParameterError.of(name, given, "at least one token id")
    return ids
