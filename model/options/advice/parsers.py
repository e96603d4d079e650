"""The names of vLLM's parsers, for where vLLM is not installed, and those that are not served.

Sources: ToolParserManager and ReasoningParserManager of vLLM 0.23.0 and 0.32.0, `list_registered`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..settings import Settings
from .find import closest

__all__ = ["PARSERS", "refused_parser", "unknown_parsers"]

_TOOL = """
apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 dots ernie45
functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes hf hunyuan_a13b hy_v3 hy_v4
inkling internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic longcat mimo
minicpm5 minimax minimax_m2 minimax_m3 mistral muse_glimmer olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic
qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 xlam
"""

_REASONING = """
cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 ernie45 gemma4 glm45 glm47 granite
granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon kimi_k2 kimi_k3 ling3 mimo minicpmv
minimax_m2 minimax_m2_append_think minimax_m3 mistral muse_glimmer nemotron_v3 olmo3 openai_gptoss plamo3
poolside_v1 qwen3 seed_oss step3 step3p5
"""
PARSERS = {
    "tool_call_parser": frozenset(_TOOL.split()),
    "reasoning_parser": frozenset(_REASONING.split()),
}
"""By option, those that either version has."""

NOT_SERVED = {"openai": "it reads no text: gpt-oss's answers are in a format of their own, which is not served"}
"""Tool parsers that vLLM lists and that take no call out of a text, with the reason."""


def refused_parser(settings: Settings) -> str | None:
    """Why the tool parser that the options name is not served; None where it is, or a file of the user's may be it."""
    name = settings.tool_call_parser
    if name not in NOT_SERVED or settings.tool_parser_plugin is not None:
        return None
    return f"{name!r} is not supported: {NOT_SERVED[name]}"


def unknown_parsers(settings: Settings, known: Mapping[str, Collection[str]], whose: str) -> list[tuple[str, str]]:
    """Faults of the parsers that the options name and that are not `known`, by option; `whose` these are."""
    faults: list[tuple[str, str]] = []
    for option, names in known.items():
        name: str | None = getattr(settings, option)
        if name is not None and name not in names:
            expected = f"expected a parser of {whose}, one of {', '.join(sorted(names))}"
            faults.append((option, f"option.{option}: {expected}; got {name!r}{closest(name, names)}"))
    return faults
