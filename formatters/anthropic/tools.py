"""Anthropic's tools, and which of them may or must be called.

{"tools": [{"name", "input_schema", ...}], "tool_choice": {"type", ...}} --read_tools--> ToolUse, and whether several
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.options import Settings
from ..common.forms import Form, Loose, Tagged
from ..common.kinds import Boolean, Filled, Text, Tree
from ..conversation.tools import Choice, Offer, ToolUse, known, leave_out, use

__all__ = ["CHOICE", "TOOL", "read_tools"]

ALONE: Mapping[str, Boolean] = {"disable_parallel_tool_use": Boolean()}
CHOICE = Tagged(
    "type",
    {
        "auto": Form(ALONE),
        "any": Form(ALONE),
        "tool": Form({"name": Filled(), **ALONE}, ("name",)),
        "none": Form(ALONE),
    },
)
WORDS = {"auto": "auto", "none": "none", "any": "required", "tool": "required"}
"""The types of a choice in OpenAI's words."""
CUSTOM = Form(
    {
        "name": Filled(),
        "description": Text(),
        "input_schema": Tree(),
        "strict": Boolean(),
        **dict.fromkeys(
            ("cache_control", "defer_loading", "eager_input_streaming", "input_examples", "allowed_callers")
        ),
    },
    ("name", "input_schema"),
)
# Those of other types Anthropic's own servers run, or their schema its models know by heart.
TOOL = Tagged("type", {"custom": CUSTOM}, infer=lambda tool: "custom", other=Loose({}))


def read_tools(values: Mapping[str, Any], settings: Settings) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether an answer may have several calls; raises RequestError."""
    offers: list[Offer] = []
    for index, (kind, read) in enumerate(values["tools"]):
        place = f"tools[{index}]"
        if kind not in TOOL.forms:
            leave_out(kind, f"{place}.type", settings, "'custom'")
            continue
        function: dict[str, Any] = {name: read[name] for name in ("description", "strict") if name in read}
        function["parameters"] = {"type": "object"} | read["input_schema"]
        offers.append(Offer(read["name"], function, place, f"{place}.input_schema"))
    choice, parallel = _choice(values["tool_choice"], [offer.name for offer in offers])
    return use(offers, choice, "tool_choice", "tools[]", "tools[].input_schema"), parallel


def _choice(read: tuple[str, dict[str, Any]] | None, names: Collection[str]) -> tuple[Choice, bool]:
    if read is None:
        return Choice(), True
    kind, form = read
    function = known(form["name"], "tool_choice.name", names) if kind == "tool" else None
    return Choice(WORDS[kind], function), not form.get("disable_parallel_tool_use", False)
