"""vLLM's forms of conversations that differ from one that came before in their messages alone.

    Conversation, vLLM's form --keep--> the last few;   another with the same tools and options --again--> a copy

Agents send the same tools with each request, and most requests to an endpoint ask for the same: what vLLM validates of
that, what its parsers make of it and what the template is shown of the tools takes longer than a short prompt takes to
tokenize, and that of an agent's tools longer still.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...generation import Conversation

__all__ = ["RepeatedForms"]

KEPT = 8
"""How many forms: each has the tools of one agent."""


class _Form(NamedTuple):
    asked: bytes
    """The conversation without its messages: as bytes, since the order of a schema's keys gets into prompts, and 1 is
    not 1.0 there."""
    form: Any
    shown: list[dict[str, Any]]


class RepeatedForms:
    """vLLM's ChatCompletionRequests of one model. On any thread."""

    def __init__(self) -> None:
        self._kept: tuple[_Form, ...] = ()
        """Replaced as a whole, since several threads prepare."""

    def again(self, conversation: Conversation) -> Any:
        """The form of one with other messages; None where none has been kept. It is to be copied."""
        asked = _asked(conversation)
        return next((one.form for one in self._kept if one.asked == asked), None)

    def keep(self, conversation: Conversation, form: Any) -> None:
        """Takes the form of a conversation as it is to be used, unless its answer is guided, which takes longer."""
        if form.structured_outputs is None:
            asked = _asked(conversation)
            others = [one for one in self._kept if one.asked != asked]
            self._kept = (_Form(asked, form, _shown(form)), *others[: KEPT - 1])

    def shown(self, form: Any) -> list[dict[str, Any]]:
        """What the template is shown of the tools of a form."""
        return next((one.shown for one in self._kept if one.form.tools is form.tools), None) or _shown(form)


def _asked(conversation: Conversation) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(conversation, messages=()))


def _shown(form: Any) -> list[dict[str, Any]]:
    """As vLLM's server shows them."""
    return [tool.model_dump() for tool in form.tools or () if not getattr(tool, "defer_loading", None)]
