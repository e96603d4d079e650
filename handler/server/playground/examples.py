"""An example request for each route, and what of its body the page's form shows. A new dialect is an entry here.

Names of fields are paths in the body, as `parameters.temperature`. A route that has no entry is shown too, with an
empty body and no form.
"""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....formatters.routing import INVOCATIONS
from ....model.options import Settings

__all__ = ["EXAMPLES", "Example", "Json"]

Json = dict[str, Any]

MESSAGE = "Tell me a story."
PROMPT = "Once upon a time"
"""For routes that put no template around it: there most models go on with a text, and answer no question."""
MAX_TOKENS = 256
CITIES = ["Paris is the capital of France.", "Berlin is the capital of Germany."]
STREAM: Json = {"stream": True}
COUNTED: Json = {"stream": True, "stream_options": {"include_usage": True}}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Json = {"name": "get_weather", "description": "The weather in a city"}
CHAT_TOOLS: Json = {"tools": [{"type": "function", "function": {**WEATHER, "parameters": SCHEMA}}]}
LOGPROBS: Json = {"logprobs": True, "top_logprobs": 5}
STARTS = (
    ("What is the capital of Japan?", "And of Germany?"),
    ("Explain photosynthesis in one sentence.",),
    ("Rewrite in the past tense: The cat sleeps on the sofa.",),
    ("List five fruits.",),
    ("Name the three primary colors.",),
)
"""SmolLM2-135M-Instruct, which `make serve` serves, answered each right at least 9 times in 10; not so the capital of
France, what a spider's legs are, or a sentence made more polite.

The page sends no temperature: the model's own holds, which is 0.2 with a top_p of 0.9 in its generation_config.json.
At 0 an answer would be the same each time, and Regenerate seem broken.
"""


def _generates(settings: Settings) -> bool:
    return not settings.pools


def _embeds(settings: Settings) -> bool:
    return settings.embeds


@dataclass(frozen=True, slots=True)
class Example:
    """What the page shows for one route of one dialect."""

    dialect: str
    """Its NAME."""
    path: str
    title: str
    body: Callable[[str], Json]
    """An example, for a model of this name."""
    texts: tuple[str, ...] = ()
    """Fields that hold a text, or a list of texts."""
    numbers: tuple[str, ...] = ()
    """Fields that hold a number."""
    switches: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """By what it is called, what a switch adds to the body. Those named `tools` need a parser of tool calls."""
    stream: Json | None = None
    """What the body of a streamed request has beside; None: it does not stream, or by another path."""
    stream_path: str = ""
    """The path of streamed requests, where that is another one; the same path: it always streams."""
    query: str = ""
    media: str = ""
    """In whose form messages have images, audio and videos: `openai`, `azure`, `anthropic`; empty: they have none."""
    file: str = ""
    """The field of a file: with one from disk, the request is a form (multipart/form-data)."""
    client: str = ""
    """Which client of Python's code.js writes the request for; empty: one for HTTP."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    starts: tuple[tuple[str, ...], ...] = ()
    """What a user may say to begin a conversation, and then; empty: the page does not show the route as one."""
    by_body: bool = False
    """Whether the body alone may tell the dialect and the route on an endpoint; facts.py asks whether it does."""
    serves: Callable[[Settings], bool] | None = None
    """Whether an endpoint with these settings serves it, where the route's own document does not say that."""


def _chat(model: str) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": MESSAGE}], "max_tokens": MAX_TOKENS}


def _inputs(_model: str) -> Json:
    return {"inputs": PROMPT, "parameters": {"max_new_tokens": MAX_TOKENS}}


def _details(**more: Any) -> Mapping[str, Json]:
    return {"Details": {"parameters": {"details": True}}, "Likeliest tokens": {"parameters": more}}


def _silence() -> str:
    """A tenth of a second, as a WAV in base64: a file of one's own is to take its place."""
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(1600))
    return base64.b64encode(held.getvalue()).decode()


SAMPLING = ("temperature", "top_p", "seed", "max_tokens")
PARAMETERS = tuple(f"parameters.{name}" for name in ("temperature", "top_p", "seed", "max_new_tokens"))

EXAMPLES: tuple[Example, ...] = (
    Example(
        "openai", "/v1/chat/completions", "Chat completions", _chat, (), SAMPLING,
        {"Log-probabilities": LOGPROBS, "tools": CHAT_TOOLS}, COUNTED, media="openai", client="openai",
        starts=STARTS, by_body=True,
    ),
    Example(
        "openai", "/v1/completions", "Text completions",
        lambda model: {"model": model, "prompt": PROMPT, "max_tokens": MAX_TOKENS}, ("prompt",), SAMPLING,
        {"Log-probabilities": {"logprobs": 5}}, COUNTED, client="openai", by_body=True,
    ),
    Example(
        "openai", "/v1/embeddings", "Embeddings", lambda model: {"model": model, "input": CITIES}, ("input",),
        client="openai", by_body=True,
    ),
    Example(
        "responses", "/v1/responses", "Responses",
        lambda model: {"model": model, "input": MESSAGE, "max_output_tokens": MAX_TOKENS, "store": False},
        ("instructions", "input"), ("temperature", "top_p", "max_output_tokens"),
        {
            "Log-probabilities": {"include": ["message.output_text.logprobs"], "top_logprobs": 5},
            "tools": {"tools": [{"type": "function", **WEATHER, "parameters": SCHEMA}]},
        },
        STREAM, client="openai",
    ),
    Example(
        "responses", "/v1/responses/input_tokens", "Count input tokens",
        lambda model: {"model": model, "input": MESSAGE}, ("instructions", "input"), client="openai",
    ),
    Example(
        "anthropic", "/v1/messages", "Messages", _chat, ("system",), ("temperature", "top_p", "top_k", "max_tokens"),
        {"tools": {"tools": [{**WEATHER, "input_schema": SCHEMA}]}}, STREAM, media="anthropic", client="anthropic",
        headers={"anthropic-version": "2023-06-01"},
    ),
    Example(
        "anthropic", "/v1/messages/count_tokens", "Count tokens",
        lambda model: {"model": model, "messages": [{"role": "user", "content": MESSAGE}]}, ("system",),
        client="anthropic", headers={"anthropic-version": "2023-06-01"},
    ),
    Example(
        "lmi", INVOCATIONS, "LMI", _inputs, ("inputs",), PARAMETERS, _details(details=True, logprobs=5), STREAM,
        by_body=True, serves=_generates,
    ),
    Example(
        "lmi", INVOCATIONS, "LMI embeddings", lambda _: {"inputs": CITIES}, ("inputs",), by_body=True,
        serves=_embeds,
    ),
    Example(
        "dynamic", INVOCATIONS, "LMI, a dynamic batch", lambda _: {"inputs": [PROMPT], "parameters": {}}, ("inputs",),
        PARAMETERS, by_body=True, serves=lambda settings: settings.dynamic_batch and _generates(settings),
    ),
    Example(
        "tgi", "/generate", "Text Generation Inference", _inputs, ("inputs",), PARAMETERS,
        _details(details=True, top_n_tokens=5), stream_path="/generate_stream", client="huggingface",
    ),
    Example(
        "azure", "/chat/completions", "Azure AI Model Inference", _chat, (), SAMPLING, {"tools": CHAT_TOOLS}, STREAM,
        query="api-version=2024-05-01-preview", media="azure", client="azure",
    ),
    Example("minimal", "/chat/completions", "Minimal chat", _chat, (), SAMPLING, stream=STREAM),
    Example("minimal", "/chat/sse", "Minimal chat, as events", _chat, (), SAMPLING, stream_path="/chat/sse"),
    *(
        Example(
            "rerank", path, title,
            lambda model: {"model": model, "query": "The capital of France", "documents": CITIES},
            ("query", "documents"), ("top_n",),
        )
        for path, title in (("/v1/rerank", "Rerank"), ("/v2/rerank", "Rerank, Cohere's second version"))
    ),
    Example(
        "rerank", "/rerank", "Rerank, as Text Embeddings Inference",
        lambda _: {"query": "The capital of France", "texts": CITIES, "return_text": True}, ("query", "texts"),
    ),
    *(
        Example(
            "rerank", path, "Score",
            lambda model: {"model": model, "text_1": "The capital of France", "text_2": CITIES}, ("text_1", "text_2"),
        )
        for path in ("/score", "/v1/score")
    ),
    Example(
        "rerank", "/predict", "Classify, as Text Embeddings Inference", lambda _: {"inputs": CITIES[0]}, ("inputs",),
    ),
    Example("rerank", "/classify", "Classify", lambda model: {"model": model, "input": CITIES}, ("input",)),
    *(
        Example(
            "transcription", path, title, lambda model: {"model": model, "file": _silence()}, ("prompt",),
            ("temperature", "seed", "max_completion_tokens"), stream=STREAM, file="file", client="openai",
        )
        for path, title in (
            ("/v1/audio/transcriptions", "Transcribe audio"), ("/v1/audio/translations", "Translate audio"),
        )
    ),
    Example(
        "tokens", "/tokenize", "Tokenize", lambda model: {"model": model, "prompt": MESSAGE}, ("prompt",),
        serves=lambda _: True,
    ),
    Example(
        "tokens", "/detokenize", "Detokenize", lambda model: {"model": model, "tokens": [40, 41, 42]},
        serves=lambda _: True,
    ),
)  # fmt: skip
"""In the order in which they are offered."""
