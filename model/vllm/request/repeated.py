"""vLLM's requests of a sampling that came before: what vLLM derives from one and checks is done once.

    Sampling, checked SamplingParams --keep--> the last few;   the same Sampling, other prompt --again--> a copy

Most requests to an endpoint differ in their prompts alone, and vLLM's SamplingParams, their checks and ours take longer
than a short prompt takes to tokenize.
"""

from __future__ import annotations

import copy
import time
from typing import Any

from ...generation import Generation, Sampling

__all__ = ["RepeatedRequests"]

KEPT = 8
"""How many samplings."""


class RepeatedRequests:
    """EngineCoreRequests of one model, by their sampling. On any thread."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[Sampling, Any], ...] = ()
        """Replaced as a whole, since several threads prepare."""

    def again(self, generation: Generation, prompt: Any, max_tokens: int) -> Any:
        """A request of a prompt that is made already; None where none of the same sampling has been kept."""
        if not _alike(generation, prompt):
            return None
        sampling = generation.sampling
        for known, request in self._kept:
            if known == sampling:
                made = copy.copy(request)
                made.sampling_params = params = copy.copy(request.sampling_params)
                made.prompt_token_ids, made.arrival_time = prompt["prompt_token_ids"], time.time()
                params.max_tokens, params.min_tokens = max_tokens, min(sampling.min_tokens, max_tokens)
                return made
        return None

    def keep(self, generation: Generation, prompt: Any, request: Any) -> None:
        """Takes a request that vLLM has made of a generation without a guide, and that may be changed afterwards."""
        if _alike(generation, prompt):
            kept = copy.copy(request)
            kept.prompt_token_ids, kept.sampling_params = [], copy.copy(request.sampling_params)
            self._kept = ((generation.sampling, kept), *self._kept[: KEPT - 1])


def _alike(generation: Generation, prompt: Any) -> bool:
    """Whether its request has nothing but a prompt of tokens and one sequence's sampling.

    Token ids that a client gave are vLLM's to check; so is a prompt without any.
    """
    sampling = generation.sampling
    return (
        prompt.get("type") == "token"
        and bool(prompt["prompt_token_ids"])
        and not isinstance(generation.prompt, tuple)
        and sampling.n == 1
        and sampling.beams is None
        and sampling.prompt_logprobs is None
        and sampling.structured_output is None
        and generation.adapter is None
        and generation.cache_salt is None
        and generation.kv_transfer_params is None
        and generation.priority == 0
    )
