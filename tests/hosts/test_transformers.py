"""LMI's options for transformers: vLLM runs the model with transformers' modelling, and says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ..demo.model import QUESTIONS
from ..kit.hosts.host import client, model_directory, running

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.djl, pytest.mark.anyio]

OPTIONS = {
    "server": {"option.rolling_batch": "scheduler"},
    "rolling": {"option.rolling_batch": "hf-accelerate", "option.device_map": "auto"},
    "async": {"option.backend": "transformers"},
}
"""By host; the first is what is said."""
VLLMS_WORDS = "Resolved architecture: TransformersForCausalLM"


@pytest.mark.parametrize("kind", OPTIONS)
async def test_the_answers_that_the_model_knows(kind: str, demo_model: Path, tmp_path: Path) -> None:
    options = OPTIONS[kind]
    asked = [one for one in QUESTIONS if not one.endless]
    bodies = [{"inputs": one.prompt, "parameters": {"max_new_tokens": 400}, "stream": True} for one in asked]
    with running(kind, model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log", options) as host:
        async with client(host) as http:
            answers = await asyncio.gather(*map(http.stream, bodies))
        log = host.log_text()
    for one, streamed in zip(asked, answers, strict=True):
        assert "".join(document["token"]["text"] for document in streamed.documents) == one.answer
    (said, *_) = ("=".join(option) for option in options.items())
    assert log.count(f"{said} runs on vLLM, with transformers' modelling (model_impl=transformers)") == 1
    assert VLLMS_WORDS in log
