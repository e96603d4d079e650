"""The body: `inputs`, one text or several, `parameters` and `stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...model.errors import Fault, ParameterError, PayloadError
from ...model.options import Settings
from ..base import Payload
from ..common.fields import Parameter, Table
from ..common.kinds import Boolean, Kind
from ..common.schemas import FILLED, array, one_of
from ..dialect import JsonSchema
from .parameters import ROWS
from .schemas import schema_of

__all__ = ["BODIES", "Body", "Input", "Inputs", "described"]

INPUTS = 1024
"""Texts in one body."""


@dataclass(frozen=True, slots=True)
class Input:
    """A prompt."""

    schema = FILLED
    description = "a non-empty string"

    def read(self, name: str, given: Any) -> str:
        if isinstance(given, list) and all(isinstance(text, str) for text in given):
            raise PayloadError.because(Fault(name, f"a list of prompts is not supported, expected {self.description}"))
        if not isinstance(given, str) or not given:
            raise PayloadError.of(name, given, self.description)
        return given


@dataclass(frozen=True, slots=True)
class Inputs:
    """At least one text, in dynamic batches and on models that embed, and whether they are a list."""

    schema = one_of(FILLED, array(FILLED, 1, INPUTS))
    description = "a non-empty string or a list of them"

    def read(self, name: str, given: Any) -> tuple[list[str], bool]:
        if isinstance(given, str) and given:
            return [given], False
        if not isinstance(given, list) or not given:
            raise PayloadError.of(name, given, self.description)
        if len(given) > INPUTS:
            raise ParameterError.because(Fault(name, expected=f"at most {INPUTS} texts", given=str(len(given))))
        for index, text in enumerate(given):
            if not isinstance(text, str) or not text:
                raise PayloadError.of(f"{name}[{index}]", text, Input.description)
        return cast("list[str]", given), True


STREAM = Parameter("stream", Boolean(), None, "stream")


class Body(Table):
    """A body with some `parameters`, and what it has beside them."""

    def __init__(self, parameters: Table, inputs: Kind, more: Iterable[Parameter] = (STREAM,)) -> None:
        self.parameters = parameters
        rows = (Parameter("inputs", inputs, None, "inputs"), Parameter("parameters", parameters, None, "parameters"))
        super().__init__((*rows, *more), ("inputs",))

    def read_values(self, payload: Payload, settings: Settings) -> dict[str, Any]:
        """What the fields say, by key, `parameters` as their Table reads them; raises RequestError."""
        values, _ = self.read("", payload, settings)
        values["parameters"] = values["parameters"] or self.parameters.read("parameters", {}, settings)
        return values


BODIES = {name: Body(rows, Input()) for name, rows in ROWS.items()}
"""By schema."""


def described(bodies: Mapping[str, Body]) -> Callable[[Settings], JsonSchema]:
    """What an endpoint's body is, for OpenApi; `bodies` are by schema."""
    return lambda settings: bodies[schema_of(settings).name].schema
