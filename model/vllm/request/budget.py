"""Whether an engine can end reasoning after so many tokens (thinking_token_budget): vLLM refuses it, for reasons that
name no field, where it has not been told what reasoning looks like, and where its model runner cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Fault, UnsupportedError
from ...generation import Sampling
from ..library.internals import v2_takes_budgets

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["ThinkingBudget"]

PATH = "sampling.thinking_token_budget"


class ThinkingBudget:
    """What one engine can do about it."""

    def __init__(self, config: VllmConfig) -> None:
        self.refusal = _refusal(config)
        """Why it is refused; empty where it is not."""

    def check(self, sampling: Sampling) -> None:
        """Raises UnsupportedError where there is to be a budget and cannot be."""
        if sampling.thinking_token_budget is not None and self.refusal:
            raise UnsupportedError.because(Fault(PATH, f"not supported here ({self.refusal})"))


def _refusal(config: VllmConfig) -> str:
    reasoning = config.reasoning_config
    if reasoning is None or not reasoning.enabled:
        return (
            "it needs option.reasoning_parser, of a parser with marks for both ends of the reasoning, or "
            "option.reasoning_config with these"
        )
    if config.use_v2_model_runner and not v2_takes_budgets():
        return "vLLM's model runner V2 has no budgets in this version; VLLM_USE_V2_MODEL_RUNNER=0 goes back to V1"
    return ""
