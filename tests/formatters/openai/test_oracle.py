"""The types of OpenAI's client as an oracle of what a chat request may have: no field of them is unknown."""

from __future__ import annotations

from operator import attrgetter

import pytest

from lmi.formatters.openai.embeddings import ROWS as EMBEDDING_ROWS
from lmi.formatters.openai.messages import CALL, MESSAGES, PARTS
from lmi.formatters.openai.parameters import CHAT_ROWS, TEXT_ROWS
from lmi.formatters.openai.tools import TOOL

from ...kit.api.conversation import Tagged
from ...kit.clients.types import unknown_fields

pytestmark = [pytest.mark.engine, pytest.mark.once]

FIELDS = {
    "chat.completion_create_params.CompletionCreateParamsBase": CHAT_ROWS,
    "completion_create_params.CompletionCreateParamsBase": TEXT_ROWS,
    "embedding_create_params.EmbeddingCreateParams": EMBEDDING_ROWS,
}
"""Of a request by the type of its body; `stream` is told by another type."""


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_request_is_known(name: str) -> None:
    from openai import types

    assert unknown_fields(attrgetter(name)(types), FIELDS[name], "stream") == set()


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


MESSAGE = MESSAGES.kind
assert isinstance(MESSAGE, Tagged)
ROLES = MESSAGE.forms


@pytest.mark.parametrize("role", ROLES)
def test_every_field_of_a_message_is_known(role: str) -> None:
    from openai.types import chat

    theirs = getattr(chat, f"ChatCompletion{role.title()}MessageParam")
    assert unknown_fields(theirs, ROLES[role].fields, "role") == set()
