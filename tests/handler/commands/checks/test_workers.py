"""What `lmi check` says of the workers that DJL Serving starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.commands.checks.workers import of_workers

from ....kit.api.handler import check_model_dir as check
from ....kit.api.options import load_settings
from ....kit.installed import without_vllm
from ....kit.rows import each_row

ONLY = "DJL Serving starts one worker only, on the first devices, and none without a GPU"
SHARE = (
    "so many workers share each device, each with its own engine and copy of the model; "
    "option.gpu_memory_utilization of all together has to stay below 1"
)
NODES = {"nnodes": "2", "master_addr": "a"}


def unknown(name: str, known: str) -> str:
    counts = f"DJL Serving does not know it, and counts devices by option.{known} alone"
    return f"warning: option.{name}: {counts}: set option.{known}=2"


@each_row(
    ("options", "said"),
    [
        ({}, []),
        ({"tensor_parallel_degree": "4", "maxWorkers": "1"}, []),
        ({"tensor_parallel_size": "2"}, [unknown("tensor_parallel_size", "tensor_parallel_degree")]),
        ({"pipeline_parallel_size": "2"}, [unknown("pipeline_parallel_size", "pipeline_parallel_degree")]),
        ({"pipeline_parallel_size": "2", **NODES}, []),
        ({"enable_lora": "true"}, [f"note: option.enable_lora=true: {ONLY}"]),
        ({"enable_lora": "true", "maxWorkers": "2"}, [f"note: option.enable_lora=true: {ONLY}"]),
        ({"enable_stateful_sessions": "True"}, [f"note: option.enable_stateful_sessions=true: {ONLY}"]),
        ({"enable_stateful_sessions": "false"}, []),
        ({"maxWorkers": "2"}, [f"warning: maxWorkers=2: {SHARE}"]),
        ({"gpu.maxWorkers": "3", "maxWorkers": "1"}, [f"warning: gpu.maxWorkers=3: {SHARE}"]),
        ({"cpu.maxWorkers": "2", "maxWorkers": "-1"}, []),
    ],
    ids=str,
)
def test_lines(options: dict[str, str], said: list[str]) -> None:
    settings = load_settings(Path("/nowhere"), environment={}, overrides=options)
    assert [str(finding) for finding in of_workers(settings, options)] == said


def test_lmi_check_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_vllm(monkeypatch)
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\nmaxWorkers=2\n")
    said = check(tmp_path, {"option.load_format": "dummy"}, environment={}, files=False)
    assert f"warning: maxWorkers=2: {SHARE}" in said
