"""The table of our dialects, in the order in which they are asked. A new one is one entry here."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.errors import OptionError
from ..model.options import Settings
from . import anthropic, azure, lmi, minimal, openai, rerank, responses, tgi, tokens, transcription
from .dialect import Dialect
from .lmi import dynamic

__all__ = ["DIALECTS", "OF_FILES", "check_dialect", "fallback"]

DIALECTS: tuple[Dialect, ...] = tuple(
    module.DIALECT
    for module in (azure, rerank, tgi, dynamic, lmi, anthropic, responses, openai, minimal, tokens, transcription)
)

OF_FILES = transcription.DIALECT
"""The one whose bodies may be forms and files."""


def fallback(settings: Settings) -> Dialect:
    """The dialect whose form errors have where none is known yet (docs/decisions.md: Which dialect a request is)."""
    return dynamic.DIALECT if settings.dynamic_batch else lmi.DIALECT


def check_dialect(settings: Settings, user_dialects: Sequence[Dialect] = ()) -> None:
    """Raises OptionError if `option.dialect` names no dialect."""
    names = [known.name for known in (*user_dialects, *DIALECTS)]
    if settings.dialect and settings.dialect not in names:
        raise OptionError.of("dialect", expected=f"one of {', '.join(names)}", given=settings.dialect)
