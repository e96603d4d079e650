"""huggingface_hub's InferenceClient: chat completions, whole and streamed, and a tool call.

python huggingface_chat.py URL '{"chat": prompt, "call": prompt, "tools": [...]}'  ->  what it saw, as JSON
"""

from __future__ import annotations

import json
import sys
from typing import Any

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError


def main(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    client: Any = InferenceClient(base_url=url, api_key="none", timeout=120)

    def user(prompt: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": prompt}]

    whole = client.chat_completion(user(asked["chat"]), max_tokens=400, temperature=0)
    chunks = list(client.chat_completion(user(asked["chat"]), max_tokens=400, temperature=0, stream=True))
    calling = client.chat_completion(user(asked["call"]), tools=asked["tools"], max_tokens=400, temperature=0)
    try:
        client.chat_completion(user(asked["chat"]), temperature=-1)
        status, message = 200, ""
    except HfHubHTTPError as error:
        status, message = error.response.status_code, str(error)
    return {
        "text": whole.choices[0].message.content,
        "finish": whole.choices[0].finish_reason,
        "total_tokens": whole.usage.total_tokens,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "stream_finish": [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason],
        "calls": [
            {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
            for call in calling.choices[0].message.tool_calls
        ],
        "error_status": status,
        "error": message,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
