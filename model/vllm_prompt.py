"""A generation's prompt as vLLM takes it, and what vLLM says where it does not take a request."""

from __future__ import annotations

from typing import Any, cast

from .errors import ParameterError
from .generation import Generation

__all__ = ["refused", "render"]


def render(llm: Any, generation: Generation) -> Any:
    """Text or token ids, tokenized: vLLM's own form of a prompt, with `prompt_token_ids`."""
    from vllm.renderers.inputs.preprocess import parse_model_prompt
    from vllm.renderers.params import TokenizeParams

    given: dict[str, Any]
    if isinstance(generation.prompt, str):
        given = {"prompt": generation.prompt}
    else:
        given = {"prompt_token_ids": [*cast("tuple[int, ...]", generation.prompt)]}
    # No limit here: vLLM's message for a long prompt would not name the client's field.
    tokenize = TokenizeParams(
        max_total_tokens=None,
        truncate_prompt_tokens=generation.sampling.truncate,
        truncation_side="left",
        add_special_tokens=generation.add_special_tokens,
    )
    parsed = parse_model_prompt(llm.model_config, given)
    return llm.renderer.render_cmpl([parsed], tokenize)[0]


def refused(error: Exception, guide_field: str | None = None) -> ParameterError:
    """What vLLM found wrong with a request's values. Where it names none, the fault is that of the guided decoding."""
    param = getattr(error, "parameter", None) or guide_field
    named = param is None or param in str(error)
    return ParameterError(str(error) if named else f"{param}: {error}", param)
