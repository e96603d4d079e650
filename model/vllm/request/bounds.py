"""What vLLM's model runners have room for: whoever asks for more ends vLLM's core for everybody, for it is only the
worker that finds out. So nothing beyond a bound is sent.

    SamplingParams, as vLLM has completed them --RunnerBounds.check--> nothing, or ParameterError

Model runner V2 (vllm/v1/worker/gpu/sample/) has a row of fixed width for each request, and raises where something does
not fit. V1 (vllm/v1/worker/gpu_input_batch.py) has none. Both index the logits, which are as wide as the vocabulary,
and look for as many likeliest tokens as are asked for. All bounds hold for both: they are far beyond what is of use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ...errors import Fault, ParameterError, StartError
from ..library.parts import part

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["BOUNDS", "Bound", "RunnerBounds"]

SAMPLE = "vllm.v1.worker.gpu.sample"


@dataclass(frozen=True, slots=True)
class Bound:
    """The width of a row."""

    field: str
    """Of SamplingParams, and of Sampling."""
    holds: str
    """What it has room for, in words."""
    count: Callable[[SamplingParams], int]
    """How much of it a request needs."""
    constants: tuple[str, ...]
    """Where vLLM has the number, as of internals.part: one of them."""
    documented: int
    """The number in 0.26.0 and 0.32.0, for a vLLM that has it elsewhere."""

    @property
    def most(self) -> int:
        """The installed vLLM's number."""
        return next((found for place in self.constants if (found := _number(place)) is not None), self.documented)


def _number(place: str) -> int | None:
    """The number at a place of vLLM's; None: there is none."""
    try:
        return int(part(place))
    except StartError:
        return None


def _bad_words(params: SamplingParams) -> list[list[int]]:
    """Their tokens: of each word without a blank before it, and with one if that makes as many tokens."""
    return params.bad_words_token_ids or []


def _stop_ids(params: SamplingParams) -> Iterable[int]:
    """What must not come before min_tokens: the request's stop_token_ids, and what the model itself ends with."""
    return params.all_stop_token_ids if params.min_tokens else ()


# fmt: off
BOUNDS = (
    Bound("stop_token_ids", "token ids with min_tokens, those that the model itself ends with included",
          lambda params: len([*_stop_ids(params)]),
          (f"{SAMPLE}.logit_bias:MAX_NUM_STOP_TOKEN_IDS",), 128),
    Bound("bad_words", "words, of which those count twice that have as many tokens after a blank",
          lambda params: len(_bad_words(params)),
          # From a later version on the environment may set them.
          ("vllm.envs:VLLM_MAX_NUM_BAD_WORDS", f"{SAMPLE}.bad_words:MAX_NUM_BAD_WORDS"), 128),
    Bound("bad_words", "tokens in all, of which those count twice whose word has as many after a blank",
          lambda params: sum(map(len, _bad_words(params))),
          ("vllm.envs:VLLM_MAX_BAD_WORDS_TOTAL_TOKENS", f"{SAMPLE}.bad_words:MAX_BAD_WORDS_TOTAL_TOKENS"), 1024),
    Bound("logit_bias", "token ids", lambda params: len(params.logit_bias or ()),
          (f"{SAMPLE}.logit_bias:MAX_NUM_LOGIT_BIAS_TOKENS",), 1024),
    Bound("allowed_token_ids", "token ids", lambda params: len(params.allowed_token_ids or ()),
          (f"{SAMPLE}.logit_bias:MAX_NUM_ALLOWED_TOKEN_IDS",), 1024),
)
# fmt: on


def _allowed(params: SamplingParams) -> Iterable[int]:
    return params.allowed_token_ids or ()


INDICES: tuple[tuple[str, Callable[[SamplingParams], Iterable[int]]], ...] = (
    ("min_tokens", _stop_ids),
    ("bad_words", lambda params: chain.from_iterable(_bad_words(params))),
    ("allowed_token_ids", _allowed),
)
"""What is written to the logits by its number, and is of a tokenizer or a generation_config that may have more tokens
than the model, or is compared with the tokenizer alone (0.26). The other ids vLLM compares with the vocabulary."""

LIKELIEST = ("logprobs", "prompt_logprobs")
"""How many likeliest tokens are looked for: option.max_logprobs may allow more than there are."""


class RunnerBounds:
    """The installed vLLM's, for a model."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._bounds = tuple((bound, bound.most) for bound in BOUNDS)

    def check(self, params: SamplingParams) -> None:
        """Raises ParameterError for what would end the core, by its path in a Generation."""
        for bound, most in self._bounds:
            if (count := bound.count(params)) > most:
                raise ParameterError.of(f"sampling.{bound.field}", count, f"at most {most} {bound.holds}")
        for field in LIKELIEST:
            if (asked := getattr(params, field) or 0) > self._vocabulary:
                expected = f"at most {self._vocabulary}, the tokens that the model has"
                raise ParameterError.of(f"sampling.{field}", asked, expected)
        for field, ids in INDICES:
            if (largest := max(ids(params), default=0)) >= self._vocabulary:
                expected = f"tokens that the model has, below {self._vocabulary}"
                raise ParameterError.of(f"sampling.{field}", largest, expected)
        allowed = {*_allowed(params)}
        if allowed and allowed <= {*_stop_ids(params)}:
            # Nothing would be left to draw.
            path = "sampling.allowed_token_ids"
            raise ParameterError.because(
                Fault(path, expected=f"some that may come before min_tokens ({params.min_tokens})")
            )
