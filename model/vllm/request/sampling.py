"""Sampling in vLLM's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import Fault, ParameterError, UnsupportedError
from ...generation import Generation, nth_seed
from ...text.prompt_limits import check_ids
from ..library.internals import unshared
from ..typical import ARGUMENT

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["LIMITS", "sampling_params"]

EXTRA = "sampling.extra_args"
TRANSFERS = ("kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode")
"""Names in `SamplingParams.extra_args` that vLLM's core itself reads: a value of another form there may end it."""

LIMITS: Mapping[str, str] = {
    "temperature": "up to 2",
    "bad_words": "in mid-text only where the word has as many tokens after a blank as without one (such a word counts "
    "twice); 128 words and 1,024 tokens in all",
    "logit_bias": "tokens of the vocabulary",
    "allowed_token_ids": "1 to 1,024 tokens of the vocabulary",
    "thinking_token_budget": "with a reasoning parser that has marks for both ends (`option.reasoning_parser`, "
    "`option.reasoning_config`); not in model runner V2 of versions that do not have it there, such as 0.26",
    "extra_args": "read by logits processors (`option.logits_processors`) and by some models' own",
    "stop_token_ids": "tokens of the vocabulary; with min_tokens 128, those that the model itself ends with included",
    "logprobs": "up to `option.max_logprobs`, 20",
    "prompt_logprobs": "up to `option.max_logprobs`, 20",
    "spaces_between_special_tokens": "with tokenizers that put spaces there",
    "typical_p": "where `option.enable_typical_p` allows it",
    "beams": "up to half of `option.max_logprobs`, 10; with prefix caching",
    "kv_transfer_params": "with a connector (`option.kv_transfer_config`)",
    "priority": "with `option.scheduling_policy=priority`",
}
"""What vLLM honours with a reservation (model/backend.py, limits)."""

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
    generation: Generation,
    defaults: Mapping[str, Any],
    max_tokens: int,
    guided: Any,
    extra: dict[str, Any],
    *,
    vocabulary: int,
    connected: bool,
) -> list[SamplingParams]:
    """SamplingParams for each of the n sequences, the first of which tells the prompt's log-probabilities.

    Raises ParameterError, and what vLLM raises for what it refuses. `defaults` are the model's own, `extra` is for our
    logits processors. `connected`: whether vLLM has a connector that reads kv_transfer_params; without one it would
    ignore them, and what no connector has checked need not reach vLLM at all.
    """
    from vllm import SamplingParams

    sampling = generation.sampling
    # With min_tokens vLLM writes to their logits: an index beyond the end ends its core for everyone.
    check_ids("sampling.stop_token_ids", sampling.stop_token_ids, vocabulary)
    _check_names(sampling.extra_args)
    if (blank := next((word for word in sampling.bad_words if not word.strip()), None)) is not None:
        # vLLM strips them, and some versions then ask for the first token of none.
        raise ParameterError.of("sampling.bad_words", blank, "words, not white space alone")
    arguments: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min(sampling.min_tokens, max_tokens),
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "logprobs": sampling.logprobs,
        "logit_bias": sampling.logit_bias,
        "bad_words": list(sampling.bad_words),
        "allowed_token_ids": None if sampling.allowed_token_ids is None else list(sampling.allowed_token_ids),
        "thinking_token_budget": sampling.thinking_token_budget,
        "detokenize": False,
        **unshared(),
    }
    for name in DEFAULTED:
        value = getattr(sampling, name)
        if value is None:
            value = defaults.get(name)
        if value is not None:
            arguments[name] = value
    arguments["structured_outputs"] = guided
    extra = {**sampling.extra_args, **extra}
    if generation.kv_transfer_params and connected:
        extra = {**extra, "kv_transfer_params": generation.kv_transfer_params}
    if extra:
        arguments["extra_args"] = extra
    seeds = [None if sampling.seed is None else nth_seed(sampling.seed, index) for index in range(sampling.n)]
    first, *others = seeds
    # The prompt is the same for all of them, and where its log-probabilities are told it is computed without the cache.
    return [
        SamplingParams(**arguments, seed=first, prompt_logprobs=sampling.prompt_logprobs),
        *(SamplingParams(**arguments, seed=seed) for seed in others),
    ]


def _check_names(arguments: Iterable[str]) -> None:
    """Raises UnsupportedError for names of `extra_args` that are not for logits processors of the owner's."""
    for name in (*TRANSFERS, ARGUMENT):
        if name in arguments:
            raise UnsupportedError.because(Fault(f"{EXTRA}.{name}", "not supported, the name is the engine's own"))
