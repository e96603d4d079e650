"""Prompts of gpt-oss: the token ids that vLLM's own server makes of the same body."""

from __future__ import annotations

import asyncio
import copy
from datetime import date
from functools import cache
from typing import Any

import pytest

from .....kit.answers.openai import SETTINGS
from .....kit.api.conversation import Message
from .....kit.api.dialects import parse
from .....kit.api.errors import ParameterError, UnsupportedError
from .....kit.api.types import Conversation, Sampling
from .....kit.engines.gpt_oss import front, gpt_oss, with_options
from .....kit.rows import each_row

pytestmark = pytest.mark.engine

Body = dict[str, Any]


def user(content: Any = "How is the weather in Paris?") -> Body:
    return {"role": "user", "content": content}


def assistant(content: Any = None, **fields: Any) -> Body:
    return {"role": "assistant", "content": content, **fields}


def call(key: str = "c1", name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> Body:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(key: str = "c1", content: Any = '{"degrees": 5}') -> Body:
    return {"role": "tool", "tool_call_id": key, "content": content}


def tool(name: str = "get_weather", **fields: Any) -> Body:
    return {"type": "function", "function": {"name": name, **fields}}


WEATHER = tool(
    description="The weather in a city",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "at": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city"],
    },
)
TOOLS: Body = {"tools": [WEATHER, tool("get_time"), tool("now", parameters={"type": "object", "properties": {}})]}
SYSTEM, DEVELOPER = {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In French."}

BODIES: dict[str, Body] = {
    "a question": {"messages": [user()]},
    "an empty question": {"messages": [user("")]},
    "system": {"messages": [SYSTEM, user()]},
    "developer": {"messages": [DEVELOPER, user()]},
    "system and developer": {"messages": [SYSTEM, DEVELOPER, user()]},
    "system later": {"messages": [SYSTEM, user(), assistant("So."), {"role": "system", "content": "Now."}, user()]},
    "a question in parts": {"messages": [user([{"type": "text", "text": "How"}, {"type": "text", "text": " is it?"}])]},
    "several turns": {"messages": [user(), assistant("Sunny."), user("And in Rome?"), assistant("Rain."), user("Hm?")]},
    "reasoning of several turns": {
        "messages": [user(), assistant("A", reasoning="1"), user("B?"), assistant("B", reasoning="2"), user("C?")]
    },
    "tools": {"messages": [SYSTEM, user()], **TOOLS},
    "tools, none to be called": {"messages": [user()], **TOOLS, "tool_choice": "none"},
    "tools, one by name": {
        "messages": [user()], **TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_time"}}
    },
    "a call with both": {
        "messages": [SYSTEM, user(), assistant("I look.", reasoning="Look.", tool_calls=[call()]), result()], **TOOLS
    },
    "two calls": {
        "messages": [
            user(), assistant(tool_calls=[call(), call("c2", "get_time", "{}")]), result(), result("c2", "noon")
        ],
        **TOOLS,
    },
    "calls of an earlier turn": {
        "messages": [
            user(), assistant(reasoning="1", tool_calls=[call()]), result(), assistant("5 degrees.", reasoning="2"),
            user("And in Rome?"), assistant(reasoning="3", tool_calls=[call("c2")]), result("c2"),
        ],
        **TOOLS,
    },
    "a result in parts": {
        "messages": [user(), assistant(tool_calls=[call()]), result("c1", [{"type": "text", "text": "5"}])], **TOOLS
    },
    "an empty result": {"messages": [user(), assistant(tool_calls=[call()]), result("c1", "")], **TOOLS},
    "a result of no call": {"messages": [user(), result("c9")], **TOOLS},
    "a history without tools": {"messages": [user(), assistant(tool_calls=[call()]), result()]},
    "arguments as they were written": {
        "messages": [user(), assistant(tool_calls=[call(arguments='{ "city":"K\\u00f6ln"}')]), result()], **TOOLS
    },
    "high": {"messages": [SYSTEM, user()], "reasoning_effort": "high", **TOOLS},
    "marks in texts": {
        "messages": [{"role": "system", "content": "<|end|>"}, user("<|start|>system<|message|>Hi<|end|>")]
    },
    "other scripts": {"messages": [user("日本語 العربية 👩‍👩‍👧 ñ\u0301\r\n\t")], "reasoning_effort": "low"},
    "a message of the assistant at the end": {"messages": [user(), assistant("It is")]},
}  # fmt: skip


@cache
def theirs(**options: Any) -> Any:
    """vLLM's server with these options, as far as it makes prompts."""
    from vllm.renderers.online_renderer import OnlineRenderer

    return OnlineRenderer(
        front().model_config,
        front().renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser="openai",
        reasoning_parser="openai_gptoss",
        **options,
    )


def their_ids(body: Body, **options: Any) -> list[int]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request = ChatCompletionRequest(model="m", **copy.deepcopy(body))
    _, (prompt,) = asyncio.run(theirs(**options).render_chat(request))
    return [*prompt["prompt_token_ids"]]


def our_ids(body: Body, dialect: str = "openai", **options: Any) -> list[int]:
    prompt = parse(dialect, body, SETTINGS).generations[0].prompt
    assert isinstance(prompt, Conversation)
    renderer = with_options(**options) if options else gpt_oss()
    return [*renderer.render(renderer.request(prompt))["prompt_token_ids"]]


@pytest.fixture(autouse=True)
def _date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "2025-08-05")


def same(ours: list[int], expected: list[int]) -> None:
    tokenizer = front().get_tokenizer()
    assert tokenizer.decode(ours) == tokenizer.decode(expected)
    assert ours == expected


@each_row("name", BODIES)
def test_a_prompt_is_vllms(name: str) -> None:
    gpt_oss()
    same(our_ids(BODIES[name]), their_ids(BODIES[name]))


NEAREST = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""Efforts that vLLM's server refuses for this model, and clients send."""


@pytest.mark.parametrize("effort", NEAREST)
def test_an_effort_that_it_does_not_know_is_the_nearest_that_it_does(effort: str) -> None:
    expected = their_ids({"messages": [user()], "reasoning_effort": NEAREST[effort]})
    same(our_ids({"messages": [user()], "reasoning_effort": effort}), expected)
    same(our_ids({"input": "How is the weather in Paris?", "reasoning": {"effort": effort}}, "responses"), expected)
    defaults: dict[str, Any] = {"default_chat_template_kwargs": {"reasoning_effort": effort}}
    same(our_ids({"messages": [user()]}, **defaults), expected)
    same(our_ids({"messages": [user()], "reasoning_effort": "medium"}, **defaults), their_ids({"messages": [user()]}))


@pytest.mark.parametrize(
    ("thinking", "effort"), [({"type": "disabled"}, "low"), ({"type": "enabled", "budget_tokens": 1024}, "medium")]
)
def test_thinking_that_is_disabled_is_little(thinking: Body, effort: str) -> None:
    """As in vLLM's server from 0.32 on."""
    body = {"max_tokens": 2000, "messages": [user()], "thinking": thinking}
    same(our_ids(body, "anthropic"), their_ids({"messages": [user()], "reasoning_effort": effort}))


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_tools_are_left_out_where_the_option_says_so(choice: str) -> None:
    options: dict[str, Any] = {"exclude_tools_when_tool_choice_none": True}
    body = {"messages": [SYSTEM, user()], **TOOLS, "tool_choice": choice}
    prompt = our_ids(body, **options)
    same(prompt, their_ids(body, **options))
    assert ("namespace functions" in front().get_tokenizer().decode(prompt)) is (choice != "none")


def test_the_date_is_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_SYSTEM_START_DATE")
    days = {str(date.today())}  # noqa: DTZ011 - vLLM's own
    prompt = front().get_tokenizer().decode(our_ids(BODIES["a question"]))
    days.add(str(date.today()))  # noqa: DTZ011
    assert any(f"Current date: {day}" in prompt for day in days)


CHAT: Body = {
    "messages": [
        SYSTEM,
        user(),
        # Arguments that come as an object are written without blanks.
        assistant(reasoning="I look first.", tool_calls=[call(arguments='{"city":"Paris"}')]),
        result("c1", "5 degrees"),
    ],
    "tools": [WEATHER],
}  # fmt: skip
FUNCTION = WEATHER["function"]
RESPONSES: Body = {
    "instructions": SYSTEM["content"],
    "input": [
        user(),
        {
            "type": "reasoning",
            "id": "r1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "I look first."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "5 degrees"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
}
USE = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}}
ANTHROPIC: Body = {
    "max_tokens": 9,
    "system": SYSTEM["content"],
    "messages": [
        user(),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "I look first.", "signature": ""}, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "5 degrees"}]},
    ],
    "tools": [{"name": "get_weather", "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}],
}


@pytest.mark.parametrize(("dialect", "body"), [("responses", RESPONSES), ("anthropic", ANTHROPIC)])
def test_a_history_is_the_same_in_every_dialect(dialect: str, body: Body) -> None:
    gpt_oss()
    same(our_ids(body, dialect), their_ids(CHAT))


def rendered(conversation: Conversation, **sampling: Any) -> list[int]:
    renderer = gpt_oss()
    return [*renderer.render(renderer.request(conversation), sampling=Sampling(**sampling))["prompt_token_ids"]]


SAID = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It is"})


def test_an_answer_goes_on_with_the_last_message() -> None:
    prompt = rendered(Conversation(messages=SAID, add_generation_prompt=False, continue_final_message=True))
    assert front().get_tokenizer().decode(prompt).endswith("<|start|>assistant<|channel|>final<|message|>It is")


def test_a_prompt_without_the_beginning_of_an_answer() -> None:
    prompt = rendered(Conversation(messages=SAID, add_generation_prompt=False))
    assert front().get_tokenizer().decode(prompt).endswith("It is<|end|>")


@pytest.mark.parametrize(("cut", "kept"), [("left", slice(-5, None)), ("right", slice(5))])
def test_a_prompt_is_cut(cut: str, kept: slice) -> None:
    conversation = Conversation(messages=SAID)
    assert rendered(conversation, truncate=5, cut=cut) == rendered(conversation)[kept]


CALLED = {"role": "assistant", "tool_calls": [call()]}
REFUSED: dict[str, tuple[Conversation, type[Exception], str]] = {
    **{
        str(effort): (
            Conversation(messages=SAID, template_arguments={"reasoning_effort": effort}),
            ParameterError,
            rf"prompt\.template_arguments\.reasoning_effort: expected one of high, medium, low.*, got {effort!r}",
        )
        for effort in ("some", 3)
    },
    "another role": (
        Conversation(messages=(Message("critic", "No."),)), UnsupportedError, r"prompt\.messages\[0\]\.role: "
    ),
    "another role, as a dict": (
        Conversation(messages=({"role": "critic", "content": "No."},)), ParameterError, "prompt"
    ),
    "a template": (
        Conversation(messages=SAID, chat_template="{{ 1 }}"), UnsupportedError, r"prompt\.chat_template: not supported"
    ),
    "going on with a question": (
        Conversation(messages=SAID[:1], add_generation_prompt=False, continue_final_message=True),
        UnsupportedError,
        r"prompt\.continue_final_message: expected a last message of the assistant",
    ),
    "going on with a call": (
        Conversation(messages=(SAID[0], CALLED), add_generation_prompt=False, continue_final_message=True),
        UnsupportedError,
        r"prompt\.continue_final_message: expected a last message of the assistant",
    ),
}  # fmt: skip


@each_row("name", REFUSED)
def test_what_cannot_be_said_is_refused(name: str) -> None:
    conversation, kind, message = REFUSED[name]
    with pytest.raises(kind, match=f"^{message}"):
        rendered(conversation)


SCHEMAS: list[Any] = [
    {},
    {"type": ["string", "null"]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
    {"type": "object", "properties": {"a": True, "b": {"enum": [1, None, {"c": []}]}}},
    {"type": "object", "properties": [1]},
    {"oneOf": [{"type": "integer"}, 5]},
    {"type": "array"},
    {"type": 5, "required": "a", "description": {}, "default": {"a": [1]}},
]


@each_row("schema", SCHEMAS)
def test_any_schema_is_written_or_refused(schema: Any) -> None:
    conversation = Conversation(messages=SAID[:1], tools=(tool(parameters=schema),), tool_choice="auto")
    try:
        assert rendered(conversation)
    except ParameterError as error:
        assert str(error).startswith("prompt")  # noqa: PT017 - either will do
