"""What conversations are made of: kinds of fields, contents of messages, the types of parts of two dialects."""

from __future__ import annotations

import pytest

from lmi.formatters.anthropic.found import FoundTools
from lmi.formatters.azure.request import PARTS as AZURE_PARTS
from lmi.formatters.common.forms import Tagged
from lmi.formatters.common.kinds import Anything, Boolean, Filled, Integer, Nested, Texts
from lmi.formatters.common.kinds import Text as TextKind
from lmi.formatters.common.prompts import Ids, Prompts
from lmi.formatters.conversation.builder import Builder
from lmi.formatters.conversation.carried import carried, uncarried
from lmi.formatters.conversation.content import Content, Contents
from lmi.formatters.openai.messages import PARTS as OPENAI_PARTS
from lmi.formatters.responses.items import PARTS as RESPONSES_PARTS
from lmi.model import former_fields
from lmi.model.conversation import Call, Media, Message, Part, Text

__all__ = [
    "AZURE_PARTS",
    "OPENAI_PARTS",
    "RESPONSES_PARTS",
    "Anything",
    "Boolean",
    "Builder",
    "Call",
    "Content",
    "Contents",
    "Filled",
    "FoundTools",
    "Ids",
    "Integer",
    "Media",
    "Message",
    "Nested",
    "Part",
    "Prompts",
    "Tagged",
    "Text",
    "TextKind",
    "Texts",
    "carried",
    "forget_former_use",
    "uncarried",
]


def forget_former_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had read a message as a dict yet, which is logged once."""
    monkeypatch.setattr(former_fields, "_logged", list[str]())
