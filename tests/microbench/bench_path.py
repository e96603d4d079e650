"""`make microbench`: CPU time of formatters, of the token path and of hosts. Not collected by pytest unless named.

A round of the path is 64 requests of 100 tokens, from the engine's output to the frames that Java gets; a round of a
formatter 20 answers of 100 tokens. `extra_info` has microseconds of a thread's CPU a token, by stage, of the cheapest
round: what else the machine does can only add to one. profile.py makes tables of it, compare.py compares two commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..kit.djl import hosting
from . import hosts
from .path import BODIES, SEQUENCES, TOKENS, TokenPath, ours
from .replies import REQUESTS, reply_cost

pytestmark = pytest.mark.benchmark(timer=time.thread_time, disable_gc=True)

ROUNDS = 3
STREAMED = ("LMI stream, log_prob", "chat stream", "TGI stream")
BESIDE = {"opening a request", "engine core, acted", "output"}
"""Stages that are no part of a token's way."""
HOSTS = {one.__name__: one for one in (hosts.local_server, hosts.rolling_batch, hosts.async_mode)}


@pytest.fixture(scope="module")
def path(demo_model: Path) -> Iterator[TokenPath]:
    made = TokenPath(demo_model)
    yield made
    made.close()


def measured(benchmark: Any, cost: Callable[[], Mapping[str, float]], rounds: int = ROUNDS) -> Mapping[str, float]:
    """The cheapest round."""
    found: list[Mapping[str, float]] = []
    benchmark.pedantic(lambda: found.append(cost()), rounds=rounds, warmup_rounds=1)
    return min(found, key=lambda costs: sum(costs.values()))


@pytest.mark.benchmark(group="the path of a token")
@pytest.mark.parametrize("kind", BODIES)
def test_the_path_of_a_token(benchmark: Any, path: TokenPath, kind: str) -> None:
    stages = measured(benchmark, lambda: path.cost(kind))
    benchmark.extra_info.update({stage: spent for stage, spent in stages.items() if stage not in BESIDE})
    benchmark.extra_info["ours"] = ours(stages)
    benchmark.extra_info["a whole request's opening"] = stages["opening a request"] * TOKENS


@pytest.mark.benchmark(group="ours, with more tokens a step")
@pytest.mark.parametrize("kind", STREAMED[:1])
@pytest.mark.parametrize("per_step", [1, 4, 16])
def test_more_tokens_a_step(benchmark: Any, path: TokenPath, kind: str, per_step: int) -> None:
    benchmark.extra_info[f"{per_step} a step"] = ours(measured(benchmark, lambda: path.cost(kind, per_step)))


@pytest.mark.benchmark(group="what hosts add")
@pytest.mark.parametrize("kind", STREAMED)
@pytest.mark.parametrize("host", HOSTS)
def test_a_host(benchmark: Any, path: TokenPath, kind: str, host: str) -> None:
    if host == "rolling_batch" and (missing := hosting.available()):
        pytest.skip(missing)
    benchmark.extra_info.update(measured(benchmark, lambda: HOSTS[host](path, kind)))


@pytest.mark.skipif(hosting.available() is not None, reason="without DJL's engine")
@pytest.mark.benchmark(group="djl_python's async engine")
@pytest.mark.parametrize("kind", ["a message"])
def test_a_message(benchmark: Any, kind: str) -> None:
    benchmark.extra_info |= measured(benchmark, lambda: {kind: (spent := hosts.hop()), "a token": spent / SEQUENCES})


@pytest.mark.benchmark(group="Reply.feed alone")
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("per_step", [1, 4, 16])
def test_a_formatter(benchmark: Any, kind: str, per_step: int) -> None:
    name = f"{per_step} a step"
    benchmark.extra_info |= measured(benchmark, lambda: {name: reply_cost(kind, per_step)}, rounds=15)
