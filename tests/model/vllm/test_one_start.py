"""What an engine tells of itself and of vLLM's core, with one start for the options of all of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from ...demo.model import question
from ...kit.adapters import write_adapter
from ...kit.api.engine import Adapter
from ...kit.api.errors import ContextError
from ...kit.api.options import make_settings
from ...kit.api.types import Generation, Sampling
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.models.adapted import adapted_directory
from ...kit.paths import TESTS

pytestmark = pytest.mark.engine

CONNECTOR = {"kv_connector": "EchoConnector", "kv_connector_module_path": "kv_connector", "kv_role": "kv_both"}
PROPERTIES = {
    "option.served_model_name": "demo",
    "option.enable_prefix_caching": "true",
    "option.num_gpu_blocks_override": "24",
    "option.block_size": "128",
    "option.max_rolling_batch_size": "8",
    "option.disable_log_stats": "false",
    "option.kv_transfer_config": json.dumps(CONNECTOR),
}
ASKED = question("plain")
FRONT_END = {"vllm:admission_rejections"}
"""What vLLM registers for any model and its own front end counts alone."""


class Lines(logging.Handler):
    """The lines of a logger that no filter of ours holds back."""

    def __init__(self, logger: str) -> None:
        super().__init__()
        self.told: list[str] = []
        for handler in logging.getLogger("vllm").handlers:
            for one in handler.filters:
                self.addFilter(one)
        self._logger = logging.getLogger(logger)
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())

    def end(self) -> list[str]:
        """All that there have been."""
        self._logger.removeHandler(self)
        return self.told


@dataclass
class Started:
    backend: Any
    lines: list[str]
    """What was logged of the start."""


@pytest.fixture(scope="module")
def started(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    directory = adapted_directory(demo_model, tmp_path_factory.mktemp("one") / "model", PROPERTIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_LOG_STATS_INTERVAL", "0.01")
        patch.syspath_prepend(TESTS / "kit" / "models")
        ours = logging.getLogger("lmi")
        before = ours.level
        # Not by an attribute: loggers remember what was enabled at an earlier start.
        ours.setLevel(logging.INFO)
        lines = Lines("lmi")
        backend = in_process(make_settings(directory))
        ours.setLevel(before)
    yield Started(backend, lines.end())
    backend.close()


@pytest.fixture
def backend(started: Started) -> Any:
    return started.backend


def asking(tokens: int, **fields: Any) -> Generation:
    sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, n=fields.pop("n", 1))
    return Generation(**{"request_id": "r", "prompt": ASKED.prompt, "sampling": sampling, **fields})


def test_the_room_of_its_cache(started: Started) -> None:
    """model/vllm/setup/cache_room.py."""
    holds = "the KV cache holds"
    assert [line for line in started.lines if line.startswith(holds)] == [
        f"{holds} 3072 tokens: 1.5 requests of max_model_len=2048, or 8 (max_rolling_batch_size) of 384 tokens each"
    ]


def samples(text: bytes) -> dict[str, float]:
    """By name, what there is of all engines and labels together."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_vllms_own_metrics_from_the_first_scrape_on(backend: Any) -> None:
    run(backend, asking(40))
    before = samples(backend.metrics("text/plain"))
    run(backend, asking(40))
    after = samples(backend.metrics("text/plain"))
    last = backend.metrics("application/openmetrics-text; version=1.0.0")
    registered = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("vllm:")}
    shown = {line.split()[2] for line in last.decode().splitlines() if line.startswith("# TYPE ")}
    assert registered - shown <= FRONT_END
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
    assert not [name for name in after if name.startswith("vllm:spec_decode")]
    assert all(name.startswith("vllm:") for name in after)
    assert last.endswith(b"# EOF\n")
    assert b'vllm:generation_tokens_total{engine="0",model_name="demo"} 40.0' in last


def statistics(backend: Any) -> list[str]:
    """vLLM's own lines about what it computes, of an answer."""
    lines = Lines("vllm.v1.metrics.loggers")
    run(backend, asking(200))
    return lines.end()


def test_statistics_are_logged_where_they_are_asked_for(backend: Any) -> None:
    told = statistics(backend)
    found = [re.search(r"Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs", line) for line in told]
    assert any(match and float(match[1]) > 0 and match[2] == "1" for match in found), told


def test_statistics_are_not_logged_where_they_are_not(plain_backend: Any) -> None:
    assert statistics(plain_backend) == []


PREFILLED = {"do_remote_prefill": True, "remote_engine_id": "elsewhere", "remote_block_ids": [[3]]}
TOLD = {"do_remote_decode": True, "remote_engine_id": None, "remote_block_ids": [[1, 2]]}


def test_a_connector_is_told_and_tells(backend: Any) -> None:
    """Each sequence's transfer parameters go in and come back, and those of a refused request, whose prompt has been
    computed elsewhere, go in.
    """
    with pytest.raises(ContextError):
        backend.prepare(1, asking(5, prompt="word " * 3000, kv_transfer_params=PREFILLED, overflow="refuse"))
    (events,) = run(backend, asking(5, n=2, kv_transfer_params=TOLD))
    assert len(deltas(events)) == 2
    for delta in deltas(events):
        assert ASKED.answer.startswith(delta.text)
        assert delta.finish is not None
        assert delta.finish.kv_transfer_params is not None
        assert delta.finish.kv_transfer_params["told"] == TOLD
        assert delta.finish.kv_transfer_params["blocks"]
        assert PREFILLED in delta.finish.kv_transfer_params["before"]


def test_an_adapter_that_is_unloaded_is_gone_from_the_core(backend: Any, demo_model: Path, tmp_path: Path) -> None:
    """By vLLM's own list of them."""
    config = json.loads((demo_model / "config.json").read_text())
    both = [Adapter(name, at, str(write_adapter(tmp_path / name, config))) for at, name in ((7, "a"), (8, "b"))]
    loader = backend.adapters
    for one in both:
        loader.know(one)
        backend.wait(loader.load(one))
    assert set(backend.ask_core("list_loras")) == {7, 8}
    backend.wait(loader.unload(both[0]))
    assert set(backend.ask_core("list_loras")) == {8}
