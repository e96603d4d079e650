"""vLLM's own OpenAI server as an oracle: the same greedy requests give the same texts, counts and finish reasons.

A tool call that is cut off is left out: vLLM's whole answer has it as text, its streamed one not; ours are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lmi.model.demo_model import QUESTIONS, question

from .endpoints import Server, model_directory
from .vllm_server import vllm_server

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def ours(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ours")
    directory = model_directory(demo_model, folder / "model", {"option.tool_call_parser": "hermes"})
    server = Server(directory, folder / "log")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def theirs(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    parser = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    with vllm_server(demo_model, tmp_path_factory.mktemp("theirs") / "log", parser) as client:
        yield client


def told(answer: httpx.Response) -> Any:
    """What must be the same."""
    body = answer.json()
    assert answer.status_code == 200, body
    choices = []
    for choice in body["choices"]:
        message = choice.get("message") or {"content": choice["text"]}
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
        choices.append((message["content"] or "", calls, choice["finish_reason"], choice["stop_reason"]))
    usage = body["usage"]
    return choices, usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


EXTRAS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 7},
    {"stop": ["e"]},
    {"stop": ["e"], "include_stop_str_in_output": True},
    {"ignore_eos": True, "max_tokens": 60},
    {"min_tokens": 12, "stop": ["a"]},
    {"repetition_penalty": 1.3, "max_tokens": 40},
    {"logit_bias": {"54": 50}, "max_tokens": 10},
    {"skip_special_tokens": False, "ignore_eos": True, "max_tokens": 60},
]


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_chat(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any]) -> None:
    for asked in QUESTIONS:
        if asked.endless and "max_tokens" not in extra and "stop" not in extra:
            continue
        if asked.tools and extra:
            continue
        body = {
            "model": str(demo_model),
            "messages": [{"role": "user", "content": asked.prompt}],
            "temperature": 0,
            **({"tools": asked.tools} if asked.tools else {}),
            **extra,
        }
        answers = [client.post("/v1/chat/completions", json=body) for client in (ours, theirs)]
        assert told(answers[0]) == told(answers[1]), asked.prompt


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_completions(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any]) -> None:
    prompts = [question(kind).prompt for kind in ("plain", "unicode", "endless", "json")]
    body = {"model": str(demo_model), "prompt": prompts, "temperature": 0, "max_tokens": 120, **extra}
    answers = [client.post("/v1/completions", json=body) for client in (ours, theirs)]
    assert told(answers[0]) == told(answers[1])


@pytest.mark.parametrize("extra", [{"logprobs": 3}, {"echo": True}], ids=str)
def test_completions_fields(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any]) -> None:
    body = {"model": str(demo_model), "prompt": question("plain").prompt, "temperature": 0, "max_tokens": 20, **extra}
    one, other = (client.post("/v1/completions", json=body) for client in (ours, theirs))
    assert told(one) == told(other)
    if "logprobs" in extra:
        logprobs, wanted = (answer.json()["choices"][0]["logprobs"] for answer in (one, other))
        assert logprobs["tokens"] == wanted["tokens"]
        assert logprobs["text_offset"] == wanted["text_offset"]
        assert logprobs["token_logprobs"] == pytest.approx(wanted["token_logprobs"], abs=1e-4)
