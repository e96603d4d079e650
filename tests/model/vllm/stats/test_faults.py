"""What goes wrong in vLLM's statistics and spans harms neither a request nor the engine: without vLLM."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.stats import tracing as tracing_module
from lmi.model.vllm.stats.tracing import Tracing

from ....kit.api.engine import vllm_core
from ....kit.api.types import Finish, Generation, Sampling


class Faulty:
    """Statistics that cannot be kept."""

    noted = 0

    def note(self, outputs: Any) -> None:
        del outputs
        self.noted += 1
        raise KeyError("engine_index")

    def render(self, content_type: str) -> bytes:
        return content_type.encode()


TOKEN = SimpleNamespace(finish_reason=None)


class Client:
    """vLLM's, of a core that goes on."""

    async def get_output_async(self) -> Any:
        return SimpleNamespace(engine_index=0, outputs=[TOKEN], scheduler_stats=None)


@pytest.mark.parametrize("asked", ["metrics", "log"])
def test_statistics(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str) -> None:
    nothing = SimpleNamespace(mm_processor=None)
    statistics = Faulty()
    for name, made in {
        "part": lambda _: lambda *_: nothing,
        "image_cache": lambda *_: None,
        "make_client": lambda *_: Client(),
        "check_attributes": lambda *_: None,
        "leave_rows": lambda _: None,
        "VllmMetrics": lambda *_: statistics,
        "StatsLog": lambda *_: statistics,
    }.items():
        monkeypatch.setattr(vllm_core, name, made)
    config: Any = SimpleNamespace(model_config=None, parallel_config=SimpleNamespace(data_parallel_backend="mp"))
    core = vllm_core.Core(config, log_stats=asked == "log")
    core.start()
    if asked == "metrics":
        assert core.metrics("text/plain") == b"text/plain"
    for _ in range(2):
        assert asyncio.run(core.receive()) == [TOKEN]
    assert core.metrics("text/plain") == b""
    assert statistics.noted == 1
    assert [record.message for record in caplog.records] == ["vLLM's statistics are not kept any more"]


def test_spans(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no exporter")

    names = SimpleNamespace(**{name: name for name in NAMES})
    parts: dict[str, Any] = {"instrument_manual": fail, "SpanAttributes": names, "SpanKind": SimpleNamespace(SERVER=1)}
    monkeypatch.setattr(tracing_module, "part", lambda place: parts.get(place.partition(":")[2], lambda *_: None))
    tracing = Tracing("http://localhost:4317", "model")
    for number in range(2):
        generation = Generation(request_id="r", prompt="", sampling=Sampling())
        tracing.begin(f"{number}.0", generation, 1, 0.0)
        tracing.end(f"{number}.0", Finish("eos"))
    tracing.end("of which nothing is known", Finish("eos"))
    tracing.drop("of which nothing is known")
    assert [record.message for record in caplog.records] == ["spans of requests cannot be made"]
    assert tracing._begun == {}


NAMES = (
    "GEN_AI_REQUEST_ID", "GEN_AI_REQUEST_N", "GEN_AI_REQUEST_MAX_TOKENS", "GEN_AI_REQUEST_TEMPERATURE",
    "GEN_AI_REQUEST_TOP_P", "GEN_AI_USAGE_PROMPT_TOKENS", "GEN_AI_USAGE_COMPLETION_TOKENS", "GEN_AI_LATENCY_E2E",
)  # fmt: skip
