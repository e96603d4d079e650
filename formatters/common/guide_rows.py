"""Fields that ask for a guide, as rows of the tables of dialects: those that are served, and those of other APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...model.generation import StructuredOutput
from ...model.options import Settings
from ..base import JsonSchema
from .fields import Parameter
from .guides import GUIDES
from .kinds import Anything, Nested

__all__ = ["SERVED", "GuideField", "guide_rows", "guides_of_others"]


@dataclass(frozen=True, slots=True)
class GuideField(Nested):
    """A field of GUIDES, for the tables of dialects whose fields are all in tables."""

    guide: str

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return GUIDES[self.guide].schema

    @property
    def description(self) -> str:
        """In words."""
        return "as in OpenAI chat"

    def read(self, name: str, given: Any, settings: Settings) -> StructuredOutput | None:
        """What the answer must conform to; None: nothing is asked for."""
        return GUIDES[self.guide].read(name, given, settings).output


SERVED = tuple(name for name in GUIDES if name != "guided_whitespace_pattern")


def guide_rows(*names: str) -> tuple[Parameter, ...]:
    """Rows for fields of SERVED."""
    return tuple(Parameter(name, GuideField(name), None, "structured_output") for name in names)


def guides_of_others(*served: str) -> tuple[Parameter, ...]:
    """Rows for guides by the names of other APIs, but for those that a dialect serves: to ignore one would give an
    answer in another form than the one that was asked for.
    """
    names = (*GUIDES, "output_format", "grammar")
    return tuple(Parameter(name, Anything(), None, default_only=True) for name in names if name not in served)
