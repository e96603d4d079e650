"""Requests that are accepted, one or more of each dialect and form, and what is refused by its schema alone.

They are what near-valid bodies are made of (bodies.py), and what /openapi.json is held against
(tests/handler/server/test_openapi.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["REFUSED", "SAMPLES", "Sample"]

VERSION = {"api-version": "2024-05-01-preview"}
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)


@dataclass(frozen=True)
class Sample:
    """A request."""

    name: str
    path: str
    body: dict[str, Any]
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of Settings that are not the usual ones."""


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": True,
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": IMAGE}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"},
    {"role": "assistant", "content": "It is sunny.", "refusal": None},
    {"role": "user", "content": "Thanks", "name": "Ann"},
]
ASK: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": IMAGE, "detail": "low"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is sunny."}]},
        {"role": "user", "content": "Thanks"},
    ],
    "tools": [{"type": "function", **TOOL["function"]}],  # type: ignore[dict-item]
    "tool_choice": {"type": "function", "name": "weather"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "max_output_tokens": 10,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"verbosity": "low"},
    "truncation": "auto",
    "metadata": {"a": "b"},
    "store": False,
}

LMI: dict[str, Any] = {
    "inputs": "What is a model?",
    "parameters": {
        "do_sample": True,
        "seed": 7,
        "temperature": 0.7,
        "repetition_penalty": 1.1,
        "top_k": 5,
        "top_p": 0.9,
        "max_new_tokens": 20,
        "details": True,
        "return_full_text": False,
        "stop_sequences": ["\n\n", "end"],
        "decoder_input_details": True,
    },
    "stream": False,
}
"""LMI's schema, GenerationParameters."""

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": CONVERSATION,
    "tools": [TOOL],
    "tool_choice": "auto",
    "temperature": 0.5,
    "max_tokens": 10,
    "n": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": -100},
    "stop": ["x"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "seed": 3,
}
"""OpenAI's chat."""

MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "How is the weather here?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": IMAGE.partition(",")[2]},
                },
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "a"},
                {"type": "redacted_thinking", "data": "a"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Sunny"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "No such city", "is_error": True},
            ],
        },
    ],
    "tools": [{"name": "weather", "description": "It", "input_schema": SCHEMA}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stream": True,
}
"""Anthropic's Messages."""

SAMPLES: tuple[Sample, ...] = (
    Sample("transcription", "/v1/audio/transcriptions", {
        "file": "UklGRg==", "model": "m", "language": "en", "prompt": "Hi", "response_format": "json", "seed": 7,
        "temperature": 0.5, "stream": True, "timestamp_granularities": [], "hotwords": "a", "vllm_xargs": {"a": 1},
    }),
    Sample("translation", "/v1/audio/translations", {"file": "UklGRg==", "response_format": "verbose_json"}),
    Sample("lmi", "/invocations", LMI),
    Sample("lmi streamed", "/invocations", {"inputs": "a", "stream": True, "parameters": None}),
    Sample("lmi beams", "/invocations", {"inputs": "a", "parameters": {"num_beams": 2, "early_stopping": "never"}}),
    Sample("lmi vllm", "/invocations", {"inputs": "a", "parameters": {"min_p": 0.1, "n": 2, "stop_token_ids": [1]}}),
    Sample("lmi trtllm", "/invocations", {"inputs": "a", "parameters": {"top_p": 0, "end_id": 2}},
           settings={"parameter_schema": "trtllm"}),
    Sample("dynamic", "/invocations", {"inputs": ["a", "b"], "parameters": {}}, settings={"rolling_batch": "disable"}),
    Sample("tgi compat", "/invocations", {"inputs": "a", "parameters": {"details": True, "do_sample": True}},
           settings={"tgi_compat": True}),
    Sample("tgi", "/generate", {"inputs": "a", "parameters": {"grammar": {"type": "json", "value": SCHEMA}}}),
    Sample("tgi regex", "/generate", {"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": "[0-9]+"}}}),
    Sample("tgi stream", "/generate_stream", {"inputs": "a", "parameters": {"top_n_tokens": 2, "stop": ["."]}}),
    Sample("tgi root", "/", {"inputs": "a", "stream": True}),
    Sample("chat", "/v1/chat/completions", CHAT),
    Sample("chat by body", "/invocations", {"messages": ASK, "max_completion_tokens": 5}),
    Sample("chat schema", "/v1/chat/completions", {
        "messages": ASK,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
    }),
    Sample("chat object", "/v1/chat/completions", {"messages": ASK, "response_format": {"type": "json_object"}}),
    Sample("chat forced", "/v1/chat/completions", {
        "messages": ASK, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }),
    Sample("chat functions", "/v1/chat/completions", {
        "messages": [*ASK, {"role": "assistant", "content": None, "function_call": CALL["function"]},
                     {"role": "function", "name": "weather", "content": "Sunny"}],
        "functions": [TOOL["function"]], "function_call": {"name": "weather"},
    }),
    Sample("chat template", "/v1/chat/completions", {
        "messages": ASK, "chat_template_kwargs": {"enable_thinking": False}, "documents": [{"title": "a"}],
    }),
    Sample("text", "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3, "logprobs": 1, "echo": True}),
    Sample("text ids", "/v1/completions", {"prompt": [[1, 2], [3]], "best_of": 3, "n": 2}),
    Sample("text vllm", "/v1/completions", {
        "prompt": "a", "cache_salt": "x", "allowed_token_ids": [5, 6], "vllm_xargs": {"a": [1, "b"], "c": 0.5},
        "thinking_token_budget": 5, "truncation_side": "right", "return_token_ids": True,
        "structured_outputs": {"structural_tag": {"format": {"type": "const_string", "value": "a"}}},
    }),
    Sample("text regex", "/invocations", {"prompt": "a", "guided_regex": "[a-z]+"}),
    Sample("text choice", "/v1/completions", {"prompt": "a", "guided_choice": ["yes", "no"]}),
    Sample("text grammar", "/v1/completions", {"prompt": "a", "structured_outputs": {"grammar": 'root ::= "a"'}}),
    Sample("responses", "/v1/responses", RESPONSES),
    Sample("responses by body", "/invocations", {"input": [{"role": "user", "content": "a"}], "stream": True}),
    Sample("responses schema", "/v1/responses", {
        "input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
    }),
    Sample("embeddings", "/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 8},
           settings={"task": "embed"}),
    Sample("vectors", "/invocations", {"inputs": ["a", "b"], "normalize": True, "truncate": 5},
           settings={"task": "embed"}),
    Sample("messages", "/v1/messages", MESSAGES),
    Sample("messages by body", "/invocations", {**MESSAGES, "stream": False}),
    Sample("messages, plain", "/v1/messages", {
        "model": "m", "messages": ASK, "max_tokens": 5, "system": "Be brief", "temperature": 0.5, "top_k": 3,
        "stop_sequences": ["x"], "metadata": {"user_id": "a"}, "output_config": {"effort": "low", "format": {
            "type": "json_schema", "schema": SCHEMA,
        }},
    }),
    Sample("tokens of messages", "/v1/messages/count_tokens", {
        "model": "m", "messages": MESSAGES["messages"], "tools": MESSAGES["tools"],
    }),
    Sample("rerank", "/rerank", {"model": "m", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1,
                                 "return_documents": True, "max_tokens_per_doc": 9}, settings={"task": "rank"}),
    Sample("rerank cohere", "/v2/rerank", {"model": "m", "query": "a", "documents": ["b"]}, settings={"task": "rank"}),
    Sample("rerank by vectors", "/v1/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": -1},
           settings={"task": "embed"}),
    Sample("rerank tei", "/rerank", {"query": "a", "texts": ["b", "c"], "raw_scores": True, "return_text": True},
           settings={"task": "rank"}),
    Sample("rerank by body", "/invocations", {"query": "a", "documents": ["b"], "use_activation": False},
           settings={"task": "rank"}),
    Sample("score", "/score", {"text_1": "a", "text_2": ["b", "c"], "instruction": "d"}, settings={"task": "rank"}),
    Sample("score several", "/v1/score", {"queries": ["a", "b"], "documents": ["b", "c"]}, settings={"task": "rank"}),
    Sample("classify", "/classify", {"input": ["a", "b"], "truncation_side": "left"}, settings={"task": "classify"}),
    Sample("classify messages", "/classify", {"messages": ASK}, settings={"task": "classify"}),
    Sample("predict", "/predict", {"inputs": [["a"], ["b", "c"]], "truncate": True}, settings={"task": "classify"}),
    Sample("predict by body", "/invocations", {"inputs": "a", "parameters": {"raw_scores": True}},
           settings={"task": "classify"}),
    Sample("azure", "/chat/completions", {
        "messages": [{"role": "user", "content": [{"type": "text", "content": "Hi"},
                                                  {"type": "image_url", "content": IMAGE, "detail": "low"}]}],
        "temperature": 1, "presence_penalty": 0.5,
    }, VERSION),
    Sample("minimal", "/chat/completions", {"model": "m", "messages": ASK, "stream": True}),
    Sample("events", "/chat/sse", {"model": "m", "messages": ASK}),
    Sample("tokens of a text", "/tokenize", {"prompt": "a", "add_special_tokens": False, "return_token_strs": True}),
    Sample("tokens of a chat", "/tokenize", {"messages": ASK, "tools": [TOOL], "reasoning_effort": "low"}),
    Sample("text of tokens", "/detokenize", {"tokens": [1, 2]}),
)  # fmt: skip

REFUSED: tuple[Sample, ...] = (
    Sample("lmi type", "/invocations", {"inputs": 5}),
    Sample("lmi value", "/invocations", {"inputs": "a", "parameters": {"temperature": -1}}),
    Sample("dynamic type", "/invocations", {"inputs": [5]}, settings={"rolling_batch": "disable"}),
    Sample("vectors type", "/invocations", {"inputs": "a", "truncate": "no"}, settings={"task": "embed"}),
    Sample("tgi value", "/generate", {"inputs": "a", "parameters": {"best_of": 99}}),
    Sample("tgi stream type", "/", {"inputs": "a", "stream": 1}),
    Sample("chat role", "/v1/chat/completions", {"messages": [{"role": 5, "content": "a"}]}),
    Sample("chat bias", "/v1/chat/completions", {"messages": ASK, "logit_bias": {"x": 1}}),
    Sample("chat tools", "/v1/chat/completions", {"messages": ASK, "tools": [{"type": "function"}]}),
    Sample("responses role", "/v1/responses", {"input": [{"role": "king", "content": "a"}]}),
    Sample("responses item", "/v1/responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
    Sample("responses tool", "/v1/responses", {"input": "a", "tools": [{"type": "namespace", "name": "a"}]}),
    Sample("responses background", "/v1/responses", {"input": "a", "background": True}),
    Sample("text ids", "/v1/completions", {"prompt": [[1, -2]]}),
    Sample("text salt", "/v1/completions", {"prompt": "a", "cache_salt": ""}),
    Sample("embeddings type", "/v1/embeddings", {"input": {}}, settings={"task": "embed"}),
    Sample("messages limit", "/v1/messages", {"messages": ASK}),
    Sample(
        "messages block",
        "/v1/messages",
        {
            "messages": [{"role": "user", "content": [{"type": "tool_use"}]}],
            "max_tokens": 5,
        },
    ),
    Sample("messages tool", "/v1/messages", {"messages": ASK, "max_tokens": 5, "tools": [{"name": "a"}]}),
    Sample("tokens of no messages", "/v1/messages/count_tokens", {"messages": []}),
    Sample("rerank type", "/rerank", {"query": 5, "documents": ["a"]}, settings={"task": "rank"}),
    Sample("rerank value", "/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, settings={"task": "rank"}),
    Sample("score type", "/score", {"text_1": "a", "text_2": 5}, settings={"task": "rank"}),
    Sample("classify type", "/classify", {"input": {}}, settings={"task": "classify"}),
    Sample("predict type", "/predict", {"inputs": [["a", "b", "c"]]}, settings={"task": "classify"}),
    Sample("azure value", "/chat/completions", {"messages": ASK, "temperature": 3}, VERSION),
    Sample("azure type", "/chat/completions", {"messages": {}}, VERSION),
    Sample("minimal model", "/chat/completions", {"messages": ASK, "model": 5}),
    Sample("minimal lines", "/chat/completions", {"messages": [], "model": "m", "stream": True}),
    Sample("events role", "/chat/sse", {"model": "m", "messages": [{"role": "tool", "content": "a"}]}),
)
