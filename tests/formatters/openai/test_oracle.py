"""The types of OpenAI's client as an oracle of what a chat request may have: no field of them is unknown."""

from __future__ import annotations

import pytest

from lmi.formatters.openai.messages import CALL, MESSAGE, PARTS
from lmi.formatters.openai.tools import TOOL

from ...kit.clients.types import unknown_fields

pytestmark = [pytest.mark.engine, pytest.mark.once]

FORMS = {
    "ChatCompletionContentPartTextParam": PARTS["text"],
    "ChatCompletionContentPartImageParam": PARTS["image_url"],
    "ChatCompletionContentPartRefusalParam": PARTS["refusal"],
    "ChatCompletionMessageFunctionToolCallParam": CALL.forms["function"],
    "ChatCompletionMessageCustomToolCallParam": CALL.forms["custom"],
    "ChatCompletionFunctionToolParam": TOOL.forms["function"],
    "ChatCompletionCustomToolParam": TOOL.forms["custom"],
}


@pytest.mark.parametrize("name", FORMS)
def test_every_field_of_a_part_is_known(name: str) -> None:
    from openai.types import chat

    assert unknown_fields(getattr(chat, name), FORMS[name].fields) == set()


@pytest.mark.parametrize("role", MESSAGE.forms)
def test_every_field_of_a_message_is_known(role: str) -> None:
    from openai.types import chat

    theirs = getattr(chat, f"ChatCompletion{role.title()}MessageParam")
    assert unknown_fields(theirs, MESSAGE.forms[role].fields, "role") == set()
