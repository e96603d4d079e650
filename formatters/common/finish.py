"""How the dialects of `inputs`, and djl_python's objects, call the end of a sequence."""

from __future__ import annotations

from ...model.errors import GenerationError
from ...model.events import FinishReason

__all__ = ["FINISH_REASONS", "aborted"]

FINISH_REASONS: dict[FinishReason, str] = {
    "eos": "eos_token",
    "stop": "stop_sequence",
    "length": "length",
    # LMI's schema has no such word (docs/decisions.md: Content filter).
    "content_filter": "content_filter",
}
"""What is not in it, `abort`, is an error."""


def aborted() -> GenerationError:
    """The error of a sequence that was cut off."""
    return GenerationError("the generation was cut off before its end")
