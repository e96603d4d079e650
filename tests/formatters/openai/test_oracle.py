"""The types of OpenAI's client as an oracle of what a chat request may have: no field of them is unknown."""

from __future__ import annotations

from operator import attrgetter

import pytest

from lmi.formatters.openai.embeddings import ROWS as EMBEDDING_ROWS
from lmi.formatters.openai.messages import CALL, MESSAGE, PARTS
from lmi.formatters.openai.parameters import CHAT_FORMS, CHAT_ROWS, GUIDE_FORMS, TEXT_FORMS, TEXT_ROWS
from lmi.formatters.openai.tools import TOOL

from ...kit.clients.types import unknown_fields

pytestmark = [pytest.mark.engine, pytest.mark.once]

FIELDS = {
    "chat.completion_create_params.CompletionCreateParamsBase": (*CHAT_ROWS, *CHAT_FORMS, *GUIDE_FORMS),
    "completion_create_params.CompletionCreateParamsBase": (*TEXT_ROWS, *TEXT_FORMS),
    "embedding_create_params.EmbeddingCreateParams": (*EMBEDDING_ROWS, "input"),
}
"""Of a request by the type of its body; `stream` is told by another type."""


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_request_is_known(name: str) -> None:
    from openai import types

    assert unknown_fields(attrgetter(name)(types), dict.fromkeys(FIELDS[name]), "stream") == set()


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
