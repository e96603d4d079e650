"""What is to be tokenized, or to be made text of (vLLM's server: entrypoints/serve/tokenize/protocol.py).

A conversation is read as a chat is, so that it comes to the tokens that a chat counts. What else a chat has is unknown
here, since it changes nothing about the prompt.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request
from ..client_fields import ClientFields
from ..common.fields import Parameter, Table
from ..common.forms import Unread
from ..common.kinds import Boolean, Text
from ..common.prompts import PromptIds
from ..openai.chat import read_chat
from ..openai.parameters import CHAT_ROWS
from .reply import DetokenizedEncoder, TokenizedEncoder

__all__ = ["CONVERSATION", "DETOKENIZE_ROWS", "TOKENIZE_ROWS", "TOKENIZE_TABLE", "read_detokenize", "read_tokenize"]

FORMS = ("messages", "tools", "tool_choice", "functions", "function_call", "documents")
FIELDS = (
    "reasoning_effort", "chat_template_kwargs", "chat_template", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
CONVERSATION = (*FORMS, *FIELDS)
"""The fields of a chat that have to do with its prompt."""

TOKENIZE_TABLE: tuple[Parameter, ...] = (
    Parameter("prompt", Text(), None, "prompt"),
    CHAT_ROWS["model"],
    # Read where they are a chat's.
    *(replace(CHAT_ROWS[name], kind=Unread(CHAT_ROWS[name].kind)) for name in FORMS),
    *(CHAT_ROWS[name] for name in FIELDS),
    Parameter("return_token_strs", Boolean(), False, "names"),
)
TOKENIZE_ROWS = Table(TOKENIZE_TABLE, either=("prompt", "messages"))
DETOKENIZE_ROWS = Table((CHAT_ROWS["model"], Parameter("tokens", PromptIds(), None, "tokens")), ("tokens",))


def read_tokenize(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The tokens of a text, or of a conversation; raises RequestError."""
    values, _ = TOKENIZE_ROWS.read("", payload, settings)
    fields = ClientFields()
    if values["messages"] is not None:
        chat = {name: payload[name] for name in CONVERSATION if name in payload}
        generation, _, fields = read_chat(chat, request, settings)
        generation = msgspec.structs.replace(generation, sampling=Sampling(), stream=False, tokenize=True, tokens=True)
    else:
        generation = Generation(
            request_id=request.request_id,
            prompt=values["prompt"],
            tokenize=True,
            tokens=True,
            add_special_tokens=values["add_special_tokens"] is not False,
        )
    return ParsedRequest((generation,), TokenizedEncoder(names=values["names"]), fields=fields)


def read_detokenize(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The text of token ids; raises RequestError."""
    values, _ = DETOKENIZE_ROWS.read("", payload, settings)
    generation = Generation(request_id=request.request_id, prompt=values["tokens"], tokenize=True, echo=True)
    return ParsedRequest((generation,), DetokenizedEncoder(), fields=ClientFields({"prompt": "tokens"}))
