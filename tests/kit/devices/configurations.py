"""What the handler and `vllm serve` make of VllmConfig, on devices that this machine does not have:
`python -m tests.kit.devices.configurations DEVICE FOLDER`.

Prints a line of JSON for each case: how many devices, the model, the options, what differs, and what the handler has of
SHOWN. What differs is by the field's name: what `vllm serve` has, what the handler has; where one of them refuses the
case, its error is the field `error`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .nvidia import COUNT, DEVICES, Device, pretend

__all__ = ["CASES", "MODELS", "Case"]

Pair = tuple[str | None, str | None]
"""What `vllm serve` has of a field, and what the handler has, as texts; None: there is no such field."""

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}

MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": {
        **LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": 32000,
        "max_position_embeddings": 32768, "sliding_window": 4096,
    },
    "qwen3": {
        **LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "head_dim": 128,
        "max_position_embeddings": 40960, "tie_word_embeddings": True,
    },
    "mixtral": {
        **LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000,
        "max_position_embeddings": 32768, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "gpt-oss": {
        **LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 201088,
        "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
        "num_attention_heads": 64, "head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "bert": {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 30522, "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "max_position_embeddings": 512,
        "torch_dtype": "float32",
    },
}  # fmt: skip
"""config.json by the model's name, in the sizes that such models have: some of vLLM's defaults go by them."""


@dataclass(frozen=True, slots=True)
class Case:
    """Options of a model, in the handler's words and in those of `vllm serve`, which is given its size always."""

    model: str
    name: str = "none"
    options: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    arguments: Sequence[str] = ()
    hosts: int = 1
    copies: int = 1

    def size(self, count: int) -> int:
        """The tensor size with so many devices on each host; 0: they are too few."""
        return count * self.hosts // self.copies


def _ngram(tokens: int) -> tuple[dict[str, str], tuple[str, str]]:
    config = {"method": "ngram", "num_speculative_tokens": tokens}
    options = {"speculative_draft_model": "ngram", "speculative_length": str(tokens)}
    return options, ("--speculative-config", json.dumps(config))


FOUR, FOUR_TOO = _ngram(4)
NINE, NINE_TOO = _ngram(9)
HOSTS = {"nnodes": "2", "master_addr": "127.0.0.1", "master_port": "29501"}
HOSTS_TOO = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", "29501")

CASES = (
    *(Case(model) for model in MODELS if model != "bert"),
    Case("bert", "embeddings", {"task": "text-embedding"}),
    Case("llama", "quantized", {"quantize": "fp8"}, ("--quantization", "fp8")),
    Case("llama", "half", {"dtype": "fp16"}, ("--dtype", "half")),
    Case("llama", "adapters", {"enable_lora": "true"}, ("--enable-lora",)),
    Case("llama", "n-grams", FOUR, FOUR_TOO),
    # With so many drafted tokens 256 sequences take 2,560 in a step, which vLLM insists on for adapters.
    Case(
        "llama", "n-grams and adapters", {**NINE, "enable_lora": "true"},
        (*NINE_TOO, "--enable-lora", "--max-num-seqs", "256"),
    ),
    Case("llama", "context", {"max_model_len": "8192"}, ("--max-model-len", "8192")),
    Case("llama", "no prefix cache", {"enable_prefix_caching": "false"}, ("--no-enable-prefix-caching",)),
    Case("llama", "no pieces", {"enable_chunked_prefill": "false"}, ("--no-enable-chunked-prefill",)),
    Case("llama", "batch", {"max_rolling_batch_size": "64"}, ("--max-num-seqs", "64")),
    Case("llama", "step", {"max_rolling_batch_prefill_tokens": "4096"}, ("--max-num-batched-tokens", "4096")),
    Case("llama", "eager", {"enforce_eager": "true"}, ("--enforce-eager",)),
    Case(
        "llama", "KV cache", {"kv_cache_dtype": "fp8", "gpu_memory_utilization": "0.8"},
        ("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.8"),
    ),
    Case("llama", "offloading", {"cpu_offload_gb_per_gpu": "4"}, ("--cpu-offload-gb", "4")),
    Case("llama", "hosts", HOSTS, HOSTS_TOO, hosts=2),
    Case("llama", "follower", {**HOSTS, "node_rank": "1"}, (*HOSTS_TOO, "--node-rank", "1", "--headless"), hosts=2),
    Case(
        "qwen3", "parsers", {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"},
        ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
    ),
    Case("mixtral", "experts", {"enable_expert_parallel": "true"}, ("--enable-expert-parallel",)),
    Case("mixtral", "copies", {"data_parallel_size": "2"}, ("--data-parallel-size", "2"), copies=2),
)  # fmt: skip

SHOWN = ("scheduler_config.max_num_batched_tokens", "scheduler_config.max_num_seqs")

Line = tuple[int, str, str, dict[str, Pair], dict[str, str]]


def main(device: Device, folder: Path) -> None:
    """Compares each case with one device and with all."""
    pretend(device)
    directories = {name: _directory(folder / name, config) for name, config in MODELS.items()}
    for count in (1, COUNT):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(count)))
        for case in CASES:
            if size := case.size(count):
                line = _compared(case, str(directories[case.model]), size)
                # In one piece: vLLM writes its lines to the same place.
                sys.stdout.write(json.dumps([count, case.model, case.name, *line]) + "\n")
                sys.stdout.flush()


def _directory(target: Path, config: Mapping[str, Any]) -> Path:
    """A model without weights; its tokenizer has a few words, and the marks of reasoning."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = ("<s>", "<think>", "</think>")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<s>"))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<s>", additional_special_tokens=[*words[1:]])
    fast.save_pretrained(target)
    (target / "config.json").write_text(json.dumps(config))
    (target / "serving.properties").write_text("engine=Python\noption.entryPoint=lmi.handler\n")
    return target


def _compared(case: Case, directory: str, size: int) -> tuple[dict[str, Pair], dict[str, str | None]]:
    theirs = _of_server([directory, "--tensor-parallel-size", str(size), *case.arguments])
    ours = _of_handler(directory, case.options)
    names = ["error"] if "error" in {*theirs, *ours} else sorted({*theirs, *ours})
    pairs = {name: (theirs.get(name), ours.get(name)) for name in names}
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return differing, {name: ours.get(name) for name in SHOWN}


def _of_server(arguments: Sequence[str]) -> dict[str, str]:
    """As `vllm serve` (entrypoints/cli/serve.py) and what it starts (build_async_engine_client)."""
    from vllm import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    parsed: Any = make_arg_parser(FlexibleArgumentParser()).parse_args(list(arguments))
    parsed.model = parsed.model_tag
    try:
        engine_args = AsyncEngineArgs.from_cli_args(parsed)
        config = engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER, headless=parsed.headless)
    except Exception as error:  # noqa: BLE001 - compared
        return {"error": str(error)}
    return _fields(config)


def _of_handler(directory: str, options: Mapping[str, str]) -> dict[str, str]:
    from lmi.model.options import load_settings
    from lmi.model.vllm.start import make_config
    from lmi.model.vllm.typical import Typical

    settings = load_settings(Path(directory), environment={}, overrides=options)
    try:
        config, _ = make_config(settings, None if settings.pools else Typical(settings))
    except Exception as error:  # noqa: BLE001 - compared
        return {"error": str(error)}
    return _fields(config)


def _fields(config: Any) -> dict[str, str]:
    """Every field, by its way through the dataclasses, and what decides which model runner there is."""
    return {**dict(_walk("", config)), "use_v2_model_runner": repr(config.use_v2_model_runner)}


def _walk(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            # What is set later, in the core, is not there yet.
            yield from _walk(f"{name}.{field.name}".lstrip("."), getattr(value, field.name, None))
    elif hasattr(value, "to_dict"):
        # The model's own configuration.
        yield from ((f"{name}.{key}", repr(one)) for key, one in value.to_dict().items())
    else:
        yield name, re.sub(r" at 0x[0-9a-f]+", "", repr(sorted(value) if isinstance(value, set) else value))


if __name__ == "__main__":
    main(DEVICES[sys.argv[1]], Path(sys.argv[2]))
