"""A conversation's token ids, as vLLM's own server has them for gpt-oss (renderers/online_renderer.py).

    request --messages--> system, developer, ... in Harmony's form --render_for_completion--> token ids

The system message has the date (of the day, or VLLM_SYSTEM_START_DATE), the effort and the channels. What the system or
the developer says first goes with the tools into the developer message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import Fault, ParameterError, one_line
from ...library.parts import part
from ..prompts.prompt import client_errors

__all__ = ["efforts", "prompt_ids"]

UTILITIES = "vllm.entrypoints.openai.parser.harmony_utils"


def efforts() -> tuple[str, ...]:
    """Those that these models know."""
    return tuple(part(f"{UTILITIES}:REASONING_EFFORT"))


def prompt_ids(messages: Sequence[Any], tools: Sequence[Any] | None, effort: str | None) -> list[int]:
    """The prompt of messages in OpenAI's form, with vLLM's form of the tools; raises ParameterError.

    effort: one of `efforts`; None leaves it to openai_harmony, which says medium.
    """
    try:
        instructions, rest = part(f"{UTILITIES}:extract_instructions_from_messages")([*messages])
        made = part(f"{UTILITIES}:build_harmony_preamble")(
            instructions=instructions, tools=tools, reasoning_effort=effort, with_custom_tools=tools is not None
        )
        made += part(f"{UTILITIES}:parse_chat_inputs_to_harmony_messages")(rest)
        ids: list[int] = part(f"{UTILITIES}:render_for_completion")(made)
    except (part("openai_harmony:HarmonyError"), *client_errors()) as error:
        reason = one_line(str(error))[:300]
        raise ParameterError.because(
            Fault("prompt", f"it cannot be written in this model's format: {reason}")
        ) from error
    return ids
