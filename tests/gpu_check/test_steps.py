"""What a GPU's engine must say of itself is asked for.

The logs are lines as vLLM 0.26.0 to 0.32.0 format them; the engines themselves: `make gpu-check`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from . import steps

CHOSEN = {"v2_runner": True, "cuda_graphs": "FULL_AND_PIECEWISE"}
CONFIG = "(EngineCore pid=7) INFO 11-24 19:20:22 [core.py:113] Initializing a V1 LLM engine: enforce_eager=False\n"
V2 = "(EngineCore pid=7) INFO 11-24 19:20:23 [gpu_worker.py:518] Using V2 Model Runner\n"
V1 = "(EngineCore pid=7) INFO 11-24 19:20:23 [gpu_model_runner.py:5072] Starting to load model m...\n"
FALLEN = "WARNING 11-24 19:20:22 [vllm.py:528] Model Runner V2 requires Triton; using the V1 model runner instead.\n"
CAPTURED = (
    "(EngineCore pid=7) INFO 11-24 19:20:29 [model_runner.py:701] Graph capturing finished in 5 secs, took 0.21 GiB\n"
)
ATTENTION = "INFO 11-24 19:20:22 [cuda.py:378] Using FLASH_ATTN attention backend out of potential backends: ['F'].\n"


def on_gpu(whole: str, plain: str = V1, **chosen: object) -> Any:
    """Engines of a GPU, of which there are only the logs and vLLM's configuration."""
    logs = {"whole": whole, "plain": plain}
    return SimpleNamespace(
        device="gpu",
        chosen={**CHOSEN, **chosen},
        get=lambda name: SimpleNamespace(log_text=lambda: logs[name]),
    )


GRAPHS, RUNNER = steps.test_cuda_graphs, steps.test_model_runner


@pytest.mark.parametrize(
    ("step", "engines", "wrong"),
    [
        (RUNNER, on_gpu(CONFIG + V2), ""),
        (RUNNER, on_gpu(CONFIG + V1), "nothing in the log"),
        (RUNNER, on_gpu(CONFIG + FALLEN + V2), "requires Triton"),
        (RUNNER, on_gpu(CONFIG + V2, v2_runner=False), "v2_runner"),
        (RUNNER, on_gpu(CONFIG + V2, plain=V2), "nothing in the log"),
        (GRAPHS, on_gpu(CONFIG + ATTENTION + CAPTURED), ""),
        (GRAPHS, on_gpu(CONFIG + ATTENTION), "nothing in the log"),
        (GRAPHS, on_gpu(CONFIG.replace("False", "True") + ATTENTION + CAPTURED), "eager"),
        (GRAPHS, on_gpu(CONFIG + ATTENTION + CAPTURED, cuda_graphs="NONE"), "NONE"),
    ],
)
def test_what_an_engine_says_of_itself(
    monkeypatch: pytest.MonkeyPatch, step: Callable[..., None], engines: Any, wrong: str
) -> None:
    monkeypatch.setattr(steps, "_known", lambda server: "11 answers")
    told: list[str] = []
    with pytest.raises(AssertionError, match=wrong) if wrong else nullcontext():
        step(engines, told.append)
    assert len(told) == (not wrong)
