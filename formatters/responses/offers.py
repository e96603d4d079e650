"""One tool of a request: how the client knows it, what the model is offered of it, what the response repeats of it.

{"type": "function", "name", "parameters" ...}     a function
{"type": "namespace", "name", "tools": [...]}      functions and custom tools, named NAMESPACE__NAME
{"type": "custom", "name", "format" ...}           a function of one string
{"type": "web_search"} and all others              left out, or refused (option.server_tools)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.options import Settings
from ..common.forms import Form, Listed, Loose, Tagged
from ..common.kinds import Filled, Text
from ..conversation.custom_tools import GRAMMAR, custom_function
from ..conversation.tools import FUNCTION, leave_out

__all__ = ["CALLED", "TOOL", "ClientTool", "joined", "offered"]

BESIDE: Mapping[str, None] = dict.fromkeys(("allowed_callers", "async", "defer_loading", "output_schema"))
"""Fields of a tool that say nothing to the model."""
FORMAT = Tagged("type", {"text": Form({}), "grammar": GRAMMAR})
CUSTOM = Form({"name": Filled(), "description": Text(), "format": FORMAT, **BESIDE}, ("name",))
CALLED = {"function": Form({**FUNCTION.fields, **BESIDE}, FUNCTION.required), "custom": CUSTOM}
"""The types of tools that clients run by what the model writes."""
MEMBER = Tagged("type", CALLED)
NAMESPACE = Form(
    {"name": Filled(), "description": Text(), "tools": Listed(MEMBER, noun="tools")},
    ("name", "tools"),
)
TOOL = Tagged("type", {**CALLED, "namespace": NAMESPACE}, other=Loose({}))


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool as the client gave it."""

    name: str
    namespace: str | None
    function: dict[str, Any]
    """What templates take of it, but for the name."""
    place: str
    custom: bool = False


def joined(namespace: str | None, name: str) -> str:
    """The model's name of a tool: valid at OpenAI's, and as vLLM 0.32 and Codex join the two."""
    return name if namespace is None else f"{namespace}__{name}"


def offered(
    place: str, settings: Settings, kind: str, read: dict[str, Any]
) -> tuple[list[ClientTool], dict[str, Any] | None]:
    """What the model is offered of a tool, as TOOL has read it, and what the response repeats; None: it is left out.
    Raises UnsupportedError.
    """
    if kind not in TOOL.forms:
        leave_out(kind, f"{place}.type", settings, "'function', 'custom' or 'namespace'")
        return [], None
    if kind != "namespace":
        tool, shown = _called(kind, read, None, place)
        return [tool], shown
    name = read["name"]
    members = [
        _called(kind, member, name, f"{place}.tools[{index}]") for index, (kind, member) in enumerate(read["tools"])
    ]
    repeated = {"type": "namespace", "name": name, "description": read.get("description")}
    return [tool for tool, _ in members], {**repeated, "tools": [shown for _, shown in members]}


def _called(kind: str, read: dict[str, Any], namespace: str | None, place: str) -> tuple[ClientTool, dict[str, Any]]:
    """A function or a custom tool."""
    name, description = read["name"], read.get("description")
    if kind == "custom":
        form, grammar = read.get("format", ("text", {}))
        function = custom_function(description, grammar or None)
        shown = {"type": "custom", "name": name, "description": description, "format": {"type": form, **grammar}}
        return ClientTool(name, namespace, function, place, custom=True), shown
    function = {key: value for key, value in read.items() if key != "name"}
    shown = {
        "type": "function",
        "name": name,
        **{key: read.get(key) for key in ("description", "parameters", "strict")},
    }
    return ClientTool(name, namespace, function, place), shown
