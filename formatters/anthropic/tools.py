"""Anthropic's tools, and which of them may or must be called.

{"tools": [{"name", "input_schema", ...}], "tool_choice": {"type", ...}} --read_tools--> ToolUse, and whether several
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...model.errors import PayloadError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.forms import Form, Tagged
from ..common.kinds import Boolean, Filled, Object, Text, Tree
from ..common.schemas import array, one_of
from ..conversation.tools import TOOLS, Choice, Offer, ToolUse, known, leave_out, listed, use

__all__ = ["TOOLS_SCHEMA", "read_tools"]

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
        "type": Text(("custom",)),
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
OTHER: JsonSchema = {
    "type": "object",
    "properties": {"type": {"type": "string", "not": {"const": "custom"}}},
    "required": ["type"],
}
TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": array(one_of(CUSTOM.schema, OTHER), le=TOOLS),
    "tool_choice": CHOICE.schema,
}


def read_tools(payload: Payload, settings: Settings) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether an answer may have several calls; raises RequestError."""
    offers = [*_offers(payload, settings)]
    choice, parallel = _choice(payload.get("tool_choice"), [offer.name for offer in offers], settings)
    return use(offers, choice, "tool_choice", "tools[]", "tools[].input_schema"), parallel


def _offers(payload: Payload, settings: Settings) -> Iterator[Offer]:
    for index, one in enumerate(listed(payload.get("tools"), "tools")):
        place = f"tools[{index}]"
        kind = Object().read(place, one).get("type")
        if kind not in (None, "custom"):
            # Tools that Anthropic's own servers run, or whose schema its models know by heart.
            if not isinstance(kind, str):
                raise PayloadError.of(f"{place}.type", kind, "'custom'")
            leave_out(kind, f"{place}.type", settings, "'custom'")
            continue
        read = CUSTOM.read(place, one, settings)
        function: dict[str, Any] = {name: read[name] for name in ("description", "strict") if name in read}
        function["parameters"] = {"type": "object"} | read["input_schema"]
        yield Offer(read["name"], function, place, f"{place}.input_schema")


def _choice(given: Any, names: Collection[str], settings: Settings) -> tuple[Choice, bool]:
    if given is None:
        return Choice(), True
    kind, read = CHOICE.read("tool_choice", given, settings)
    function = known(read["name"], "tool_choice.name", names) if kind == "tool" else None
    return Choice(WORDS[kind], function), not read.get("disable_parallel_tool_use", False)
