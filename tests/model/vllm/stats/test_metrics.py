"""vLLM's own metrics of a real engine, from the first scrape on."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ....demo.model import question
from ....kit.api.options import make_settings
from ....kit.api.types import Generation, Sampling
from ....kit.engines.backends import run
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


def samples(text: bytes) -> dict[str, float]:
    """By name, what there is of all engines and labels together."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_metrics(demo_model: Path, tmp_path: Path) -> None:
    directory = model_directory(demo_model, tmp_path / "model", {"option.enable_prefix_caching": "true"})
    backend = in_process(make_settings(directory, served_model_name="demo"))
    asked = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True)
    prompt = question("plain").prompt

    def say(number: str) -> None:
        run(backend, Generation(request_id=number, prompt=prompt, sampling=asked))

    try:
        say("uncounted")
        before = samples(backend.metrics("text/plain"))
        say("counted")
        after = samples(backend.metrics("text/plain"))
        last = backend.metrics("application/openmetrics-text; version=1.0.0")
    finally:
        backend.close()
    assert before["vllm:generation_tokens_total"] == 0
    assert after["vllm:generation_tokens_total"] == 40
    assert after["vllm:prompt_tokens_total"] == after["vllm:prompt_tokens_by_source_total"] > 0
    assert after["vllm:iteration_tokens_total_sum"] == 40 + after["vllm:prompt_tokens_total"]
    assert after["vllm:prefix_cache_queries_total"] > before["vllm:prefix_cache_queries_total"]
    assert (after["vllm:num_requests_running"], after["vllm:num_requests_waiting"]) == (0, 0)
    assert after["vllm:cache_config_info"] == 1
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert (before[f"vllm:{name}_count"], after[f"vllm:{name}_count"]) == (0, 1), name
    assert after["vllm:inter_token_latency_seconds_count"] == 39
    assert b'vllm:request_success_total{engine="0",finished_reason="length",model_name="demo"} 1.0' in last
    # What there is nothing of is not shown as zeros.
    assert not [name for name in after if name.startswith(("vllm:lora_requests_info", "vllm:spec_decode"))]
    assert all(name.startswith("vllm:") for name in after)
    assert last.endswith(b"# EOF\n")
    assert b'vllm:generation_tokens_total{engine="0",model_name="demo"} 40.0' in last
