"""What users' output formatters are given in place of LMI's answer: djl_python hands them vLLM's text completion."""

from __future__ import annotations

from ...model.generation import Generation
from ...model.options import Settings
from ..base import ResponseEncoder
from ..openai.completions_reply import TextOptions, text_encoder

__all__ = ["for_formatters"]


def for_formatters(generation: Generation, settings: Settings) -> ResponseEncoder | None:
    """The encoder of a text completion for the same generation; None where its prompt is no text."""
    if not isinstance(generation.prompt, str):
        return None
    logprobs = generation.sampling.logprobs if generation.tokens else None
    shape = TextOptions((generation.prompt,), n=generation.sampling.n, logprobs=logprobs)
    return text_encoder(settings.model_name, shape, streams=generation.stream)
