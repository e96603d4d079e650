"""`make microbench`: CPU time of formatters and of the token path. Not collected by pytest unless named.

A round of the path is 64 requests of 100 tokens, from the engine's output to the frames that Java gets; a round of a
formatter is one request of 100 tokens. Divide by 6,400 and by 100 for the time of a token (extra info, `us_a_token`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .path import BODIES, SEQUENCES, TOKENS, TokenPath, ours
from .replies import REQUESTS, events_of, feed, reply_of

pytestmark = pytest.mark.benchmark(timer=time.thread_time, disable_gc=True)


@pytest.fixture(scope="module")
def path(demo_model: Path) -> Iterator[TokenPath]:
    made = TokenPath(demo_model)
    yield made
    made.close()


@pytest.mark.parametrize("per_step", [1, 4, 16])
@pytest.mark.parametrize("kind", BODIES)
def test_the_path_of_a_token(benchmark: Any, path: TokenPath, kind: str, per_step: int) -> None:
    path.core.per_step = per_step
    path.reset()
    sent = benchmark.pedantic(path.run, setup=lambda: path.open(kind), rounds=10, warmup_rounds=1)
    benchmark.extra_info["us_a_token"] = 1e6 * benchmark.stats.stats.min / SEQUENCES / TOKENS
    benchmark.extra_info["ours_us_a_token"] = ours(path.costs)
    assert sent


@pytest.mark.parametrize("per_step", [1, 4, 16])
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_formatter(benchmark: Any, kind: str, per_step: int) -> None:
    events = events_of(kind, per_step)
    records = benchmark.pedantic(
        feed, setup=lambda: ((reply_of(kind), events), {}), rounds=200, warmup_rounds=5, iterations=1
    )
    benchmark.extra_info["us_a_token"] = 1e6 * benchmark.stats.stats.min / TOKENS
    assert records
