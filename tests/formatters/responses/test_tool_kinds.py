"""Tools that are no plain functions: those of a namespace, custom ones, and those that only a server can run."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ...kit.answers.events import end
from ...kit.answers.responses import SPLIT, TOOL, asked, conversation, events_of, reply, whole
from ...kit.api.dialects import forget_logged_names, parse
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import CallDelta, Delta, Event, Generation, said
from ...kit.rows import each_row

MEMBER = {**TOOL, "name": "close", "description": "Closes it"}
AGENTS = {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [TOOL, MEMBER]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files", "format": GRAMMAR}
# Nothing else would tell the model what the text is to look like.
RULED = 'Edits files\n\nThe input conforms to this grammar (lark):\nstart: "a"'
WEB = {"type": "web_search", "external_web_access": False}


def names(**fields: Any) -> list[str]:
    return [tool["function"]["name"] for tool in conversation(**fields).tools]


def called(name: str, arguments: str = "{}") -> Delta:
    return Delta(0, "", finish=end(), calls=(CallDelta(0, "call_1", name, arguments),))


# --- What the model is offered ---


def test_members_of_a_namespace_are_functions() -> None:
    """Named as vLLM 0.32 names them (tool_parsers/utils.py, flat_namespace_tool_name)."""
    read = conversation(tools=[TOOL, AGENTS])
    assert [tool["function"] for tool in read.tools] == [
        {"name": "get_weather", "description": "The weather", "parameters": TOOL["parameters"], "strict": True},
        {"name": "agents__get_weather", "description": "The weather", "parameters": TOOL["parameters"], "strict": True},
        {"name": "agents__close", "description": "Closes it", "parameters": TOOL["parameters"], "strict": True},
    ]


def test_no_two_have_one_name() -> None:
    tools = [AGENTS, {**TOOL, "name": "agents__close"}]
    assert names(tools=tools) == ["agents__get_weather", "agents__close", "agents__close_"]
    (item,) = whole(reply(tools=tools), called("agents__close_"))["output"]
    assert (item["name"], "namespace" in item) == ("agents__close", False)


def test_a_custom_tool_is_a_function_of_a_text() -> None:
    plain, ruled = (tool["function"] for tool in conversation(tools=[{"type": "custom", "name": "say"}, PATCH]).tools)
    assert (plain["name"], ruled["name"], ruled["description"]) == ("say", "patch", RULED)
    for function in (plain, ruled):
        parameters = function["parameters"]
        assert (parameters["type"], parameters["required"]) == ("object", ["input"])
        assert parameters["properties"]["input"]["type"] == "string"


def test_a_namespace_may_have_custom_tools() -> None:
    tools = [{**AGENTS, "tools": [PATCH]}]
    assert names(tools=tools) == ["agents__patch"]
    (item,) = whole(reply(tools=tools), called("agents__patch", '{"input": "a"}'))["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("custom_tool_call", "patch", "agents")


SERVERS = (
    WEB,
    {"type": "web_search_preview"},
    {"type": "file_search", "vector_store_ids": ["x"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation", "output_format": "png"},
    {"type": "mcp", "server_label": "x", "server_url": "https://example.com"},
    {"type": "computer_use_preview"},
    {"type": "local_shell"},
    {"type": "shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client"},
)


@pytest.mark.parametrize("tool", SERVERS, ids=lambda tool: tool["type"])
def test_what_only_a_server_runs_is_left_out(
    tool: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_logged_names(monkeypatch)
    assert names(tools=[tool, TOOL]) == ["get_weather"]
    assert names(tools=[tool]) == []
    assert [tool["type"] in line for line in caplog.messages] == [True]
    body = whole(reply(tools=[tool, TOOL]), Delta(0, "a", finish=end()))
    assert [one["name"] for one in body["tools"]] == ["get_weather"]


def test_an_option_refuses_it() -> None:
    settings = msgspec.structs.replace(SPLIT, server_tools="error")
    with pytest.raises(UnsupportedError, match=r"tools\[1\].type: .*option.server_tools.*'web_search'") as caught:
        parse("responses", {"input": "hi", "tools": [TOOL, WEB]}, settings)
    assert caught.value.param == "tools[1].type"


def test_where_a_schema_is_that_an_engine_refuses() -> None:
    fields = asked([MORE], tools=[WEB, AGENTS, PATCH, TOOL]).fields
    assert [fields.name(f"prompt.tools[{index}].parameters") for index in range(4)] == [
        "input[0].tools[0].tools[0].parameters", "input[0].tools[0].tools[1].parameters", "input[0].tools[1]",
        "tools[3].parameters",
    ]  # fmt: skip


# --- What must be called ---


@each_row(
    ("choice", "expected"),
    [
        ({"type": "function", "name": "get_weather"}, ("required", "get_weather", 4)),
        ({"type": "function", "name": "close"}, ("required", "agents__close", 4)),
        ({"type": "function", "name": "agents__close"}, ("required", "agents__close", 4)),
        ({"type": "function", "name": "get_weather", "namespace": "agents"}, ("required", "agents__get_weather", 4)),
        ({"type": "custom", "name": "patch"}, ("required", "patch", 4)),
        ("required", ("required", None, 4)),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [WEB, {"type": "custom", "name": "patch"}]},
            ("auto", None, 1),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [WEB]}, (None, None, 0)),
    ],
)
def test_a_choice(choice: Any, expected: Any) -> None:
    read = conversation(tools=[TOOL, AGENTS, PATCH, WEB], tool_choice=choice)
    assert (read.tool_choice, read.function, len(read.tools)) == expected


def test_the_response_repeats_a_choice() -> None:
    choice = {"type": "function", "name": "close", "namespace": "agents"}
    body = whole(reply(tools=[AGENTS], tool_choice=choice), Delta(0, "a", finish=end()))
    assert body["tool_choice"] == choice
    body = whole(reply(tools=[PATCH], tool_choice={"type": "custom", "name": "patch"}), Delta(0, "a", finish=end()))
    assert body["tool_choice"] == {"type": "custom", "name": "patch"}


def test_the_response_repeats_tools() -> None:
    body = whole(reply(tools=[AGENTS, PATCH]), Delta(0, "a", finish=end()))
    assert body["tools"] == [AGENTS, PATCH]


@each_row(
    ("fields", "kind", "param"),
    [
        ({"tools": [WEB], "tool_choice": "required"}, ParameterError, "tool_choice"),
        ({"tools": [WEB], "tool_choice": {"type": "web_search"}}, UnsupportedError, "tool_choice.type"),
        (
            {"tools": [WEB, TOOL], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [WEB]}},
            UnsupportedError,
            "tool_choice.tools[0].type",
        ),
        ({"tools": [PATCH], "tool_choice": {"type": "function", "name": "patch"}}, ParameterError, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "custom", "name": "get_weather"}},
            ParameterError,
            "tool_choice.name",
        ),
        (
            {"tools": [AGENTS, {**AGENTS, "name": "b"}], "tool_choice": {"type": "function", "name": "close"}},
            ParameterError,
            "tool_choice.name",
        ),
        ({"tools": [{"type": "namespace", "tools": [TOOL]}]}, PayloadError, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "a"}]}, PayloadError, "tools[0].tools"),
        ({"tools": [{**AGENTS, "tools": [TOOL, {"type": "function"}]}]}, PayloadError, "tools[0].tools[1].name"),
        ({"tools": [{**AGENTS, "tools": [AGENTS]}]}, UnsupportedError, "tools[0].tools[0].type"),
        ({"tools": [{**AGENTS, "tools": [TOOL] * 1025}]}, ParameterError, "tools"),
        ({"tools": [{"type": "custom"}]}, PayloadError, "tools[0].name"),
        ({"tools": [{**PATCH, "format": 5}]}, PayloadError, "tools[0].format"),
        ({"tools": [{**PATCH, "format": {"type": "odd"}}]}, UnsupportedError, "tools[0].format.type"),
        ({"tools": [{**PATCH, "format": {**GRAMMAR, "syntax": "odd"}}]}, ParameterError, "tools[0].format.syntax"),
        ({"tools": [{**PATCH, "format": {**GRAMMAR, "definition": 5}}]}, PayloadError, "tools[0].format.definition"),
    ],
)
def test_faults_are_named_by_their_place(fields: dict[str, Any], kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as caught:
        asked(**fields)
    assert type(caught.value) is kind
    assert caught.value.param == param


# --- Calls ---


def test_a_call_of_a_member_has_its_namespace() -> None:
    tools = [TOOL, AGENTS]
    for name, shown in (
        ("agents__get_weather", ("get_weather", "agents")),
        ("get_weather", ("get_weather", None)),
        ("nobody__knows", ("nobody__knows", None)),
    ):
        (item,) = whole(reply(tools=tools), called(name))["output"]
        assert (item["type"], item["name"], item.get("namespace")) == ("function_call", *shown)
        events = events_of(reply(tools=tools, stream=True), called(name))
        (added,) = [event["item"] for event in events if event["type"] == "response.output_item.added"]
        (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
        assert (added["name"], added.get("namespace"), done["name"]) == (*shown, shown[0])


PIECES = ['{"inp', 'ut": "*** Begin\\', "n\\u00", 'e4 \\"x\\" \\ud83d', '\\ude00 end"', "}"]
INPUT = '*** Begin\nä "x" 😀 end'


def calls(*pieces: str, name: str = "patch", reason: Any = "eos") -> list[Event]:
    return [
        Delta(0, "", calls=(CallDelta(0, "call_1", name),)),
        *(Delta(0, "", calls=(CallDelta(0, arguments=piece),)) for piece in pieces),
        Delta(0, "", finish=end(reason)),
    ]


def test_a_call_of_a_custom_tool() -> None:
    body = whole(reply(tools=[PATCH]), *calls(*PIECES))
    (item,) = body["output"]
    assert item["id"].startswith("ctc_")
    assert {**item, "id": ""} == {
        "type": "custom_tool_call", "id": "", "status": "completed", "call_id": "call_1", "name": "patch",
        "input": INPUT,
    }  # fmt: skip


def test_a_streamed_call_of_a_custom_tool() -> None:
    events = events_of(reply(tools=[PATCH], stream=True), *calls(*PIECES))
    added, *deltas, done, item_done, completed = events[2:]
    assert (added["item"]["type"], added["item"]["input"]) == ("custom_tool_call", "")
    assert {event["type"] for event in deltas} == {"response.custom_tool_call_input.delta"}
    # Text as soon as there is some; half an escape is none.
    assert [event["delta"] for event in deltas] == ["*** Begin", "\n", 'ä "x" ', "😀 end"]
    assert (done["type"], done["input"]) == ("response.custom_tool_call_input.done", INPUT)
    assert {event["item_id"] for event in (*deltas, done)} == {added["item"]["id"]}
    assert item_done["item"] == completed["response"]["output"][0]
    assert item_done["item"]["input"] == INPUT


@each_row(
    ("arguments", "expected"),
    [
        ('{"input": "a"}', "a"),
        ('\n{ "input" : "a" }', "a"),
        ('{"input": ""}', ""),
        ('{"note": 1, "input": "a"}', "a"),
        # Cut off: what there is of it.
        ('{"input": "a\\nb', "a\nb"),
        ('{"input": "a\\', "a\\"),
        ('{"inp', '{"inp'),
        ("", ""),
        # What a model wrote that does not know the form is its input all the same.
        ("*** Begin", "*** Begin"),
        ('{"patch": "a"}', '{"patch": "a"}'),
        ('{"input": 5}', '{"input": 5}'),
        ('"a"', '"a"'),
        # Faulty escapes stay as they are.
        ('{"input": "\\d+ \\ud83d x"}', "\\d+ \\ud83d x"),
    ],
)
def test_the_input_of_a_call(arguments: str, expected: str) -> None:
    """Of the forms that vLLM 0.32 reads (entrypoints/openai/responses/utils.py, decode_custom_tool_input), and cut."""
    for pieces in ([arguments], list(arguments)):
        (item,) = whole(reply(tools=[PATCH]), *calls(*pieces))["output"]
        assert item["input"] == expected
        events = events_of(reply(tools=[PATCH], stream=True), *calls(*pieces))
        deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == expected
        assert all(deltas)
        assert events[-1]["response"]["output"][0]["input"] == expected


def test_a_call_that_is_cut_off() -> None:
    events = events_of(reply(tools=[PATCH], stream=True), *calls('{"input": "a', reason="length"))
    (item,) = events[-1]["response"]["output"]
    assert (item["status"], item["input"]) == ("incomplete", "a")


# --- Sent back ---

CALL = {"type": "function_call", "call_id": "call_1", "name": "close", "namespace": "agents", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": 'a "b"\n', "id": "ctc_1"}
CUSTOM_OUTPUT = {
    "type": "custom_tool_call_output",
    "call_id": "call_2",
    "output": [{"type": "input_text", "text": "5"}],
}
MORE = {"type": "additional_tools", "role": "developer", "tools": [AGENTS, PATCH]}


def test_calls_of_the_past_have_the_names_that_are_offered() -> None:
    taken = {**TOOL, "name": "agents__close"}
    for tools, name in (([AGENTS], "agents__close"), ([], "agents__close"), ([taken, AGENTS], "agents__close_")):
        read = said(conversation([CALL, OUTPUT], tools=tools))
        assert read[0]["tool_calls"][0]["function"]["name"] == name
        assert read[1] == {"role": "tool", "tool_call_id": "call_1", "content": "ok"}


def test_custom_calls_of_the_past() -> None:
    read = said(conversation([CUSTOM, CUSTOM_OUTPUT], tools=[PATCH]))
    (call,) = read[0]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("call_2", "patch")
    assert json.loads(call["function"]["arguments"]) == {"input": 'a "b"\n'}
    assert read[1] == {"role": "tool", "tool_call_id": "call_2", "content": "5"}
    inside = said(conversation([{**CUSTOM, "namespace": "agents"}]))
    assert inside[0]["tool_calls"][0]["function"]["name"] == "agents__patch"


def test_additional_tools_join() -> None:
    given = [MORE, {"role": "user", "content": "hi"}]
    assert names(given=given) == ["agents__get_weather", "agents__close", "patch"]
    assert names(given=given, tools=[TOOL, PATCH]) == ["get_weather", "patch", "agents__get_weather", "agents__close"]
    assert len(conversation(given).messages) == 1
    (item,) = whole(reply(given), called("agents__close"))["output"]
    assert item["namespace"] == "agents"
    assert conversation(given, tool_choice={"type": "custom", "name": "patch"}).function == "patch"


@each_row(
    ("item", "kind", "param"),
    [
        ({**MORE, "tools": None}, PayloadError, "input[0].tools"),
        ({**MORE, "tools": [TOOL, {"type": "function"}]}, PayloadError, "input[0].tools[1].name"),
        ({**CUSTOM, "input": None}, PayloadError, "input[0].input"),
        ({**CUSTOM, "name": ""}, ParameterError, "input[0].name"),
        ({**CUSTOM, "call_id": None}, PayloadError, "input[0].call_id"),
        ({**CUSTOM, "namespace": 5}, PayloadError, "input[0].namespace"),
        ({**CALL, "namespace": 5}, PayloadError, "input[0].namespace"),
        ({**CUSTOM_OUTPUT, "output": 5}, PayloadError, "input[0].output"),
        ({**CUSTOM_OUTPUT, "call_id": None, "name": "a"}, PayloadError, "input[0].call_id"),
    ],
)
def test_faults_of_items(item: Any, kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as caught:
        asked([item])
    assert type(caught.value) is kind
    assert caught.value.param == param


def test_clients_may_say_more_of_themselves() -> None:
    """As Codex does, under option.unknown_parameters=error too."""
    settings = msgspec.structs.replace(SPLIT, unknown_parameters="error")
    body = {"input": "hi", "tools": [AGENTS, PATCH, WEB], "client_metadata": {"session_id": "x"}}
    (generation,) = parse("responses", body, settings).generations
    assert isinstance(generation, Generation)
