"""Anthropic's tools, and which of them may or must be called.

{"tools": [{"name", "input_schema", ...}], "tool_choice": {"type", ...}} --read_tools--> ToolUse, and whether several
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...model.errors import PayloadError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.forms import Form, Tagged
from ..common.kinds import Boolean, Filled, Object, Text, Tree
from ..common.schemas import array, one_of
from ..conversation.tools import TOOLS, Choice, Offer, ToolUse, known, leave_out, listed, use

__all__ = ["TOOLS_SCHEMA", "read_offer", "read_offers", "read_tools"]

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
        "defer_loading": Boolean(),
        **dict.fromkeys(("cache_control", "eager_input_streaming", "input_examples", "allowed_callers")),
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


def read_tools(
    payload: Payload, settings: Settings, offers: Sequence[Offer] | None = None, found: Collection[str] = ()
) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether an answer may have several calls; raises RequestError.

    offers: what has been read of them already. found: of those that are deferred, those that may be called.
    """
    offers = read_offers(payload, settings) if offers is None else offers
    choice, parallel = _choice(payload.get("tool_choice"), [offer.name for offer in offers], settings)
    return use(offers, choice, "tool_choice", "tools[]", "tools[].input_schema", found), parallel


def read_offers(payload: Payload, settings: Settings) -> list[Offer]:
    """The tools of a request that are not left out; raises RequestError."""
    given = [*enumerate(listed(payload.get("tools"), "tools"))]
    offers = [read_offer(one, f"tools[{index}]", settings) for index, one in given]
    return [offer for offer in offers if offer is not None]


def read_offer(given: Any, place: str, settings: Settings) -> Offer | None:
    """One tool; None where it is left out. Raises RequestError."""
    kind = Object().read(place, given).get("type")
    if kind not in (None, "custom"):
        # Tools that Anthropic's own servers run, or whose schema its models know by heart.
        if not isinstance(kind, str):
            raise PayloadError.of(f"{place}.type", kind, "'custom'")
        leave_out(kind, f"{place}.type", settings, "'custom'")
        return None
    read = CUSTOM.read(place, given, settings)
    function: dict[str, Any] = {name: read[name] for name in ("description", "strict") if name in read}
    function["parameters"] = {"type": "object"} | read["input_schema"]
    return Offer(read["name"], function, place, f"{place}.input_schema", deferred=read.get("defer_loading", False))


def _choice(given: Any, names: Collection[str], settings: Settings) -> tuple[Choice, bool]:
    if given is None:
        return Choice(), True
    kind, read = CHOICE.read("tool_choice", given, settings)
    function = known(read["name"], "tool_choice.name", names) if kind == "tool" else None
    return Choice(WORDS[kind], function), not read.get("disable_parallel_tool_use", False)
