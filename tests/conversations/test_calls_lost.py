"""Chat templates that vLLM's form of a history does not fit: calls are left out, or the template fails, as in vLLM.

For its templates vLLM makes a content that is null an empty text, and arguments an object.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..kit.engines.prompts import Prompts
from ..kit.models.vocabularies import vocabulary

pytestmark = pytest.mark.engine

Body = dict[str, Any]

ASKED = {"role": "user", "content": "How is Paris?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Paris"}'}}
SUNNY = {"role": "tool", "tool_call_id": "c1", "content": "Sunny"}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


def body(**said: Any) -> Body:
    answer = {"role": "assistant", "tool_calls": [CALL], **said}
    return {"model": "served", "messages": [ASKED, answer, SUNNY], "tools": TOOLS}


CONTENTS: dict[str, Body] = {
    "null": body(content=None),
    "left out": body(),
    "empty": body(content=""),
    "a text": body(content="Let me see."),
}
JOINS = """\
{%- for m in messages -%}
<|{{ m.role }}|>{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ '<call>' + call.function.name + ' ' + call.function.arguments }}{% endfor -%}
{%- endfor -%}
"""
"""As DeepSeek V3.1's: it takes arguments for text."""
IF_NULL = """\
{%- for m in messages -%}
<|{{ m.role }}|>{% if m.content is none %}{% for call in m.tool_calls %}{{ call.function.name }}{% endfor %}{% else -%}
{{ m.content }}{% endif -%}
{%- endfor -%}
"""
"""As DeepSeek V3's: it takes for an answer what has a content."""


@pytest.mark.parametrize("own", [True, False], ids=["deepseek_v3", "if null"])
def test_calls_that_are_shown_beside_null_alone_are_left_out(demo_model: Path, own: bool) -> None:
    """DeepSeek V3's own template lists no tools either."""
    prompts = (
        Prompts(vocabulary("deepseek_v3"), {}, tool_call_parser="deepseek_v3")
        if own
        else Prompts(demo_model, {}, chat_template=IF_NULL, tool_call_parser="hermes")
    )
    for name, asked in CONTENTS.items():
        ours = prompts.ours(asked)
        assert ours == prompts.vllms(asked), name
        text = prompts.text(ours)
        assert "Sunny" in text, name
        assert "look_up" not in text, name
    assert "Let me see." in prompts.text(prompts.ours(CONTENTS["a text"]))


def test_a_template_that_joins_arguments_as_text_fails(demo_model: Path) -> None:
    prompts = Prompts(demo_model, {}, chat_template=JOINS, tool_call_parser="hermes")
    for asked in CONTENTS.values():
        for render in (prompts.ours, prompts.vllms):
            with pytest.raises(Exception, match="can only concatenate str"):
                render(asked)


def test_templates_that_fit_show_them() -> None:
    prompts = Prompts(vocabulary("qwen3"), {}, tool_call_parser="hermes")
    for name, asked in CONTENTS.items():
        assert prompts.text(prompts.ours(asked)).count("look_up") == 2, name
