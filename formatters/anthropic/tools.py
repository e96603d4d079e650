"""Anthropic's tools, and which of them may or must be called.

{"tools": [{"name", "input_schema", ...}], "tool_choice": {"type", ...}} --read_tools--> ToolUse, and whether several
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...model.options import Settings
from ..common.forms import Form, Loose, Tagged
from ..common.kinds import Boolean, Filled, Text, Tree
from ..conversation.tools import Choice, Offer, ToolUse, known, leave_out, use

__all__ = ["CHOICE", "TOOL", "offer_of", "read_offers", "read_tools"]

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
        "defer_loading": Boolean(),
        **dict.fromkeys(("cache_control", "eager_input_streaming", "input_examples", "allowed_callers")),
    },
    ("name", "input_schema"),
)
# Those of other types Anthropic's own servers run, or their schema its models know by heart.
TOOL = Tagged("type", {"custom": CUSTOM}, infer=lambda tool: "custom", other=Loose({}))


Tool = tuple[str, dict[str, Any]]
"""As TOOL reads it."""


def read_tools(
    choice: tuple[str, dict[str, Any]] | None, offers: Sequence[Offer], found: Collection[str]
) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether an answer may have several calls; raises RequestError.

    choice: as CHOICE has read it. found: of those that are deferred, those that may be called.
    """
    chosen, parallel = _choice(choice, [offer.name for offer in offers])
    return use(offers, chosen, "tool_choice", "tools[]", "tools[].input_schema", found), parallel


def read_offers(tools: Iterable[Tool], settings: Settings) -> list[Offer]:
    """The tools of a request that are not left out; raises RequestError."""
    offers = [offer_of(tool, f"tools[{index}]", settings) for index, tool in enumerate(tools)]
    return [offer for offer in offers if offer is not None]


def offer_of(tool: Tool, place: str, settings: Settings) -> Offer | None:
    """One tool; None where it is left out. Raises RequestError."""
    kind, read = tool
    if kind not in TOOL.forms:
        leave_out(kind, f"{place}.type", settings, "'custom'")
        return None
    function: dict[str, Any] = {name: read[name] for name in ("description", "strict") if name in read}
    function["parameters"] = {"type": "object"} | read["input_schema"]
    return Offer(read["name"], function, place, f"{place}.input_schema", deferred=read.get("defer_loading", False))


def _choice(read: tuple[str, dict[str, Any]] | None, names: Collection[str]) -> tuple[Choice, bool]:
    if read is None:
        return Choice(), True
    kind, form = read
    function = known(form["name"], "tool_choice.name", names) if kind == "tool" else None
    return Choice(WORDS[kind], function), not form.get("disable_parallel_tool_use", False)
