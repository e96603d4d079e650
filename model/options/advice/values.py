"""Values of options that mean something elsewhere and nothing here.

Sources: djl-serving (properties_manager/ and its history), TGI's launcher (launcher/src/main.rs), vLLM's former values.
"""

from __future__ import annotations

from .row import Row, by_hand, gone, renamed

__all__ = ["VALUES"]

_DTYPES = {"f16": "fp16", "f32": "fp32"}
_CHECKPOINT = "a checkpoint that is quantized already needs no option"
_ANY = "it quantizes any model to 8 bits while it is loaded"


def _counts(text: str) -> str:
    """`image=2,video=1` as JSON without its braces."""
    pairs = (part.partition("=") for part in text.split(","))
    return ", ".join(f'"{name.strip()}": {number.strip()}' for name, _, number in pairs)


VALUES: tuple[Row, ...] = (
    renamed("dtype", "its name here", {"dtype": "{value}"},
            value="f16|f32|torch.float16|torch.float32|torch.bfloat16|torch.half|torch.float",
            convert=lambda text: _DTYPES.get(text.lower(), text.lower().removeprefix("torch."))),
    renamed("dtype", _ANY, {"quantize": "fp8"}, value="int8"),
    renamed("rolling_batch", "vLLM has taken its place", {"rolling_batch": "vllm"}, value="deepspeed|tnx|lmi-dist-v2"),
    renamed("task", "its name here", {"task": "text-ranking"}, value="rerank|reranking|text-reranking"),
    renamed("task", "its name here", {"task": "text-embedding"}, value="embedding|sentence-similarity"),
    renamed("task", "its name here", {"task": "text-generation"}, value="conversational|text2text-generation"),
    renamed("quantize", _ANY, {"quantize": "fp8"}, value="smoothquant|dynamic_int8|static_int8|int8|eetq"),
    renamed("quantize", _ANY, {"quantize": "fp8"},
            value="bitsandbytes4|bitsandbytes8|bitsandbytes-nf4|bitsandbytes-fp4"),
    gone("quantize", _CHECKPOINT, value="squeezellm|exl2|marlin|aqlm"),
    by_hand("load_format", "set option.load_format=runai_streamer, or sharded_state for weights that were saved so: "
         "vLLM has no fast model loader of SageMaker's", value="sagemaker_fast_model_loader"),
    renamed("kv_cache_dtype", "vLLM's name of it", {"kv_cache_dtype": "fp8_e4m3"}, value="fp8_e4m3fn"),
    renamed("limit_mm_per_prompt", "for images and the like it is JSON now", {"limit_mm_per_prompt": "{{value}}"},
            value=r"\w+=\d+(?:\s*,\s*\w+=\d+)*", convert=_counts),
    gone("backend", "without it vLLM takes transformers' modelling where it has none of its own", value="auto"),
    by_hand("device_map", "set option.device_map=auto for all devices, or option.tensor_parallel_degree=N for fewer",
         value="balanced|balanced_low_0|sequential|(?!auto$).*"),
    renamed("load_in_8bit", _ANY, {"quantize": "fp8"}, value="true"),
)  # fmt: skip
"""By the option that has them; the first row that is about a value counts."""
