"""What is told of the KV cache once an engine is up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.setup.cache_room import room, tell_room

from ....kit.api.options import make_settings


def config(tokens: int | None, longest: int) -> Any:
    """A VllmConfig, as far as it is read; None: of a model without a cache."""
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=longest), cache_config=SimpleNamespace(kv_cache_size_tokens=tokens)
    )


HOLDS = "the KV cache holds"
# Tokens of the cache, of the longest request, sequences at once; the line.
ROOM = [
    (64000, 1000, 64, f"{HOLDS} 64000 tokens: 64.0 requests of max_model_len=1000"),
    (
        50000,
        8192,
        256,
        f"{HOLDS} 50000 tokens: 6.1 requests of max_model_len=8192, or 256 (max_rolling_batch_size) of 195 tokens each",
    ),
]


@pytest.mark.parametrize(("tokens", "longest", "sequences", "line"), ROOM)
def test_what_is_told(tokens: int, longest: int, sequences: int, line: str) -> None:
    assert room(tokens, longest, sequences) == line


def test_it_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmi")
    tell_room(make_settings(max_rolling_batch_size="1"), config(1600, 1000))
    tell_room(make_settings(), config(None, 1000))
    assert caplog.messages == [f"{HOLDS} 1600 tokens: 1.6 requests of max_model_len=1000"]
