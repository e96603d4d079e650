"""Tools that the prompt does not list in front: found by a search, added and removed by system messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ...kit.answers.anthropic import SETTINGS
from ...kit.api.dialects import parse
from ...kit.api.errors import ParameterError, PayloadError, UnsupportedError
from ...kit.api.types import Conversation, template_messages
from ...kit.rows import each_row

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
ASKED = {"role": "user", "content": "Look!"}


def tool(name: str, *, deferred: bool = False) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA} | ({"defer_loading": True} if deferred else {})


TOOLS = [tool("search"), tool("look", deferred=True), tool("find", deferred=True)]


def described(*names: str) -> str:
    lines = [json.dumps({"name": name, "parameters": SCHEMA}, separators=(",", ":")) for name in names]
    return "\n".join(["<functions>", *(f"<function>{line}</function>" for line in lines), "</functions>"])


def result(*content: Any) -> list[dict[str, Any]]:
    """A call of the search, and what it has found."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [*content]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]


def found(name: str) -> dict[str, str]:
    return {"type": "tool_reference", "tool_name": name}


def system(*blocks: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"role": "system", "content": [*blocks], **fields}]


def named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


def added(definition: Any) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}


def conversation(messages: list[dict[str, Any]], **fields: Any) -> Conversation:
    made = parse("anthropic", {"max_tokens": 9, "messages": [ASKED, *messages], "tools": TOOLS, **fields}, SETTINGS)
    prompt = made.generations[0].prompt
    assert isinstance(prompt, Conversation)
    return prompt


ON = "These tools can be called from now on:\n"
OFF = "These tools can no longer be called:\n"
TEXT = {"type": "text", "text": "So."}
ON_AND_OFF = (named("tool_addition", "look"), named("tool_removal", "look"))


@each_row(
    ("messages", "last", "callable_"),
    [
        ([], "Look!", []),
        (result(found("look")), described("look"), ["look"]),
        (result(TEXT, found("find"), found("look")), f"So.\n{described('find', 'look')}", ["look", "find"]),
        # One that is listed, and one that is not there.
        (result(found("search"), found("other")), "search\nother", []),
        (result(found("other"), found("look")), f"other\n{described('look')}", ["look"]),
        # A definition is told once.
        (result(found("look"), found("look"), found("find")), f"look\n{described('look', 'find')}", ["look", "find"]),
        (result(found("look")) + system(*ON_AND_OFF, named("tool_addition", "look")),
         f"{ON}look\n{OFF}look\n{ON}look", ["look"]),
        (system(added(tool("new")), added(tool("new"))), ON + described("new", "new"), ["new"]),
        (system(named("tool_addition", "look")), ON + described("look"), ["look"]),
        (system(added(tool("new")), TEXT), f"{ON}{described('new')}\nSo.", ["new"]),
        (system(*ON_AND_OFF), f"{ON}{described('look')}\n{OFF}look", []),
        (result(found("look")) + system(named("tool_removal", "search")), f"{OFF}search", ["look"]),
        # It comes with what a turn says to another one.
        (system(TEXT) + system(named("tool_addition", "look")), f"So.\n{ON}{described('look')}", ["look"]),
        # Of a server's tool nothing is said.
        (system(added({"type": "web_search_20250305", "name": "web_search"}), TEXT), "So.", []),
    ],
)  # fmt: skip
def test_what_the_model_is_told(messages: list[dict[str, Any]], last: str, callable_: list[str]) -> None:
    made = conversation(messages)
    assert template_messages(made.messages)[-1]["content"] == last
    assert [one["function"]["name"] for one in made.tools] == ["search", *callable_]
    assert [one.get("defer_loading", False) for one in made.tools] == [False, *(True for _ in callable_)]


@each_row(
    ("tools", "choice", "names"),
    [
        # A template says how tools are called where it lists one.
        ([tool("look", deferred=True)], None, ["look"]),
        (TOOLS, {"type": "tool", "name": "find"}, ["search", "look", "find"]),
        (TOOLS, {"type": "none"}, ["search", "look"]),
    ],
)
def test_what_is_listed(tools: list[Any], choice: Any, names: list[str]) -> None:
    made = conversation(result(found("look")), tools=tools, tool_choice=choice)
    assert [one["function"]["name"] for one in made.tools] == names
    listed = [one["function"]["name"] for one in made.tools if not one.get("defer_loading")]
    assert listed == [name for name in names if name != "look" or len(names) == 1]


@each_row(
    ("messages", "told"),
    [
        ([*system(TEXT, clear_at="never"), ASKED], ["Look!", "So.", "Look!"]),
        ([*system(TEXT, clear_at="next_user_message"), ASKED], ["Look!\nLook!"]),
        (system(TEXT, clear_at="next_user_message"), ["Look!", "So."]),
        ([*system(output_config={"effort": "low"}), ASKED], ["Look!\nLook!"]),
    ],
)
def test_system_messages_for_a_turn(messages: list[dict[str, Any]], told: list[str]) -> None:
    made = template_messages(conversation(messages).messages)
    texts = [
        one["content"] if isinstance(one["content"], str) else "\n".join(part["text"] for part in one["content"])
        for one in made
    ]
    assert texts == told


PLACE = "messages[1].content[0].tool"


@each_row(
    ("block", "error", "param"),
    [
        (named("tool_addition", "other"), ParameterError, f"{PLACE}.name"),
        (added({"name": "new"}), PayloadError, f"{PLACE}.definition.input_schema"),
        ({"type": "tool_removal", "tool": {"type": "mcp_toolset_reference"}}, UnsupportedError, f"{PLACE}.type"),
    ],
)
def test_what_is_refused(block: dict[str, Any], error: type[Exception], param: str) -> None:
    with pytest.raises(error) as raised:
        conversation(system(block))
    assert getattr(raised.value, "param", None) == param


def test_a_schema_that_cannot_be_guided_is_named_by_its_place() -> None:
    made = parse(
        "anthropic",
        {"max_tokens": 9, "messages": [ASKED, *system(added(tool("new")))], "tools": TOOLS},
        SETTINGS,
    )
    assert made.fields.name("prompt.tools[1].parameters") == "messages[1].content[0].tool.definition.input_schema"


def test_references_do_not_multiply_a_definition() -> None:
    large = {**tool("look", deferred=True), "description": "a" * 100_000}
    made = conversation(result(*[found("look")] * 8000), tools=[tool("search"), large])
    assert len(str(template_messages(made.messages)[-1]["content"])) < 200_000


def test_added_tools_count() -> None:
    several = [added(tool(f"tool_{index}")) for index in range(1022)]
    assert len(conversation(system(*several), tools=TOOLS[:2]).tools) == 1023
    with pytest.raises(ParameterError, match=r"^tools: expected at most 1024, .* got 1025$"):
        conversation(system(*several, added(tool("more"))), tools=TOOLS[:2])
