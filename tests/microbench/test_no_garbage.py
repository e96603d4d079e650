"""What the engine's process has of a request is freed when the request ends, not when Python searches for garbage.

The hosts' side: tests/handler/server/test_no_garbage.py.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from .path import KINDS, SEQUENCES, TokenPath

PARSERS = {
    "hermes and qwen3": {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"},
    "one machine for both": {"tool_call_parser": "qwen3_coder", "reasoning_parser": "qwen3"},
}


@pytest.mark.engine
@pytest.mark.parametrize("options", PARSERS.values(), ids=PARSERS)
def test_an_answer_leaves_nothing_to_search_for(demo_model: Path, options: dict[str, str]) -> None:
    left: dict[str, list[tuple[str, int]]] = {}
    with closing(TokenPath(demo_model, **options)) as path:
        for kind in (name for name in KINDS if "chat" in name):
            path.open(kind)
            path.run()
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                path.open(kind)
                path.run()
                gc.collect()
                found = Counter(type(one).__qualname__ for one in gc.garbage)
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
            if found.total() >= SEQUENCES:
                left[kind] = found.most_common(10)
    assert not left
