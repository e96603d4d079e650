"""litellm with an OpenAI-compatible server: a streamed chat that calls tools, and the answer to their results; and what
it makes of a prompt that is too long, by each of the server's APIs.

python litellm_chat.py URL '{"prompt": ..., "tools": [...], "results": [...], "long": ...}'  ->  what it saw, as JSON
"""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm

WAYS = (("openai/any", "/v1", False), ("openai/any", "/v1", True), ("anthropic/any", "", False),
        ("text-completion-openai/any", "/v1", False))  # fmt: skip
"""A provider with its model, the path of its API, and whether it streams."""


def too_long(url: str, prompt: str, model: str, path: str, stream: bool) -> str:
    """The name of the error that litellm makes of the server's; agents shorten a conversation by it."""
    try:
        litellm.completion(
            model=model,
            api_base=f"{url}{path}",
            api_key="none",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=10,
            stream=stream,
            num_retries=0,
        )
    except Exception as error:  # noqa: BLE001 - which one it is
        return type(error).__name__
    return "none"


def main(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    def stream(messages: list[Any]) -> Any:
        chunks = list(
            litellm.completion(
                model="openai/any",
                api_base=f"{url}/v1",
                api_key="none",
                messages=messages,
                tools=asked["tools"],
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                timeout=120,
                num_retries=0,
            )
        )
        return litellm.stream_chunk_builder(chunks, messages=messages)

    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    whole = stream(messages)
    (choice,) = whole.choices
    calls = choice.message.tool_calls or []
    messages.append(choice.message.model_dump())
    for call, result in zip(calls, asked["results"], strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    (answer,) = stream(messages).choices
    return {
        "too_long": [too_long(url, asked["long"], *way) for way in WAYS],
        "calls": [
            {"name": call.function.name, "arguments": json.loads(call.function.arguments), "id": call.id}
            for call in calls
        ],
        "finish": choice.finish_reason,
        "usage": {name: whole.usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
        "answer": answer.message.content,
        "answer_finish": answer.finish_reason,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
