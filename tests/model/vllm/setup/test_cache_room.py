"""What is told of the KV cache once an engine is up."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.setup.cache_room import cache_tokens, room, tell_room

from ....kit.api.options import make_settings


def config(*, longest: int = 2048, hybrid: bool = False, layers: list[str] | None = None, **cache: Any) -> Any:
    """A VllmConfig, as far as it is read."""
    model = SimpleNamespace(max_model_len=longest, is_hybrid=hybrid, hf_text_config=SimpleNamespace(layer_types=layers))
    blocks = {"num_gpu_blocks": 100, "block_size": 16, **cache}
    return SimpleNamespace(model_config=model, cache_config=SimpleNamespace(**blocks))


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        (config(), 1600),
        (config(layers=["full_attention", "full_attention"]), 1600),
        # vLLM 0.32 says so itself.
        (config(kv_cache_size_tokens=12345, hybrid=True), 12345),
        # In 0.23 blocks of these are shared by layers of several kinds.
        (config(hybrid=True), None),
        (config(layers=["full_attention", "sliding_attention"]), None),
        (config(num_gpu_blocks=None), None),
    ],
)
def test_tokens(given: Any, tokens: int | None) -> None:
    assert cache_tokens(given) == tokens


HOLDS = "the KV cache holds"
# Tokens of the cache, of the longest request, sequences at once; the line.
ROOM = [
    (64000, 1000, 64, logging.INFO, f"{HOLDS} 64000 tokens: 64.0 requests of max_model_len=1000"),
    (
        50000,
        8192,
        256,
        logging.INFO,
        f"{HOLDS} 50000 tokens: 6.1 requests of max_model_len=8192, or 256 (max_rolling_batch_size) of 195 tokens each",
    ),
    (
        512,
        2048,
        4,
        logging.WARNING,
        (
            f"{HOLDS} 512 tokens: 0.2 requests of max_model_len=2048, which is too few: lower option.max_model_len or "
            "option.max_rolling_batch_size, or raise option.gpu_memory_utilization or option.kv_cache_memory_bytes"
        ),
    ),
]


@pytest.mark.parametrize(("tokens", "longest", "sequences", "level", "line"), ROOM)
def test_what_is_told(tokens: int, longest: int, sequences: int, level: int, line: str) -> None:
    assert room(tokens, longest, sequences) == (level, line)


def test_it_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmi")
    tell_room(make_settings(max_rolling_batch_size="8"), config())
    tell_room(make_settings(), config(num_gpu_blocks=None))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("the KV cache holds 1600 tokens: 0.8 requests of max_model_len=2048, which")
