"""Text completions: `{"prompt", ...}` (docs/decisions.md: Text completions).

    parameters.py  the fields
    completions_reply.py    the answers

Choice number `prompt * n + sequence` is a sequence's.
"""

from __future__ import annotations

from ...model.errors import Fault, ParameterError
from ...model.generation import Generation, Sampling
from ...model.options import Settings
from ..base import INVOCATIONS, ParsedRequest, Payload, Request
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.fields import paths_of
from ..common.guides import read_guide
from ..common.vllm_fields import GENERATION_KEYS
from .completions_reply import TextOptions, text_encoder
from .parameters import CHOICES, TEXT_ROWS, TEXT_TABLE, check_echo, read_streaming, sampling_of

__all__ = ["PATHS", "parse"]

MAX_TOKENS = 16
"""Where the request does not say (docs/decisions.md: Length of OpenAI responses)."""

PATHS: Paths = paths_of(TEXT_TABLE, "sampling", Sampling)
"""What the fields are called."""


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each prompt; raises RequestError."""
    values = TEXT_ROWS.given(payload, settings)
    prompts = values["prompt"]
    streams, usage, continuous_usage = read_streaming(values)
    n = values.get("n", 1)
    if len(prompts) * max(n, values.get("best_of", n)) > CHOICES:
        raise ParameterError.because(Fault("prompt", expected=f"at most {CHOICES} choices, prompts times n or best_of"))
    echo = values.get("echo", False)
    if echo:
        check_echo(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)), n, settings)
    max_tokens = values.get("max_tokens", MAX_TOKENS)
    silent = max_tokens == 0
    if silent and not echo:
        raise ParameterError.of("max_tokens", 0, "an integer >= 1 (0 requires echo: true)")
    logprobs = values.get("logprobs")
    asked_prefill = values.get("prompt_logprobs")
    guide = read_guide(values)
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
