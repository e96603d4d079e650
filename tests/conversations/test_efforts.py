"""Efforts that a chat template, or what stands for one, does not know: the nearest that it does; prompts are vLLM's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..kit.api.errors import OptionError
from ..kit.engines.prompts import Prompts

pytestmark = pytest.mark.engine

REFUSES = """\
{%- set effort = reasoning_effort | default('medium') -%}
{%- if effort not in ('low', 'medium', 'high') %}{{ raise_exception('effort: low, medium, high') }}{% endif -%}
{{ effort }}{% for m in messages %} {{ m.content }}{% endfor -%}
"""
IGNORES = "{% for m in messages %}{{ m.content }}{% endfor %}"

FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "refuses": (
        {}, {"chat_template": REFUSES},
        {"none": "low", "minimal": "low", "low": "low", "medium": "medium", "xhigh": "high", "max": "high"},
    ),
    "ignores": ({}, {"chat_template": IGNORES}, {"none": "none", "xhigh": "xhigh"}),
    "deepseek_v4": ({"tokenizer_mode": "deepseek_v4"}, {}, {"none": "none", "minimal": "minimal", "xhigh": "xhigh"}),
    "deepseek_v41": (
        {"tokenizer_mode": "deepseek_v41"}, {},
        {"none": "none", "minimal": "low", "low": "low", "medium": "high", "xhigh": "xhigh", "max": "max"},
    ),
    "kimi_k3": (
        {"tokenizer_mode": "kimi_k3"}, {"chat_template": "{{ thinking_effort }}" + IGNORES},
        {"none": "none", "minimal": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"},
    ),
}  # fmt: skip
"""By the family: arguments of vLLM's, options, and for each effort the one that vLLM's server makes our prompt of."""
ASKED = {"model": "served", "messages": [{"role": "user", "content": "How is Paris?"}]}


def prompts(folder: Path, family: str, **options: Any) -> Prompts:
    model, own, _ = FAMILIES[family]
    mode = model.get("tokenizer_mode", "hf")
    from vllm.renderers.registry import RENDERER_REGISTRY

    if mode not in RENDERER_REGISTRY.renderers:
        pytest.skip("this vLLM does not have the family")
    return Prompts(folder, model, **own, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_nearest_effort_that_the_family_knows(demo_model: Path, family: str) -> None:
    made = prompts(demo_model, family)
    for effort, near in FAMILIES[family][2].items():
        # What switches thinking off stays as the client said it.
        thinks = {"thinking": effort != "none", "enable_thinking": effort != "none"}
        expected = made.vllms({**ASKED, "reasoning_effort": near, "chat_template_kwargs": thinks})
        ours = made.ours({**ASKED, "reasoning_effort": effort, "chat_template_kwargs": thinks})
        assert made.text(ours) == made.text(expected), effort


def test_a_default_that_the_template_refuses_ends_the_start(demo_model: Path) -> None:
    expected = "option.default_chat_template_kwargs: reasoning_effort: expected one of low, medium, high"
    with pytest.raises(OptionError, match=f"^{expected}, which this model knows, got 'huge'$"):
        prompts(demo_model, "refuses", default_chat_template_kwargs={"reasoning_effort": "huge"})
    made = prompts(demo_model, "refuses", default_chat_template_kwargs={"reasoning_effort": "max"})
    assert made.text(made.ours(ASKED)) == "high How is Paris?"


def test_a_word_that_is_no_effort_gets_to_the_template(demo_model: Path) -> None:
    made = Prompts(demo_model, {}, chat_template="{{ reasoning_effort }}")
    assert made.text(made.ours({**ASKED, "reasoning_effort": "no_think"})) == "no_think"
