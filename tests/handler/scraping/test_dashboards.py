"""What dashboards, autoscalers and routers ask of a vLLM server (asked.py) is there under load, or docs/operations.md
has a row that says why not and what to ask instead."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

from ...demo.model import question
from ...kit.hosts.host import Server, eventually
from ...kit.models.adapted import adapted_directory, write
from ...kit.paths import DOCS
from ...kit.rows import each_row
from .asked import Asked, asked

pytestmark = pytest.mark.engine

ADAPTER = "slight"
HEADING = "### Dashboards and autoscalers"
OF_NEWER_VERSIONS = {"vllm:prompt_tokens_cached_by_source_total"}
"""What the page says of them is which version has them."""
Labels = list[dict[str, str]]


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("dashboards")
    options = {
        "option.enable_prefix_caching": "true",
        "option.kv_cache_metrics": "true",
        "option.enable_mfu_metrics": "true",
    }
    directory = adapted_directory(demo_model, folder / "model", options)
    (directory / "adapters").symlink_to(write(demo_model, folder / "adapters", [ADAPTER])[ADAPTER].parent)
    running = Server(directory, folder / "log")
    yield running
    running.stop()


async def scrape(http: httpx.AsyncClient) -> list[Metric]:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    return list(text(answer.text))


def running_adapters(families: list[Metric]) -> list[str]:
    (family,) = (family for family in families if family.name == "vllm:lora_requests_info")
    (sample,) = family.samples
    return sample.labels["running_lora_adapters"].split(",")


async def load(http: httpx.AsyncClient) -> None:
    """A few requests of each sort, one that is refused among them, and a stream of an adapter's until it is seen."""
    endless = {"inputs": question("endless").prompt, "parameters": {"max_new_tokens": 1500}, "stream": True}
    plain = {"inputs": question("plain").prompt, "parameters": {"max_new_tokens": 20, "n": 2, "do_sample": True}}
    async with http.stream("POST", "/invocations", json={**endless, "adapters": ADAPTER}) as stream:
        assert stream.status_code == 200

        async def runs() -> bool:
            return ADAPTER in running_adapters(await scrape(http))

        await eventually(runs)
        await asyncio.gather(*(http.post("/invocations", json=plain) for _ in range(4)))
    assert (await http.post("/invocations", content=b"{")).status_code in range(400, 500)


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, Labels]:
    """The labels of each sample, by its name."""

    async def under_load() -> list[Metric]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            # Counting begins.
            await scrape(http)
            await load(http)
            return await scrape(http)

    samples: dict[str, Labels] = {}
    counts: dict[str, float] = {}
    for family in asyncio.run(under_load()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(dict(sample.labels))
            counts[sample.name] = counts.get(sample.name, 0) + sample.value
    empty = {
        name for name, count in counts.items() if name.startswith("vllm:") and name.endswith("_count") and not count
    }
    # Of blocks that were evicted.
    assert all(name.startswith("vllm:kv_block_") for name in empty), empty
    return samples


UTF8, UNDERSCORES = "escaping=allow-utf-8", "escaping=underscores"
ACCEPTED = [
    "*/*",
    # Prometheus 2.55's, Prometheus 3's, and the latter's where `metric_name_validation_scheme` is legacy.
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    f"application/openmetrics-text;version=1.0.0;{UTF8};q=0.5,text/plain;version=1.0.0;{UTF8};q=0.3,*/*;q=0.1",
    f"application/openmetrics-text;version=1.0.0;{UNDERSCORES};q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    f"text/plain;version=1.0.0;{UNDERSCORES},text/plain;version=0.0.4;q=0.5",
]


@each_row("accept", ACCEPTED)
def test_whoever_scrapes_gets_the_same_names(server: Server, accept: str) -> None:
    answer = httpx.get(f"{server.url}/metrics", headers={"accept": accept})
    is_open = answer.headers["content-type"].startswith("application/openmetrics-text")
    assert is_open == accept.startswith("application")
    names = {sample.name for family in (openmetrics if is_open else text)(answer.text) for sample in family.samples}
    assert {"vllm:num_requests_waiting", "vllm:time_to_first_token_seconds_bucket", "lmi_engine_up"} <= names
    assert {name for name in names if name.startswith("vllm_")} == set()


def missing(one: Asked, found: dict[str, Labels]) -> set[str]:
    """What there is not of a sample: itself, or labels of it."""
    if one.name not in found:
        return {one.name}
    known = found[one.name]
    return {f"{one.name}{{{label}}}" for label in one.labels if any(label not in labels for labels in known)} | {
        f"{one.name}{{{label}={value}}}"
        for label, values in one.labels.items()
        for value in values
        if all(labels.get(label) != value for labels in known)
    }


def rows() -> list[str]:
    """What the page's table says is not there: names, where * stands for any characters."""
    _, _, section = (DOCS / "operations.md").read_text(encoding="utf-8").partition(HEADING)
    table = section.partition("\n## ")[0]
    return [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall("`([^`]+)`", line.split("|")[1])
    ]


@each_row("who", sorted({one.who for one in asked()}))
def test_what_is_asked_for_is_there(found: dict[str, Labels], who: str) -> None:
    not_there = set().union(*(missing(one, found) for one in asked() if one.who == who))
    known = rows()
    assert {name for name in not_there if not any(fnmatch(name, row) for row in known)} == set()


def test_each_row_is_of_something_asked_for_that_is_not_there(found: dict[str, Labels]) -> None:
    not_there = set().union(*(missing(one, found) for one in asked())) | OF_NEWER_VERSIONS
    assert [row for row in rows() if not any(fnmatch(name, row) for name in not_there)] == []


def test_schedulers_read_numbers(found: dict[str, Labels]) -> None:
    """llm-d's and the Gateway API's make numbers of these labels, and drop the scrape's where they are none."""
    (cache,) = found["vllm:cache_config_info"]
    assert int(cache["block_size"]) > 0
    assert int(cache["num_gpu_blocks"]) > 0
    (lora,) = found["vllm:lora_requests_info"]
    assert int(lora["max_lora"]) > 0
