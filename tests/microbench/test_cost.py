"""What our Python costs a token: after the engine's output object and before the host's send (tests/microbench).

CPU time of one thread, the cheapest of several rounds, against a limit that a slow machine is given in proportion.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..kit.api.types import Request
from ..kit.djl import hosting
from . import hosts
from .path import TokenPath, ours
from .replies import reply_cost

pytestmark = [pytest.mark.engine, pytest.mark.timing]

REFERENCE = 4.0
"""Microseconds that `work` takes where the limits were set."""


def work(_: int) -> None:
    """What a token's way is made of: small objects, calls, JSON."""
    json.loads(json.dumps({"token": {"id": 1, "text": " upon", "log_prob": -0.01}}))


def slowness() -> float:
    """How much slower than the reference this machine is now; at least 1."""
    best = float("inf")
    for _ in range(20):
        begun = time.thread_time()
        for number in range(200):
            work(number)
        best = min(best, (time.thread_time() - begun) / 200)
    return max(1.0, 1e6 * best / REFERENCE)


@pytest.fixture(scope="module")
def path(demo_model: Path) -> Iterator[TokenPath]:
    made = TokenPath(demo_model)
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "limit"), [("LMI stream, log_prob", 12.0), ("chat stream", 9.0)])
def test_our_python_a_token(path: TokenPath, kind: str, limit: float) -> None:
    costs: list[float] = []
    for _ in range(20):
        cost = ours(path.cost(kind))
        if hosting.available() is None:
            added = hosts.rolling_batch(path, kind)
            cost += added["input to requests"] + added["frames to output"]
        costs.append(cost)
        if cost <= limit * slowness():
            return
    pytest.fail(
        f"{min(costs):.1f} µs a token, expected at most {limit} (this machine is {slowness():.1f} times as slow)"
    )


@pytest.mark.parametrize("kind", ["Anthropic stream", "Responses stream"])
def test_a_token_of_named_events_costs_little_more_than_one_of_a_chat(kind: str) -> None:
    """They take turns, and of each the least counts: whatever else runs only adds to a cost."""
    costs: dict[str, list[float]] = {kind: [], "chat stream": []}
    for _ in range(5):
        for name, found in costs.items():
            found.append(min(reply_cost(name) for _ in range(5)))
    assert min(costs[kind]) <= 1.3 * min(costs["chat stream"]), costs


def test_what_is_measured_is_a_whole_answer(path: TokenPath) -> None:
    path.reset()
    path.open("LMI stream, log_prob", sequences=3, tokens=7)
    lines = [json.loads(line) for line in path.run().splitlines()]
    assert len(lines) == 7
    assert "".join(line["token"]["text"] for line in lines) == lines[-1]["generated_text"] != ""
    assert lines[-1]["details"]["generated_tokens"] == 7
    assert path.tokens == 21
    assert all(path.stages[stage] > 0 for stage in ("vLLM's decoding", "text and tokens", "replies"))


@pytest.mark.parametrize(
    "chat", [{}, {"stream": True, "stream_options": {"include_usage": True}}], ids=["whole", "stream"]
)
def test_a_long_answer_that_is_split_holds_up_nobody(
    demo_model: Path, monkeypatch: pytest.MonkeyPatch, chat: dict[str, object]
) -> None:
    """30,000 tokens of reasoning, tools offered: no step's work, from the core's bytes to the host, takes 50 ms.

    And the last tokens take no longer than the first; with plain lists of ids they take ten times as long.
    """
    # No model computes anything here.
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    path = TokenPath(demo_model, reasoning_parser="qwen3", tool_call_parser="hermes", max_model_len="32768")
    try:
        tokenizer = path.engine.backend._core.get_tokenizer()
        (think,) = tokenizer.encode("<think>", add_special_tokens=False)
        path.core.tokens = [think, *path.core.tokens]
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
        body = {"messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 30_000, "tools": [tool], **chat}
        (frame,) = path.rolling.step([Request(json.dumps(body).encode(), path="/invocations")])
        sent = [frame.data]
        steps: list[float] = []
        gc.collect()
        while not frame.last:
            begun = time.thread_time()
            path.pump()
            (frame,) = path.rolling.step([None])
            steps.append(time.thread_time() - begun)
            sent.append(frame.data)
        assert len(steps) >= 30_000
        assert max(steps) < 0.05, sorted(steps)[-10:]
        assert sum(steps[-3000:]) < 3 * sum(steps[1000:4000]), "the last tokens take longer than the first"
        assert b'"completion_tokens":30000' in b"".join(sent)
    finally:
        path.close()
