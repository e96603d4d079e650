"""The names of vLLM's parsers, for where vLLM is not installed, and those that are for one type of model alone.

Sources: ToolParserManager and ReasoningParserManager of vLLM 0.23.0 and 0.32.0, `list_registered`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...errors import Fault, shown
from ..settings import Settings
from .find import closest

__all__ = ["GPT_OSS", "PARSERS", "misplaced_parsers", "unknown_parsers"]

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

GPT_OSS = "gpt_oss"
"""The type of gpt-oss's models, whose answers are read by tokens, whatever the options name."""
OF_GPT_OSS = {"tool_call_parser": "openai", "reasoning_parser": "openai_gptoss"}
"""vLLM's names of what reads them. It reads no text, so no other model's answers."""


def misplaced_parsers(settings: Settings, model_type: str) -> list[Fault]:
    """Faults of the parsers that the options name and that are not for a model of this type, by option.

    A file of the user's may register others by these names.
    """
    if settings.tool_parser_plugin is not None or settings.reasoning_parser_plugin is not None:
        return []
    faults: list[Fault] = []
    for option, own in OF_GPT_OSS.items():
        name: str | None = getattr(settings, option)
        if model_type == GPT_OSS and name not in (None, own):
            faults.append(Fault(option, expected=f"{own!r} or none for a model of type {GPT_OSS}", given=shown(name)))
        elif model_type != GPT_OSS and name == own:
            other = f"it reads the answers of type {GPT_OSS} alone, and this model's type is {model_type}"
            faults.append(Fault(option, f"{name!r} cannot be used with this model: {other}", given=shown(name)))
    return faults


def unknown_parsers(settings: Settings, known: Mapping[str, Collection[str]], whose: str) -> list[Fault]:
    """Faults of the parsers that the options name and that are not `known`, by option; `whose` these are."""
    faults: list[Fault] = []
    for option, names in known.items():
        name: str | None = getattr(settings, option)
        if name is not None and name not in names:
            expected = f"a parser of {whose}, one of {', '.join(sorted(names))}"
            faults.append(Fault(option, expected=expected, given=shown(name), similar=closest(name, names)))
    return faults
