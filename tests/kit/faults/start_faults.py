"""Tries to start vLLM on broken models, one after another in one process: `python -m tests.kit.faults.start_faults DEMO
FOLDER TABLE`, the table being FAULTS or CORE_FAULTS.

vLLM's core and its workers have processes of their own, as ever. Prints a line of JSON for each: what start-up reports
of it, or that it started.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..hosts.host import FAST_OPTIONS

Change = Callable[[Path], object]


def weights(directory: Path) -> Path:
    """The one file of weights."""
    (file,) = directory.glob("*.safetensors")
    return file


def configured(**values: Any) -> Change:
    """A config.json in which some values are others, or are missing (None)."""

    def change(directory: Path) -> None:
        file = directory / "config.json"
        config = {**json.loads(file.read_text()), **values}
        file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))

    return change


def without(pattern: str) -> Change:
    """Some files are missing."""

    def change(directory: Path) -> None:
        for file in directory.glob(pattern):
            file.unlink()

    return change


def nothing(_directory: Path) -> None:
    """The model is as it should be."""


FAULTS: Mapping[str, tuple[Change, Mapping[str, str]]] = {
    "no weights": (without("*.safetensors"), {}),
    "weights cut off": (lambda path: weights(path).write_bytes(weights(path).read_bytes()[:-1000]), {}),
    "weights of another shape": (configured(intermediate_size=512), {}),
    "no config": (without("config.json"), {}),
    "broken config": (lambda path: (path / "config.json").write_text("{"), {}),
    "empty config": (lambda path: (path / "config.json").write_text("{}"), {}),
    "no tokenizer": (without("*token*"), {}),
    "architecture": (configured(architectures=["NoSuchForCausalLM"]), {}),
    "modelling": (configured(architectures=["GPTNeoForCausalLM"]), {"backend": "transformers"}),
    "model type": (configured(model_type="nosuch", architectures=["NoSuchForCausalLM"]), {}),
    "code of its own": (configured(model_type="nosuch", auto_map={"AutoConfig": "my.Config"}), {}),
    "dtype": (nothing, {"dtype": "fp16", "quantize": "nosuch"}),
    "unsupported dtype": (nothing, {"quantize": "fp8", "dtype": "fp32"}),
    "context": (nothing, {"max_model_len": "100000"}),
    "few KV blocks": (nothing, {"num_gpu_blocks_override": "8", "block_size": "128"}),
    "too much KV cache": (nothing, {"kv_cache_memory_bytes": str(1 << 50)}),
    "tensor parallel": (nothing, {"tensor_parallel_degree": "64"}),
    "experts": (nothing, {"enable_expert_parallel": "true"}),
    "unknown option": (nothing, {"max_model_length": "2048"}),
    "wrong option": (nothing, {"block_size": "many"}),
    "reasoning parser": (nothing, {"reasoning_parser": "nosuch"}),
    "tool parser": (nothing, {"tool_call_parser": "nosuch"}),
    "chat template": (nothing, {"chat_template": "/no/such/file.jinja"}),
    "broken chat template": (nothing, {"chat_template": "{% for message in messages %}\n{{ message.content"}),
    "draft model": (nothing, {"speculative_draft_model": "/no/such/model"}),
    "parsers": (lambda path: (path / "mine.py").write_text("import nosuch"), {"reasoning_parser_plugin": "mine.py"}),
    "KV transfer": (nothing, {"kv_transfer_config": '{"kv_connector": "OffloadingConnector"}'}),
    "KV offloading": (nothing, {"kv_offloading_size": "1"}),
    "hub": (nothing, {"model_id": "no-such-owner/no-such-model"}),
    "load format": (nothing, {"load_format": "nosuch"}),
}


TWO = {"tensor_parallel_degree": "2", "load_format": "dummy"}
"""Two workers, each a process of its own."""

CORE_FAULTS: Mapping[str, tuple[Change, Mapping[str, str]]] = {
    "KV cache too small": (nothing, {"kv_cache_memory_bytes": str(1 << 20)}),
    "KV cache too large": (nothing, {"kv_cache_memory_bytes": str(1 << 50)}),
    "weights of another shape": (configured(intermediate_size=512), {}),
    "a plain assertion": (configured(vocab_size=1280), {}),
    "a layer more": (configured(num_hidden_layers=3), {}),
    "no such activation": (configured(hidden_act="nosuch"), {"load_format": "dummy"}),
    "a size of heads": (configured(head_dim=17), {"load_format": "dummy"}),
    "quantization": (nothing, {"quantize": "awq"}),
    "logits processor": (nothing, {"logits_processors": "nosuch:Thing"}),
    "scheduler": (nothing, {"scheduler_cls": "nosuch.Scheduler"}),
    "worker extension": (nothing, {"worker_extension_cls": "nosuch.Thing"}),
    "KV connector": (
        nothing,
        {
            "kv_transfer_config": '{"kv_connector": "Nosuch", "kv_role": "kv_both", '
            '"kv_connector_module_path": "nosuch"}'
        },
    ),
    "workers, width": (configured(intermediate_size=385), TWO),
    "workers, heads": (configured(num_attention_heads=3, num_key_value_heads=3, hidden_size=96), TWO),
    "workers, key-value heads": (configured(num_attention_heads=6, num_key_value_heads=3, hidden_size=192), TWO),
    "workers, weights": (configured(vocab_size=1280), {"tensor_parallel_degree": "2"}),
    "workers, activation": (configured(hidden_act="nosuch"), TWO),
}
"""Of which most end in the core or in a worker, which alone know why."""

TABLES = {"FAULTS": FAULTS, "CORE_FAULTS": CORE_FAULTS}


def copy(demo: Path, target: Path) -> Path:
    """The demo model's files, to be changed."""
    target.mkdir(parents=True)
    for file in demo.iterdir():
        if file.name != "serving.properties":
            shutil.copy(file, target / file.name)
    return target


def main(demo: Path, folder: Path, faults: Mapping[str, tuple[Change, Mapping[str, str]]]) -> None:
    from lmi.model.options import load_settings
    from lmi.model.options.model_dir import check_model
    from lmi.model.process.ending.start_errors import start_error

    from ..engines.start import in_process

    for number, (name, (change, options)) in enumerate(faults.items()):
        directory = copy(demo, folder / str(number))
        change(directory)
        try:
            overrides = {"dtype": "fp32", "max_model_len": "2048", **FAST_OPTIONS, **options}
            settings = load_settings(directory, environment={}, overrides=overrides)
            check_model(settings)
            in_process(settings).close()
            told: list[object] = ["started", 200, "", None]
        except Exception as error:  # noqa: BLE001 - told
            refused = start_error(error)
            told = [refused.kind, refused.status, refused.message, refused.param]
        # In one piece: vLLM's threads write their lines to the same place.
        sys.stdout.write(json.dumps([name, *told]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), TABLES[sys.argv[3]])
