"""The types of Anthropic's client as an oracle of what messages may have: no field of a block is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.formatters.anthropic import blocks
from lmi.formatters.anthropic.tools import CUSTOM

from ...kit.clients.types import unknown_fields

pytestmark = [pytest.mark.engine, pytest.mark.once]

FORMS: dict[str, Any] = {
    "TextBlockParam": blocks.TEXT,
    "ImageBlockParam": blocks.IMAGE,
    "DocumentBlockParam": blocks.DOCUMENT,
    "SearchResultBlockParam": blocks.FOUND,
    "ThinkingBlockParam": blocks.THINKING,
    "RedactedThinkingBlockParam": blocks.REDACTED,
    "ToolUseBlockParam": blocks.CALL,
    "ToolResultBlockParam": blocks.RESULT,
    "ToolReferenceBlockParam": blocks.REFERRED,
    "ToolParam": CUSTOM,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_field_of_a_block_is_known(name: str) -> None:
    from anthropic import types

    assert unknown_fields(getattr(types, name), FORMS[name].fields) == set()


@pytest.mark.parametrize("role", blocks.MESSAGE.forms)
def test_every_field_of_a_message_is_known(role: str) -> None:
    from anthropic import types

    theirs = {"user": types.UserMessageParam, "assistant": types.AssistantMessageParam}
    theirs["system"] = types.SystemMessageParam
    assert unknown_fields(theirs[role], blocks.MESSAGE.forms[role].fields, "role") == set()
