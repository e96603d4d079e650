"""What /tokenize and /detokenize are asked for: a prompt that is prepared as a generation's would be, and no more."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lmi.formatters.tokens.request import DETOKENIZE_ROWS, TOKENIZE_TABLE

from ...kit.answers.openai import CHAT, STRICT, TOOLS
from ...kit.api.dialects import parse, receive
from ...kit.api.options import typed_settings
from ...kit.api.types import Conversation, Generation, ParsedRequest, Request, Response, Settings
from ...kit.rows import each_row

MESSAGES = CHAT["messages"]
TEMPLATES = "a template is a program, and option.request_chat_template is false"
FUNCTION: dict[str, Any] = {"name": "get_weather"}
WITH_TOOLS = {"messages": MESSAGES, "tools": TOOLS}


def asked(path: str, body: Any, settings: Settings = STRICT, **request: Any) -> ParsedRequest | Response:
    return receive(Request(json.dumps(body).encode(), path=path, request_id="7", **request), settings)


def generation(path: str, body: Any, settings: Settings = STRICT, **request: Any) -> Generation:
    call = asked(path, body, settings, **request)
    assert isinstance(call, ParsedRequest), call
    assert (call.dialect, call.streamed) == ("tokens", False)
    (made,) = call.generations
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Generation) == made
    return made


def test_a_text() -> None:
    made = generation("/tokenize", {"model": "any", "prompt": "Hello"})
    assert made == Generation(request_id="7", prompt="Hello", tokenize=True, tokens=True)
    assert generation("/tokenize", {"prompt": ""}).prompt == ""
    assert not generation("/tokenize", {"prompt": "Hello", "add_special_tokens": False}).add_special_tokens


CHATS: list[dict[str, Any]] = [
    {"messages": MESSAGES},
    WITH_TOOLS,
    {**WITH_TOOLS, "tool_choice": "none"},
    {**WITH_TOOLS, "tool_choice": {"type": "function", "function": {"name": FUNCTION["name"]}}},
    {"messages": MESSAGES, "add_generation_prompt": False},
    {"messages": MESSAGES, "add_special_tokens": True, "reasoning_effort": "low"},
    {"messages": [*MESSAGES, {"role": "assistant", "content": "I"}], "continue_final_message": True},
    {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "a"}]},
    {"messages": MESSAGES, "functions": [FUNCTION]},
]


@each_row("body", CHATS, ids=str)
def test_a_conversation_is_a_chats(body: dict[str, Any]) -> None:
    made = generation("/tokenize", body)
    (chat,) = parse("openai", body, STRICT).generations
    assert isinstance(made.prompt, Conversation)
    assert made == Generation(request_id="7", prompt=chat.prompt, tokenize=True, tokens=True, overflow="refuse")


def test_tokens() -> None:
    made = generation("/detokenize", {"model": "any", "tokens": [1, 2, 3.0]})
    assert made == Generation(request_id="7", prompt=(1, 2, 3), tokenize=True, echo=True)
    assert generation("/detokenize", {"tokens": []}).prompt == ()


@each_row(("body", "tokenized"), [({"prompt": "a"}, "a"), ({"tokens": [1]}, (1,))], ids=["prompt", "tokens"])
def test_on_the_one_path_the_request_says_so(body: dict[str, Any], tokenized: object) -> None:
    attributes = {"dialect": "tokens"}
    assert generation("/invocations", body, attributes=attributes).prompt == tokenized


def test_a_model_that_embeds_has_tokens_too() -> None:
    settings = typed_settings(task="text-embedding")
    assert generation("/tokenize", {"prompt": "a"}, settings).tokenize
    assert generation("/detokenize", {"tokens": [1]}, settings).tokenize


@each_row(
    ("path", "body", "message"),
    [
        ("/tokenize", {}, "prompt: expected a string, or a field messages, but there is none"),
        ("/tokenize", {"prompt": ["a"]}, "prompt: expected a string, got ['a']"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, "messages: cannot be combined with prompt"),
        ("/tokenize", {"messages": "a"}, "messages: expected a list of messages, got 'a'"),
        ("/tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs: expected true or false, got 1"),
        ("/tokenize", {"prompt": "a", "chat_template": "x"}, f"chat_template: not supported ({TEMPLATES})"),
        ("/tokenize", {"prompt": "a", "temperature": 0}, "temperature: unknown field"),
        ("/detokenize", {"prompt": "a"}, "prompt: unknown field"),
        ("/detokenize", {}, "tokens: expected a list of token ids, but there is no such field"),
        ("/detokenize", {"tokens": "a"}, "tokens: expected a list of token ids, got 'a'"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]: expected an integer >= 0, got -1"),
        ("/detokenize", {"tokens": [2**63]}, f"tokens[0]: expected an integer from 0 to {2**31 - 1}, got {2**63}"),
    ],
)
def test_what_is_refused(path: str, body: dict[str, Any], message: str) -> None:
    answer = asked(path, body)
    assert isinstance(answer, Response), answer
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["message"], error["type"]) == (400, message, "invalid_request_error")
    assert error["param"] == message.partition(":")[0]


@pytest.mark.engine
def test_all_fields_of_vllms_server_are_known() -> None:
    from vllm.entrypoints.serve.tokenize.protocol import (
        DetokenizeRequest,
        TokenizeChatRequest,
        TokenizeCompletionRequest,
    )

    known = {row.name for row in TOKENIZE_TABLE}
    assert {*TokenizeChatRequest.model_fields, *TokenizeCompletionRequest.model_fields} - known == set()
    assert {*DetokenizeRequest.model_fields} == {*DETOKENIZE_ROWS}
