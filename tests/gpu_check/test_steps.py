"""The steps of both devices are the same ones, and what a GPU's engine must say of itself is asked for.

The logs are lines as vLLM 0.26.0 to 0.32.0 format them; the engines themselves: `make gpu-check`.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from . import steps as under_test
from .engines import Engines
from .steps import graphs, runner, steps

CHOSEN = {"v2_runner": True, "cuda_graphs": "FULL_AND_PIECEWISE"}
CONFIG = "(EngineCore pid=7) INFO 11-24 19:20:22 [core.py:113] Initializing a V1 LLM engine: enforce_eager=False\n"
V2 = "(EngineCore pid=7) INFO 11-24 19:20:23 [gpu_worker.py:518] Using V2 Model Runner\n"
V1 = "(EngineCore pid=7) INFO 11-24 19:20:23 [gpu_model_runner.py:5072] Starting to load model m...\n"
FALLEN = "WARNING 11-24 19:20:22 [vllm.py:528] Model Runner V2 requires Triton; using the V1 model runner instead.\n"
CAPTURED = (
    "(EngineCore pid=7) INFO 11-24 19:20:29 [model_runner.py:701] Graph capturing finished in 5 secs, took 0.21 GiB\n"
)
ATTENTION = "INFO 11-24 19:20:22 [cuda.py:378] Using FLASH_ATTN attention backend out of potential backends: ['F'].\n"


def test_a_cpu_runs_the_steps_of_a_gpu(tmp_path: Path) -> None:
    of = {device: steps(Engines(device, tmp_path, tmp_path, tmp_path)) for device in ("gpu", "cpu")}
    assert [step.name for step in of["gpu"]] == [step.name for step in of["cpu"]]
    assert [step.name for step in of["gpu"] if step.instead] == []
    assert len([step.name for step in of["cpu"] if step.instead]) == 5


def test_an_engine_that_does_not_start_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("gpu", tmp_path, tmp_path, tmp_path)
    started: list[str] = []

    def start(name: str) -> None:
        started.append(name)
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(engines, "_start", start)
    with pytest.raises(RuntimeError, match="no kernel image"):
        engines.get("whole")
    with pytest.raises(RuntimeError, match="did not start, as an earlier step says"):
        engines.get("whole")
    assert started == ["whole"]


def on_gpu(whole: str, plain: str = V1, **chosen: object) -> Any:
    """Engines of a GPU, of which there are only the logs and vLLM's configuration."""
    logs = {"whole": whole, "plain": plain}
    return SimpleNamespace(
        device="gpu",
        chosen={**CHOSEN, **chosen},
        get=lambda name: SimpleNamespace(log_text=lambda: logs[name]),
    )


def test_runner_v2_is_seen() -> None:
    assert V2.split("] ")[1].strip() in runner(on_gpu(CONFIG + V2))


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        (on_gpu(CONFIG + V1), "nothing in the log"),
        (on_gpu(CONFIG + FALLEN + V2), "requires Triton"),
        (on_gpu(CONFIG + V2, v2_runner=False), "v2_runner"),
        (on_gpu(CONFIG + V2, plain=V2), "nothing in the log"),
    ],
)
def test_runner_v1_is_no_runner_v2(engines: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        runner(engines)


def test_graphs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_known", lambda server: "11 answers")
    seen = graphs(on_gpu(CONFIG + ATTENTION + CAPTURED))
    assert "Graph capturing finished in 5 secs, took 0.21 GiB" in seen
    assert "Using FLASH_ATTN attention backend" in seen
    assert "11 answers" in seen


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        (on_gpu(CONFIG + ATTENTION), "nothing in the log"),
        (on_gpu(CONFIG.replace("False", "True") + ATTENTION + CAPTURED), "eager"),
        (on_gpu(CONFIG + ATTENTION + CAPTURED, cuda_graphs="NONE"), "NONE"),
    ],
)
def test_without_graphs_it_fails(engines: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_known", lambda server: "11 answers")
    with pytest.raises(AssertionError, match=said):
        graphs(engines)
