"""A thousand adapters come and go: what they leave behind in the worker, the engine's process and vLLM's core."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import psutil
import pytest

from ..kit.engines.asked import Asked
from ..kit.faults.kills import tracker
from ..kit.models.adapted import ADAPTERS, adapted_directory, write

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FEW, MANY = 100, 1000
NAMES = 7
GROWTH = 8 << 20
"""Bytes of a process that are no leak: 900 registrations that left ten kilobytes each would be more."""


def processes(asked: Asked) -> list[psutil.Process]:
    """The worker, the engine's process, and what that started."""
    engine = psutil.Process(asked.engine.process_id)
    return [psutil.Process(os.getpid()), engine, *(one for one in engine.children() if not tracker(one))]


def state(asked: Asked, file: Path) -> tuple[list[int], list[tuple[int, int]], int]:
    """Of each process its own memory; its descriptors and threads; and the registry file's length."""
    gc.collect()
    # Threads that ended a moment ago, and the last removal.
    time.sleep(0.5)
    found = processes(asked)
    memory = [process.memory_full_info().uss for process in found]
    return memory, [(process.num_fds(), process.num_threads()) for process in found], file.stat().st_size


@pytest.mark.timeout(900)
def test_a_thousand_come_and_go(demo_model: Path, tmp_path: Path) -> None:
    """Each under one of a few names, always with other weights than before; every tenth is asked."""
    sources = [*write(demo_model, tmp_path / "sources").values()]
    assert len(sources) == len(ADAPTERS)
    file = tmp_path / "registry.json"
    properties = {"option.max_loras": "2", "option.max_cpu_loras": "3", "option.adapters_registry": str(file)}
    directory = adapted_directory(demo_model, tmp_path / "model", {"option.max_lora_rank": "16", **properties})
    with Asked(directory) as asked:
        registry = asked.service.adapters
        assert registry is not None
        texts: dict[tuple[int, int], str] = {}
        few: tuple[list[int], list[tuple[int, int]], int] | None = None
        for number in range(MANY):
            name = f"adapter{number % NAMES}"
            registry.load(registry.enter(name, str(sources[number % len(sources)])))
            if number % 10 == 0:
                which = number % len(sources), 0
                text = asked.named(name, "Tell me", 6).text
                assert texts.setdefault(which, text) == text
            registry.unregister(name)
            if number + 1 == FEW:
                few = state(asked, file)
        many = state(asked, file)
        assert few is not None
        assert registry.registered() == []
        assert many[1:] == few[1:]
        growth = [after - before for before, after in zip(few[0], many[0], strict=True)]
        print(f"grown by {growth} bytes")
        assert max(growth) < GROWTH, growth
        assert len(set(texts.values())) == len(texts) > 3
