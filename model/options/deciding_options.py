"""The options that are not kept themselves: together they decide fields of Settings (model/options/load.py)."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from .option import Option
from .settings import OutputFormat

__all__ = ["IndirectOptions"]


def _model(text: str) -> str:
    if text.startswith("s3://"):
        raise ValueError("a hub id or a path (only DJL Serving downloads s3://, before the handler starts)")
    return text


def _draft(text: str) -> str:
    if text.startswith("s3://"):
        downloads = "only DJL Serving downloads s3://, and only for option.speculative_draft_model"
        raise ValueError(f"a hub id, a path, or ngram ({downloads})")
    return text


# fmt: off
class IndirectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Their values."""

    model_id: Annotated[str | None, Option(
        "The model: a hub id or a path. A relative path is looked for in the model directory.",
        default="the model directory", aliases=("model",), convert=_model, argument="model",
    )] = None
    served_model_name: Annotated[str | None, Option(
        "Name of the model in responses.", default="the model directory",
    )] = None
    backend: Annotated[str | None, Option(
        "`transformers`: vLLM runs the model with transformers' modelling (`model_impl=transformers`). Or an engine of "
        "yours, as `module:name`.",
        kind="reference", choices=("vllm", "transformers"), default="by rolling_batch",
    )] = None
    rolling_batch: Annotated[
        Literal["auto", "vllm", "lmi-dist", "trtllm", "scheduler", "hf-accelerate", "disable"],
        Option(
            "How requests are batched; `auto` is `vllm`, with `batch_size` above 1 dynamic batch. `lmi-dist` and "
            "`trtllm` run on vLLM, and so do `scheduler` and `hf-accelerate`, with transformers' modelling.",
        ),
    ] = "auto"
    max_rolling_batch_size: Annotated[int | None, Option(
        "How many sequences are generated at once at most; more wait.", ge=1,
        default="256; max_rolling_batch_prefill_tokens where that is less",
        aliases=("max_num_seqs",), argument="max_num_seqs", set_by_djl=True,
    )] = None
    load_in_4bit: Annotated[bool, Option(
        "The same as `quantize=bitsandbytes`, where the installed vLLM has that (0.26.0).",
    )] = False
    mpi_mode: Annotated[bool, Option(
        "A worker of DJL's for each device: only for one. DJL itself sets it for `trtllm`.",
    )] = False
    task: Annotated[
        Literal[
            "auto", "text-generation", "generate", "text-embedding", "feature-extraction", "embed", "text-ranking",
            "score", "text-classification", "classify",
        ],
        Option(
            "What the model does: it generates text (`auto` too), makes vectors of texts, ranks texts by a query, or "
            "classifies texts.",
        ),
    ] = "auto"
    runner: Annotated[Literal["auto", "generate", "pooling"], Option(
        "How vLLM runs the model; `pooling` is for embeddings, unless another task is named.", default="by the task",
        argument="runner", unsupported_values={"draft": "draft models on their own"},
    )] = "auto"
    convert: Annotated[Literal["auto", "none", "embed", "classify"], Option(
        "What vLLM converts the model to.", default="by the task",
        argument="convert",
    )] = "auto"
    output_formatter: Annotated[str | None, Option(
        "Format of LMI responses: one document, or a stream of lines or of events (SSE). `module:name` is a dialect or "
        "formatter of your own.", kind="reference", choices=get_args(OutputFormat), default="by the request",
    )] = None
    enable_streaming: Annotated[Literal["false", "true", "huggingface"], Option(
        "Streaming in dynamic batches; in the other modes requests decide.",
    )] = "false"
    enable_auto_tool_choice: Annotated[bool | None, Option(
        "Whether the model may choose to call tools.", default="true with a tool_call_parser",
    )] = None
    enable_reasoning: Annotated[bool, Option(
        "Older name of the switch for reasoning_parser.", default="by reasoning_parser",
    )] = False
    speculative_draft_model: Annotated[str | None, Option(
        "Draft model of speculative decoding: a hub id, a path, or `ngram` for none.",
        aliases=("draft_model_id",), convert=_draft,
    )] = None
    speculative_length: Annotated[int, Option(
        "Draft tokens per step; 0: no speculative decoding.", ge=0, aliases=("spec_length",),
    )] = 4
    """lmi-dist's default. TensorRT-LLM's, under the other name, is 0 (djl_python, properties.py)."""
    draft_model_tp_size: Annotated[int | None, Option(
        "How many devices share each layer of the draft model.", default="the model's, or what vLLM can", ge=1,
    )] = None
# fmt: on
