"""Requests as load generators send them, every field of which is known here, and what they read of the stream."""

from __future__ import annotations

from typing import Any

from lmi.formatters.openai import parse

from ...kit.answers.events import end
from ...kit.answers.openai import STRICT, USER, chunks
from ...kit.api.types import Delta, Request, Started, Token
from ...kit.rows import each_row

TOKENS = 32
PARTS: Any = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
USAGE = {"include_usage": True, "continuous_usage_stats": True}

SENT: dict[str, dict[str, Any]] = {
    # guidellm 0.8.1, guidellm/backends/openai/request_handlers.py: `format` of the text and of the chat handler.
    "guidellm 0.8.1, text": {
        "model": "demo", "stream": True, "stream_options": USAGE, "max_tokens": TOKENS, "stop": None,
        "ignore_eos": True, "prompt": "hi",
    },
    "guidellm 0.8.1, chat": {
        "model": "demo", "stream": True, "stream_options": USAGE, "max_completion_tokens": TOKENS, "stop": None,
        "ignore_eos": True, "messages": PARTS,
    },
    # vLLM 0.23.0, vllm/benchmarks/lib/endpoint_request_func.py: async_request_openai_completions,
    # async_request_openai_chat_completions, with --ignore-eos.
    "vllm bench serve 0.23.0, openai": {
        "model": "demo", "prompt": "hi", "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": None,
        "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
    },
    "vllm bench serve 0.23.0, openai-chat": {
        "model": "demo", "messages": PARTS, "max_completion_tokens": TOKENS, "stream": True,
        "stream_options": {"include_usage": True}, "ignore_eos": True,
    },
    # The same with its flags --temperature, --top-p, --top-k, --min-p and the penalties (vllm/benchmarks/serve.py).
    "vllm bench serve 0.23.0, openai-chat, all flags of sampling": {
        "model": "demo", "messages": [USER], "max_completion_tokens": TOKENS, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True}, "temperature": 0.0, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1,
    },
}  # fmt: skip


@each_row("who", SENT)
def test_a_request(who: str) -> None:
    """It takes every field, though unknown ones are refused here; the count of tokens is the one that was asked for."""
    body = SENT[who]
    call = parse(body, Request(b""), STRICT)
    (generation,) = call.generations
    assert generation.stream
    assert (generation.sampling.max_tokens, generation.sampling.ignore_eos) == (TOKENS, True)
    token = Token(1, "a", -0.5, raw=b"a")
    made = chunks(call.reply, Started(7), Delta(0, "a", (token,)), Delta(0, "a", (token,), end("length", 2)))
    # Both count the chunks that have text, and read the counts of tokens of the last one, which has no choices.
    texts = [choice.get("text") or choice.get("delta", {}).get("content") for one in made for choice in one["choices"]]
    assert [text for text in texts if text] == ["a", "a"]
    assert made[-1]["choices"] == []
    assert (made[-1]["usage"]["prompt_tokens"], made[-1]["usage"]["completion_tokens"]) == (7, 2)
    assert all(one.get("usage") for one in made) is (body["stream_options"] is USAGE)
