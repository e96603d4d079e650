"""How a caller of an endpoint speaks each dialect: requests of one question, and where their answers have the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...demo.model import question

__all__ = ["ASKED", "JSON", "JSON_LINES", "SPOKEN", "SSE", "Body", "Spoken", "chat", "complete", "generate", "records"]

ASKED = question("unicode")
JSON = "application/json"
JSON_LINES = "application/jsonlines"
SSE = "text/event-stream"

Body = dict[str, Any]


@dataclass(frozen=True)
class Spoken:
    """How a caller of an endpoint speaks a dialect.

    whole: the body of a request that asks ASKED.
    bad: the same with a temperature of -1; `status` is what that is answered with, 200 where it is told in the stream.
    kinds: the content types of a whole and of a streamed answer.
    text: the text of a whole answer; `piece`: of a record of a stream.
    end: the last line of a stream, where it is no record.
    accept: the content type that is asked for, if any.
    """

    dialect: str
    whole: Body
    bad: Body
    status: int
    kinds: tuple[str, str]
    text: Callable[[Any], str]
    piece: Callable[[Any], str]
    end: bytes | None = None
    accept: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Those of a request to /invocations, whose custom attribute names the dialect."""
        return {
            "content-type": JSON,
            "X-Amzn-SageMaker-Custom-Attributes": f"dialect={self.dialect}",
            "accept": self.accept or "*/*",
        }

    @property
    def stream(self) -> Body:
        """The body of the same request for a stream."""
        return {**self.whole, "stream": True}


def generate(**parameters: Any) -> Body:
    return {"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 400, **parameters}}


def chat(**fields: Any) -> Body:
    return {"model": "any", "messages": [{"role": "user", "content": ASKED.prompt}], **fields}


def complete(**fields: Any) -> Body:
    return {"model": "any", "prompt": ASKED.prompt, "max_tokens": 400, **fields}


def delta(record: Any) -> str:
    return str(record["choices"][0]["delta"].get("content") or "") if record["choices"] else ""


SPOKEN = {
    "lmi": Spoken(
        "lmi",
        generate(details=True),
        generate(temperature=-1),
        424,
        (JSON, JSON_LINES),
        lambda answer: answer["generated_text"],
        lambda record: record["token"]["text"],
    ),
    "tgi": Spoken(
        "tgi",
        generate(details=True),
        generate(temperature=-1),
        422,
        (JSON, SSE),
        lambda answer: answer[0]["generated_text"],
        lambda record: "" if record["token"]["special"] else record["token"]["text"],
    ),
    "dynamic": Spoken(
        "dynamic",
        {"inputs": [ASKED.prompt], "parameters": {"max_new_tokens": 400}},
        generate(temperature=-1),
        424,
        (JSON, JSON_LINES),
        lambda answer: answer[0]["generated_text"],
        lambda record: record["outputs"][0],
    ),
    "openai, chat": Spoken(
        "openai",
        chat(temperature=0),
        chat(temperature=-1),
        400,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["message"]["content"],
        delta,
        b"data: [DONE]",
    ),
    "openai, text": Spoken(
        "openai",
        complete(temperature=0),
        complete(temperature=-1),
        400,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["text"],
        lambda record: record["choices"][0]["text"],
        b"data: [DONE]",
    ),
    "anthropic": Spoken(
        "anthropic",
        chat(temperature=0, max_tokens=400),
        chat(temperature=-1, max_tokens=400),
        400,
        (JSON, SSE),
        lambda answer: answer["content"][0]["text"],
        lambda record: record.get("delta", {}).get("text", ""),
    ),
    "responses": Spoken(
        "responses",
        {"input": ASKED.prompt, "temperature": 0},
        {"input": ASKED.prompt, "temperature": -1},
        400,
        (JSON, SSE),
        lambda answer: answer["output"][0]["content"][0]["text"],
        lambda record: record["delta"] if record["type"] == "response.output_text.delta" else "",
    ),
    "azure": Spoken(
        "azure",
        chat(temperature=0),
        chat(temperature=-1),
        422,
        (JSON, SSE),
        lambda answer: answer["choices"][0]["message"]["content"],
        delta,
        b"data: [DONE]",
    ),
    "minimal": Spoken(
        "minimal",
        chat(temperature=0),
        chat(temperature=-1),
        400,
        (JSON, JSON),
        lambda answer: answer["message"]["content"],
        lambda record: record["message"]["content"],
    ),
    "minimal, events": Spoken(
        "minimal",
        chat(temperature=0),
        chat(temperature=-1),
        200,
        (JSON, SSE),
        lambda answer: answer["message"]["content"],
        lambda record: record["message"]["content"],
        b"data: [END]",
        SSE,
    ),
}
"""Every dialect of kit/api/dialects.py: GENERATING must be here, see `test_every_dialect_is_spoken`."""


def records(spoken: Spoken, given: Iterable[bytes]) -> list[Any]:
    """The documents of a stream's lines."""
    *documents, last = [line for line in given if line and not line.startswith(b"event: ")]
    if spoken.end is None:
        documents.append(last)
    else:
        assert last == spoken.end
    return [json.loads(document.removeprefix(b"data: ")) for document in documents]
