"""Sampling in vLLM's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import UnsupportedError
from .generation import Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["sampling_params"]

DEFAULTED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Fields of Sampling whose None means the model's generation_config; vLLM has the same names for them."""


def sampling_params(
    sampling: Sampling, defaults: Mapping[str, Any], max_tokens: int, guided: Any, *, step_by_step: bool
) -> list[SamplingParams]:
    """SamplingParams for each of the n sequences; raises what vLLM raises for values that it refuses.

    `defaults` are the model's own. Without `step_by_step` vLLM reports once, when a sequence has ended.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if sampling.typical_p not in {None, 1}:
        raise UnsupportedError("typical_p: vLLM does not have it, the transformers engine does", "typical_p")
    arguments: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min(sampling.min_tokens, max_tokens),
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "logprobs": sampling.logprobs,
        "prompt_logprobs": sampling.prompt_logprobs,
        "logit_bias": sampling.logit_bias,
        "bad_words": list(sampling.bad_words),
        "detokenize": False,
        "output_kind": RequestOutputKind.DELTA if step_by_step else RequestOutputKind.FINAL_ONLY,
    }
    for name in DEFAULTED:
        value = getattr(sampling, name)
        if value is None:
            value = defaults.get(name)
        if value is not None:
            arguments[name] = value
    arguments["structured_outputs"] = guided
    return [SamplingParams(**arguments, seed=_seed(sampling, index)) for index in range(sampling.n)]


def _seed(sampling: Sampling, index: int) -> int | None:
    return None if sampling.seed is None else sampling.seed + index
