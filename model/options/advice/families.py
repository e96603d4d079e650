"""Which of vLLM's parsers a model's answers need, by its configuration and its chat template.

config.json, chat template --proposed--> {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}

Sources: the marks that vLLM's parsers look for (vllm/tool_parsers, vllm/reasoning of 0.26.0 and 0.32.0) and that their
models' templates write, and the models that vLLM's documentation names for each parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["ROWS", "Row", "proposed"]


@dataclass(frozen=True, slots=True)
class Row:
    """Models whose answers one parser reads."""

    option: str
    parser: str
    marks: tuple[str, ...]
    """What the template has, all of it."""
    kind: str = ".*"
    """The model_type of config.json, as a regular expression of all of it."""


def _calls(parser: str, *marks: str, kind: str = ".*") -> Row:
    return Row("tool_call_parser", parser, marks, kind)


def _thinks(parser: str, *marks: str, kind: str = ".*") -> Row:
    return Row("reasoning_parser", parser, marks, kind)


ROWS: tuple[Row, ...] = (
    _calls("deepseek_v4", kind="deepseek_v4"),
    _calls("deepseek_v32", kind="deepseek_v32"),
    _calls("deepseek_v32", "｜DSML｜"),
    _calls("kimi_k2", "<|tool_calls_section_begin|>"),
    _calls("gigachat3", "function call<|role_sep|>"),
    _calls("deepseek_v3", "<｜tool▁calls▁begin｜>", "```json"),
    _calls("deepseek_v31", "<｜tool▁calls▁begin｜>"),
    _calls("mistral", "[TOOL_CALLS]"),
    _calls("llama4_pythonic", kind="llama4"),
    _calls("phi4_mini_json", "<|tool|>", kind="phi3"),
    _calls("granite", "<|tool_call|>", kind="granite.*"),
    _calls("granite4", "<tool_call>", kind="granite.*"),
    _calls("jamba", "<tool_calls>", kind="jamba"),
    _calls("hunyuan_a13b", "<tool_calls>", kind="hunyuan.*"),
    _calls("ernie45", "<tool_call>", kind="ernie4_5.*"),
    _calls("cohere_command4", "<|START_ACTION|>", "<|START_TEXT|>"),
    _calls("cohere_command3", "<|START_ACTION|>"),
    _calls("internlm", "<|action_start|>"),
    _calls("apertus", "<|tools_prefix|>"),
    _calls("lfm2", "<|tool_call_start|>"),
    _calls("functiongemma", "<start_function_call>"),
    _calls("gemma4", "<|tool_call>"),
    _calls("longcat", "<longcat_tool_call>"),
    _calls("seed_oss", "<seed:tool_call>"),
    _calls("minimax_m2", "<minimax:tool_call>"),
    _calls("olmo3", "<function_calls>"),
    _calls("glm45", "<arg_key>", kind="glm.*"),
    _calls("step3p5", "<function=", kind="step3p5"),
    _calls("mimo", "<function=", kind="mimo.*"),
    _calls("qwen3_coder", "<tool_call>", "<function="),
    _calls("hermes", "<tool_call>"),
    _calls("llama3_json", "ipython", kind="llama|mllama"),
    _thinks("deepseek_v4", kind="deepseek_v4"),
    _thinks("deepseek_v3", kind="deepseek_v32"),
    _thinks("deepseek_v3", "<think>", "thinking", kind="deepseek_v3"),
    _thinks("mistral", "[THINK]"),
    _thinks("seed_oss", "<seed:think>"),
    _thinks("gemma4", "<|channel>"),
    _thinks("cohere_command4", "<|START_THINKING|>", "<|START_TEXT|>"),
    _thinks("cohere_command3", "<|START_THINKING|>"),
    _thinks("granite", "Here is my thought process"),
    _thinks("hunyuan_a13b", "<think>", kind="hunyuan.*"),
    _thinks("kimi_k2", "<think>", kind="kimi.*"),
    _thinks("minimax_m2", "<think>", kind="minimax.*"),
    _thinks("glm45", "<think>", kind="glm.*"),
    _thinks("ernie45", "<think>", kind="ernie4_5.*"),
    _thinks("nemotron_v3", "<think>", kind="nemotron.*"),
    _thinks("step3p5", "<think>", kind="step3p5"),
    _thinks("step3", "<think>", kind="step3.*"),
    _thinks("olmo3", "<think>", kind="olmo.*"),
    _thinks("mimo", "<think>", kind="mimo.*"),
    _thinks("qwen3", "<think>", kind="qwen3.*"),
    _thinks("deepseek_r1", "<think>"),
)  # fmt: skip
"""The first that fits is proposed; those of one kind of model come before those of any."""


def proposed(config: dict[str, Any] | None, template: str) -> dict[str, str]:
    """The parsers, by option, for a model with this config.json and chat template; none for what its type decides."""
    kind = str((config or {}).get("model_type") or "")
    found: dict[str, str] = {}
    for row in ROWS:
        fits = re.fullmatch(row.kind, kind) and all(mark in template for mark in row.marks)
        if fits and row.option not in found:
            found[row.option] = row.parser
    return found
