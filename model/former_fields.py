"""What clients call fields, where requests had it before: user code may still set and read it here for a while.

Today a ParsedRequest says it (formatters/client_fields.py), and an engine's error names a path (errors.LmiError.param).
An engine of the user's finds these paths here by the former names; what a dialect of the user's gives here is read by
handler/user_code/former_fields.py. Nothing else looks at them.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

__all__ = [
    "FormerBeams",
    "FormerConversation",
    "FormerGeneration",
    "FormerMessage",
    "FormerScoring",
    "FormerStructuredOutput",
]


log = logging.getLogger(__name__)
_logged: list[str] = []


class FormerMessage(msgspec.Struct, array_like=True, frozen=True):
    """Of a Message: its fields as those of a dict in OpenAI's form, which it was."""

    def __getitem__(self, name: str) -> Any:
        from .text.template_messages import template_messages

        if not _logged:
            _logged.append(name)
            log.warning(
                "messages of a Conversation are typed; what reads them as dicts still works (template_messages)"
            )
        return template_messages((self,))[0][name]  # type: ignore[arg-type]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default."""
        try:
            return self[name]
        except KeyError:
            return default


class FormerConversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a Conversation: its tools, and where in one of them, or in each, the schema of its arguments is."""

    tools_field: str = "prompt.tools"
    schema_field: str = "function.parameters"
    schema_fields: tuple[str, ...] = ()


class FormerStructuredOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a StructuredOutput: itself."""

    field: str = "sampling.structured_output"


class FormerBeams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of Beams: themselves."""

    field: str = "sampling.beams"


class FormerScoring(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a Scoring: its document."""

    document_field: str = "scoring.document"


class FormerGeneration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a Generation: its prompt, and the fields of its sampling."""

    prompt_field: str = "prompt"
    fields: dict[str, str] = {}

    def field(self, name: str) -> str:
        """The path of a field of `sampling`."""
        return self.fields.get(name, f"sampling.{name}")
