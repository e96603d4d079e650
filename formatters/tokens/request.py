"""What is to be tokenized, or to be made text of (vLLM's server: entrypoints/serve/tokenize/protocol.py).

A conversation is read as a chat is, so that it comes to the tokens that a chat counts. What else a chat has is unknown
here, since it changes nothing about the prompt.
"""

from __future__ import annotations

import msgspec

from ...model.errors import ParameterError, PayloadError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request
from ..client_fields import ClientFields
from ..common.fields import Parameter, read_rows
from ..common.kinds import Anything, Boolean, read_ids
from ..openai.chat import read_chat
from ..openai.parameters import CHAT_ROWS
from .reply import DetokenizedEncoder, TokenizedEncoder

__all__ = ["DETOKENIZE_TABLE", "FORMS", "TOKENIZE_TABLE", "read_detokenize", "read_tokenize"]

FORMS = ("messages", "tools", "tool_choice", "functions", "function_call", "documents")
"""Fields of a conversation that are read by rules of their own."""
FIELDS = (
    "reasoning_effort", "chat_template_kwargs", "chat_template", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
"""The others."""
CONVERSATION = (*FORMS, *FIELDS)

TOKENIZE_TABLE: tuple[Parameter, ...] = (
    CHAT_ROWS["model"],
    *(CHAT_ROWS[name] for name in FIELDS),
    Parameter("return_token_strs", Boolean(), False, "names"),
)
DETOKENIZE_TABLE: tuple[Parameter, ...] = (CHAT_ROWS["model"],)
TOKENIZE_ROWS = {row.name: row for row in TOKENIZE_TABLE} | {
    name: Parameter(name, Anything(), None) for name in ("prompt", *FORMS)
}
DETOKENIZE_ROWS = {row.name: row for row in DETOKENIZE_TABLE} | {"tokens": Parameter("tokens", Anything(), None)}


def read_tokenize(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The tokens of a text, or of a conversation; raises RequestError."""
    values, _ = read_rows(payload, TOKENIZE_ROWS, settings)
    prompt, fields = payload.get("prompt"), ClientFields()
    if payload.get("messages") is not None:
        if prompt is not None:
            raise ParameterError("prompt: cannot be combined with messages", "prompt")
        chat = {name: payload[name] for name in CONVERSATION if name in payload}
        generation, _, fields = read_chat(chat, request, settings)
        generation = msgspec.structs.replace(generation, sampling=Sampling(), stream=False, tokenize=True, tokens=True)
    elif isinstance(prompt, str):
        generation = Generation(
            request_id=request.request_id,
            prompt=prompt,
            tokenize=True,
            tokens=True,
            add_special_tokens=values["add_special_tokens"] is not False,
        )
    else:
        raise PayloadError.of("prompt", prompt, "a string, or messages in its place")
    return ParsedRequest((generation,), TokenizedEncoder(names=values["names"]), fields=fields)


def read_detokenize(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The text of token ids; raises RequestError."""
    read_rows(payload, DETOKENIZE_ROWS, settings)
    tokens = payload.get("tokens")
    if not isinstance(tokens, list):
        raise PayloadError.of("tokens", tokens, "a list of token ids")
    ids = read_ids(tokens, "tokens")
    generation = Generation(request_id=request.request_id, prompt=ids, tokenize=True, echo=True)
    return ParsedRequest((generation,), DetokenizedEncoder(), fields=ClientFields({"prompt": "tokens"}))
