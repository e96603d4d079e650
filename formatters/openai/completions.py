"""Text completions: `{"prompt", ...}` (docs/decisions.md: Text completions).

    parameters.py  the plain fields
    completions_reply.py    the answers

Choice number `prompt * n + sequence` is a sequence's.
"""

from __future__ import annotations

from typing import Any

from ...model.errors import ParameterError, PayloadError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import INVOCATIONS, ParsedRequest, Payload, Request
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.fields import paths_of
from ..common.guides import read_guide
from ..common.kinds import read_ids
from ..common.vllm_fields import GENERATION_KEYS
from .completions_reply import TextOptions, text_encoder
from .parameters import TEXT_TABLE, check_echo, read_fields, read_streaming, sampling_of

__all__ = ["CHOICES", "PATHS", "parse", "read_prompts"]

MAX_TOKENS = 16
"""Where the request does not say (docs/decisions.md: Length of OpenAI responses)."""
CHOICES = 2048
"""The most that a request may ask for."""

PATHS: Paths = paths_of(TEXT_TABLE, "sampling", Sampling)
"""What the fields are called."""

TextPrompt = str | tuple[int, ...]


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each prompt; raises RequestError."""
    prompts = read_prompts(payload.get("prompt"), "prompt", limit=CHOICES, may_be_empty=True)
    values = read_fields(payload, settings, chat=False)
    streams, usage, continuous_usage = read_streaming(values, settings)
    n = values.get("n", 1)
    if len(prompts) * max(n, values.get("best_of", n)) > CHOICES:
        raise ParameterError(f"prompt: expected at most {CHOICES} choices, prompts times n or best_of", "prompt")
    echo = values.get("echo", False)
    if echo:
        check_echo(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)), n, settings)
    max_tokens = values.get("max_tokens", MAX_TOKENS)
    silent = max_tokens == 0
    if silent and not echo:
        raise ParameterError.of("max_tokens", 0, "an integer >= 1 (0 requires echo: true)")
    logprobs = values.get("logprobs")
    asked_prefill = values.get("prompt_logprobs")
    guide = read_guide(payload, settings)
    own = guide.own
    if echo and logprobs is not None and logprobs >= (asked_prefill or 0):
        own["sampling.prompt_logprobs"] = "logprobs"
    sampling = sampling_of(
        values,
        streams=streams,
        # Engines generate one token at least; it is not shown.
        max_tokens=1 if silent else max_tokens,
        logprobs=None if silent else logprobs,
        structured_output=guide.output,
        **({"prompt_logprobs": max(logprobs, asked_prefill or 0)} if echo and logprobs is not None else {}),
        **({"best_of": None} if silent else {}),
    )
    shape = TextOptions(
        prompts=prompts,
        n=n,
        logprobs=logprobs,
        echo=echo,
        silent=silent,
        prompt_logprobs=asked_prefill is not None,
        usage=usage,
        continuous_usage=continuous_usage,
        token_ids=values.get("return_token_ids", False),
        ids_for_text=values.get("return_tokens_as_token_ids", False),
        completion_details=request.path != INVOCATIONS,
    )
    generations = tuple(
        Generation(
            request_id=request.request_id,
            prompt=prompt,
            sampling=sampling,
            stream=streams,
            tokens=sampling.logprobs is not None or continuous_usage or shape.token_ids,
            overflow="refuse",
            echo=echo and not isinstance(prompt, str),
            add_special_tokens=values.get("add_special_tokens", True),
            prompt_ids=shape.token_ids,
            **{key: values[key] for key in GENERATION_KEYS if key in values},
        )
        for prompt in prompts
    )
    fields = ClientFields(PATHS, own, prompt_names("prompt", len(prompts)))
    return ParsedRequest(generations, text_encoder(settings.model_name, shape, streams=streams), fields=fields)


def read_prompts(given: Any, field: str, *, limit: int, may_be_empty: bool = False) -> tuple[TextPrompt, ...]:
    """At most `limit` prompts, or inputs of embeddings, each a text or token ids; raises RequestError.

    A list of numbers is one prompt, a list of anything else several. Texts are not empty unless they `may_be_empty`.
    """
    text = "a string" if may_be_empty else "a non-empty string"
    expected = f"{text}, a list of token ids, or a list of either"
    if isinstance(given, str):
        return (_text(given, field, may_be_empty),)
    if not isinstance(given, list):
        raise PayloadError.of(field, given, expected)
    if not given:
        raise ParameterError.of(field, given, expected)
    if isinstance(given[0], int):
        return (_ids(given, field),)
    if len(given) > limit:
        raise ParameterError(f"{field}: expected at most {limit} of them, got {len(given)}", field)
    # All are of the first one's kind, as in OpenAI's schema.
    if isinstance(given[0], str):
        return tuple(_text(one, f"{field}[{index}]", may_be_empty) for index, one in enumerate(given))
    return tuple(_ids(one, f"{field}[{index}]") for index, one in enumerate(given))


def _text(given: Any, place: str, may_be_empty: bool) -> str:
    if not isinstance(given, str):
        raise PayloadError.of(place, given, "a string")
    if not given and not may_be_empty:
        raise ParameterError.of(place, given, "a non-empty string")
    return given


def _ids(given: Any, place: str) -> tuple[int, ...]:
    if not isinstance(given, list):
        raise PayloadError.of(place, given, "a list of token ids")
    if not given:
        raise ParameterError.of(place, given, "at least one token id")
    return read_ids(given, place)
