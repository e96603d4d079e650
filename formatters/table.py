"""The table of our dialects, in the order in which they are asked. A new one is one entry here."""

from __future__ import annotations

from ..model.options import Settings
from . import anthropic, azure, lmi, minimal, openai, rerank, responses, tgi, tokens
from .dialect import Dialect
from .lmi import dynamic

__all__ = ["DIALECTS", "fallback"]

DIALECTS: tuple[Dialect, ...] = tuple(
    module.DIALECT for module in (azure, rerank, tgi, dynamic, lmi, anthropic, responses, openai, minimal, tokens)
)


def fallback(settings: Settings) -> Dialect:
    """The dialect whose form errors have where none is known yet (docs/decisions.md: Which dialect a request is)."""
    return dynamic.DIALECT if settings.dynamic_batch else lmi.DIALECT
