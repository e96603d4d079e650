"""Text completions: `{"prompt", ...}` (specs 000; wire-decisions: OpenAI).

    parameters.py  the plain fields
    text_reply.py    the answers

Choice number `prompt * n + sequence` is a sequence's.
"""

from __future__ import annotations

from typing import Any

from ...model.errors import ParameterError, PayloadError
from ...model.generation import Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request
from ..common.guides import read_guide
from ..common.kinds import read_ids
from .parameters import read_fields, read_streaming, sampling_of
from .text_reply import TextOptions, text_encoder

__all__ = ["CHOICES", "parse"]

MAX_TOKENS = 16
"""Where the request does not say (wire-decisions: OpenAI)."""
CHOICES = 2048
"""The most that a request may ask for."""

TextPrompt = str | tuple[int, ...]


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each prompt; raises RequestError."""
    prompts = _prompts(payload.get("prompt"))
    values = read_fields(payload, settings, chat=False)
    streams, usage = read_streaming(values, settings)
    n = values.get("n", 1)
    if len(prompts) * max(n, values.get("best_of", n)) > CHOICES:
        raise ParameterError(f"prompt: expected at most {CHOICES} choices, prompts times n or best_of", "prompt")
    echo = values.get("echo", False)
    max_tokens = values.get("max_tokens", MAX_TOKENS)
    silent = max_tokens == 0
    if silent and not echo:
        raise ParameterError.of("max_tokens", 0, "an integer >= 1 (0 requires echo: true)")
    logprobs = values.get("logprobs")
    asked_prefill = values.get("prompt_logprobs")
    sampling = sampling_of(
        values,
        streams=streams,
        # Engines generate one token at least; it is not shown.
        max_tokens=1 if silent else max_tokens,
        logprobs=None if silent else logprobs,
        structured_output=read_guide(payload, settings),
        **({"prompt_logprobs": max(logprobs, asked_prefill or 0)} if echo and logprobs is not None else {}),
        **({"best_of": None} if silent else {}),
    )
    generations = tuple(
        Generation(
            request_id=request.request_id,
            prompt=prompt,
            sampling=sampling,
            stream=streams,
            tokens=sampling.logprobs is not None,
            overflow="refuse",
            prompt_field="prompt" if len(prompts) == 1 else f"prompt[{number}]",
            echo=echo and not isinstance(prompt, str),
            add_special_tokens=values.get("add_special_tokens", True),
            kv_transfer_params=values.get("kv_transfer_params"),
        )
        for number, prompt in enumerate(prompts)
    )
    shape = TextOptions(
        prompts=prompts,
        n=n,
        logprobs=logprobs,
        echo=echo,
        silent=silent,
        prompt_logprobs=asked_prefill is not None,
        usage=usage,
    )
    return ParsedRequest(generations, text_encoder(settings.model_name, shape, streams=streams))


EXPECTED = "a string, a list of token ids, or a list of these"


def _prompts(given: Any) -> tuple[TextPrompt, ...]:
    """A list of numbers is one prompt, a list of anything else several."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list):
        raise PayloadError.of("prompt", given, EXPECTED)
    if not given:
        raise ParameterError.of("prompt", given, EXPECTED + ", not an empty one")
    if isinstance(given[0], int):
        return (_ids(given, "prompt"),)
    if len(given) > CHOICES:
        raise ParameterError(f"prompt: expected at most {CHOICES} choices, prompts times n or best_of", "prompt")
    # All are of the first one's kind, as in OpenAI's schema.
    texts = isinstance(given[0], str)
    return tuple(_prompt(one, f"prompt[{index}]", texts) for index, one in enumerate(given))


def _prompt(given: Any, place: str, texts: bool) -> TextPrompt:
    if texts and isinstance(given, str):
        return given
    if not texts and isinstance(given, list):
        return _ids(given, place)
    raise PayloadError.of(place, given, "a string" if texts else "a list of token ids")


def _ids(given: list[Any], place: str) -> tuple[int, ...]:
    if not given:
        raise ParameterError.of(place, given, "at least one token id")
    return read_ids(given, place)
