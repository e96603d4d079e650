"""litellm with SageMaker endpoints: `sagemaker_chat/` (OpenAI's messages) and `sagemaker/` (inputs and parameters).

    python litellm_sagemaker.py URL '{"chat": prompt, "text": prompt}'  ->  what it saw, as JSON

URL is that of the runtime API. The reader of streams takes each part of a stream for one record.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm

NOBODY = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "aws_region_name": "us-east-1"}


def main(url: str, asked: dict[str, str]) -> dict[str, Any]:
    def complete(provider: str, prompt: str, stream: bool, **fields: Any) -> Any:
        operation = "invocations-response-stream" if stream else "invocations"
        return litellm.completion(
            model=f"{provider}/demo",
            messages=[{"role": "user", "content": prompt}],
            sagemaker_base_url=f"{url}/endpoints/demo/{operation}",
            stream=stream,
            timeout=120,
            num_retries=0,
            **NOBODY,
            **fields,
        )

    def text(answer: Any) -> str:
        return str(answer.choices[0].message.content)

    def joined(chunks: list[Any]) -> str:
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    chat = list(complete("sagemaker_chat", asked["chat"], True, temperature=0))
    lines = list(complete("sagemaker", asked["text"], True, max_tokens=400))
    return {
        "chat": text(complete("sagemaker_chat", asked["chat"], False, temperature=0)),
        "chat_stream": joined(chat),
        "chat_chunks": len(chat),
        "chat_finish": [chunk.choices[0].finish_reason for chunk in chat if chunk.choices[0].finish_reason],
        "text": text(complete("sagemaker", asked["text"], False, max_tokens=400)),
        "text_stream": joined(lines),
        "text_chunks": len(lines),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
