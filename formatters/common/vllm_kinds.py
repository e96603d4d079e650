"""What the fields that vLLM adds to requests may be, where that is nothing that kinds.py has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, ParameterError, PayloadError, UnsupportedError
from ...model.generation import FITTING
from ...model.options import Settings
from ..base import encode
from ..dialect import JsonSchema
from .kinds import ID, LARGEST, LARGEST_ID, SMALLEST, Integer, Nested, Number, Object, Tree
from .prompts import IDS, Ids
from .schemas import BOOLEAN, FILLED, INTEGER, OBJECT, array, one_of

__all__ = [
    "TOP_LOGPROBS", "Arguments", "Biases", "Likeliest", "MediaArguments", "RequestTemplate", "Salt", "SomeIds",
    "Truncation",
]  # fmt: skip

TOP_LOGPROBS = 20

BIASES = 1024
SALT = 1024
"""Characters: vLLM's own bound in 0.32."""
TEMPLATE = 64 << 10
ARGUMENTS = 64
ARGUMENTS_BYTES = 64 << 10
PLAIN: JsonSchema = {"type": ["string", "number"]}
BIAS: JsonSchema = {"type": "number", "minimum": -100, "maximum": 100}


@dataclass(frozen=True, slots=True)
class Biases:
    """An object: token ids, as text because JSON has no other keys, and what is added to their logits."""

    schema = OBJECT | {
        "patternProperties": {"^[0-9]{1,10}$": BIAS},
        "additionalProperties": False,
        "maxProperties": BIASES,
    }
    description = "an object: token ids, as text because JSON has no other keys, and what is added to their logits"

    def read(self, name: str, given: Any) -> dict[int, float]:
        biases: dict[int, float] = {}
        entries = Object().read(name, given)
        if len(entries) > BIASES:
            raise ParameterError.because(Fault(name, expected=f"at most {BIASES} token ids"))
        for key, value in entries.items():
            if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= LARGEST_ID):
                raise ParameterError.of(f"{name}.{key[:32]}", key, "a token id as the key")
            biases[int(key)] = Number(-100, 100).read(f"{name}.{key}", value)
        return biases


@dataclass(frozen=True, slots=True)
class Truncation:
    """How many of a prompt's tokens are kept: an integer from 1 on, or FITTING."""

    schema = INTEGER | {"anyOf": [{"const": FITTING}, {"minimum": 1, "maximum": LARGEST_ID}]}
    description = f"an integer >= 1, or {FITTING} for what fits"

    def read(self, name: str, given: Any) -> int:
        value = Integer(FITTING, LARGEST_ID).read(name, given)
        if value == 0:
            raise ParameterError.of(name, given, self.description)
        return value


@dataclass(frozen=True, slots=True)
class SomeIds:
    """A list of at least one token id."""

    schema = array(ID, 1, IDS)
    description = f"a list of 1 to {IDS} token ids"

    def read(self, name: str, given: Any) -> tuple[int, ...]:
        ids = Ids().read(name, given)
        if not ids:
            raise ParameterError.of(name, given, self.description)
        return ids


@dataclass(frozen=True, slots=True)
class Salt:
    """A string that is not empty, and not long."""

    schema = FILLED | {"maxLength": SALT}
    description = f"a string of 1 to {SALT} characters"

    def read(self, name: str, given: Any) -> str:
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self.description)
        if not 0 < len(given) <= SALT:
            # It is a secret.
            raise ParameterError.because(Fault(name, expected=self.description, given=str(len(given))))
        return given


@dataclass(frozen=True, slots=True)
class Arguments:
    """An object of texts, numbers and lists of these, for logits processors."""

    schema = OBJECT | {"additionalProperties": one_of(PLAIN, array(PLAIN)), "maxProperties": ARGUMENTS}
    description = f"an object of at most {ARGUMENTS} strings, numbers, or lists of these"

    def read(self, name: str, given: Any) -> dict[str, Any]:
        entries = Object().read(name, given)
        if len(entries) > ARGUMENTS:
            raise ParameterError.because(Fault(name, expected=f"at most {ARGUMENTS} entries", given=str(len(entries))))
        read = {key: _argument(f"{name}.{key[:64]}", value) for key, value in entries.items()}
        if (size := len(encode(read))) > ARGUMENTS_BYTES:
            raise ParameterError.because(
                Fault(name, expected=f"at most {ARGUMENTS_BYTES} bytes as JSON", given=f"{size}")
            )
        return read


def _argument(place: str, given: Any) -> str | int | float | list[Any]:
    if isinstance(given, list):
        return [one if type(one) is str else _plain(place, one, given) for one in given]
    return _plain(place, given, given)


def _plain(place: str, one: Any, given: Any) -> str | int | float:
    if isinstance(one, bool):
        # As vLLM's server reads it.
        return int(one)
    if not isinstance(one, str | int | float):
        raise PayloadError.of(place, given, "a string, a number, or a list of these")
    if isinstance(one, int) and not SMALLEST <= one <= LARGEST:
        raise ParameterError.of(place, one, f"integers from {SMALLEST} to {LARGEST}")
    return one


@dataclass(frozen=True, slots=True)
class Likeliest(Nested):
    """How many of the likeliest tokens are shown in each one's place (docs/decisions.md: Log-probabilities).

    With `flag` true is 1 and false is none at all, of text completions (pydantic reads true as 1 in vLLM's server).
    """

    flag: bool = False

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema, of an endpoint that allows no more."""
        number = Integer(0, TOP_LOGPROBS).schema
        return one_of(number, BOOLEAN) if self.flag else number

    @property
    def description(self) -> str:
        """In words."""
        flag = "; true is 1, false none" if self.flag else ""
        return f"an integer from 0 to {TOP_LOGPROBS}, or to `option.max_logprobs`{flag}"

    def read(self, name: str, given: Any, settings: Settings) -> int | None:
        """The number; None: not even the chosen token's."""
        if self.flag and isinstance(given, bool):
            return 1 if given else None
        return Integer(0, max(TOP_LOGPROBS, _most(settings))).read(name, given)


def _most(settings: Settings) -> int:
    """What vLLM is told to allow at most; -1, as many as there are tokens, only the engine can count."""
    try:
        most = int(settings.engine_arguments.get("max_logprobs", TOP_LOGPROBS))
    except ValueError:
        # The engine's start says so.
        return TOP_LOGPROBS
    return LARGEST_ID if most == -1 else most


@dataclass(frozen=True, slots=True)
class RequestTemplate(Nested):
    """A chat template of the request's own, where the endpoint's owner allows it."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return {**FILLED, "maxLength": TEMPLATE}

    @property
    def description(self) -> str:
        """In words."""
        return f"Jinja text of 1 to {TEMPLATE} characters, where `option.request_chat_template` allows it"

    def read(self, name: str, given: Any, settings: Settings) -> str:
        if not settings.request_chat_template:
            # The owner brings it (option.chat_template), not clients.
            why = "a template is a program, and option.request_chat_template is false"
            raise UnsupportedError.because(Fault(name, f"not supported ({why})"))
        if not isinstance(given, str):
            raise PayloadError.of(name, given, "Jinja text")
        if not 0 < len(given) <= TEMPLATE:
            raise ParameterError.because(Fault(name, expected=f"1 to {TEMPLATE} characters", given=str(len(given))))
        return given


@dataclass(frozen=True, slots=True)
class MediaArguments(Nested):
    """How a request's media are read or processed, where the endpoint's owner trusts clients with it. `by_kind`: an
    object for each kind of media.
    """

    by_kind: bool = False

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return {**OBJECT, "additionalProperties": OBJECT} if self.by_kind else OBJECT

    @property
    def description(self) -> str:
        """In words."""
        kinds = " for each kind of media" if self.by_kind else ""
        return f"an object{kinds}, where `option.trust_request_mm_kwargs` allows it"

    def read(self, name: str, given: Any, settings: Settings) -> dict[str, Any]:
        arguments, rules = Tree().read(name, given), settings.media
        if arguments and not rules.request_arguments:
            why = "it says how much memory media take, and option.trust_request_mm_kwargs is false"
            raise UnsupportedError.because(Fault(name, f"not supported ({why})"))
        for kind, value in arguments.items() if self.by_kind else ():
            Object().read(f"{name}.{kind[:32]}", value)
        return arguments
