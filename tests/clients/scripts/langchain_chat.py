"""langchain-openai: a streamed chat that calls tools, the tools' results given back, and the answer to them; and what
it makes of a prompt that is too long.

python langchain_chat.py URL '{"prompt": ..., "tools": [...], "results": [...], "long": ...}'  ->  what it saw, as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


def overflows(send: Callable[[], object]) -> bool:
    """Whether the error is the one by which a conversation is shortened."""
    try:
        send()
    except ContextOverflowError:
        return True
    return False


def main(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    model = ChatOpenAI(
        base_url=f"{url}/v1", api_key="none", model="any", temperature=0, max_retries=0, stream_usage=True, timeout=120
    ).bind_tools(asked["tools"])
    messages: list[Any] = [HumanMessage(asked["prompt"])]
    called: Any = reduce(add, model.stream(messages))
    messages.append(called)
    for call, result in zip(called.tool_calls, asked["results"], strict=True):
        messages.append(ToolMessage(result, tool_call_id=call["id"]))
    answer: Any = reduce(add, model.stream(messages))
    long = [HumanMessage(asked["long"])]
    return {
        "too_long": [overflows(lambda: model.invoke(long)), overflows(lambda: list(model.stream(long)))],
        "calls": [{"name": call["name"], "arguments": call["args"], "id": call["id"]} for call in called.tool_calls],
        "invalid": len(called.invalid_tool_calls),
        "finish": called.response_metadata.get("finish_reason"),
        "usage": called.usage_metadata,
        "answer": answer.content,
        "answer_finish": answer.response_metadata.get("finish_reason"),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
