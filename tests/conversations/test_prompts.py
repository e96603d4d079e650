"""Prompts of chats, token for token those of vLLM's own server: of each family's way to write a history down.

Where ours is another, it is vLLM's of another conversation: the table says which, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ..kit.engines.prompts import Prompts
from ..kit.models.vocabularies import vocabulary

pytestmark = pytest.mark.engine

Messages = list[dict[str, Any]]

CALLS_BY_ID = """\
{%- if tools %}{{ '<|tools|>' + (tools | tojson) }}{% endif -%}
{%- set last = namespace(answer=-1) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' and not m.get('tool_calls') %}{% set last.answer = loop.index0 %}{% endif -%}
{%- endfor -%}
{%- for m in messages -%}
<|{{ m.get('name') or m.role }}|>
{%- if m.role == 'assistant' -%}
<think>{{ m.get('reasoning_content', '') if loop.index0 > last.answer else '' }}</think>{{ m.content or '' }}
{%- for call in m.get('tool_calls', []) -%}
<|call|>{{ call.id }}<|arguments|>{{ call.function.arguments | tojson }}
{%- endfor -%}
{%- elif m.role == 'tool' -%}## Return of {{ m.tool_call_id }}
{{ m.content }}
{%- else -%}{{ m.content }}
{%- endif -%}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{{ '<think></think>' if thinking is defined and not thinking }}{% endif -%}
"""
"""As Kimi's: a call by its id, a result by its call's; the reasoning since the last answer; names in place of roles."""

ARGUMENTS_BY_NAME = """\
{%- if tools %}<|system|>{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}{% endfor %}{% endif -%}
{%- set last = namespace(user=-1) -%}
{%- for m in messages if m.role == 'user' %}{% set last.user = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{%- if m.content is not string %}{{ raise_exception('a result is text') }}{% endif -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}
<tool_response>
{{ m.content }}
</tool_response>
{%- elif m.role == 'assistant' -%}
<|assistant|>
<think>{{ m.reasoning_content.strip() if m.reasoning_content is string and loop.index0 > last.user }}</think>
{%- if m.content and m.content.strip() %}
{{ m.content.strip() }}{% endif -%}
{%- for call in m.tool_calls or [] %}
<tool_call>{{ call.function.name }}
{%- for name, value in (call.function.arguments or {}).items() %}
<arg_key>{{ name }}</arg_key>
<arg_value>{{ value if value is string else value | tojson(ensure_ascii=False) }}</arg_value>{% endfor %}
</tool_call>{% endfor -%}
{%- else -%}
<|{{ m.role }}|>
{{ m.content }}{{ '/nothink' if enable_thinking is defined and not enable_thinking and m.role == 'user' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>{{ '\\n<think></think>' if enable_thinking is defined and not enable_thinking }}
{%- endif -%}
"""
"""As GLM's: each argument by itself, results one after another, the reasoning since the user's last message."""

PARTS = """\
{%- if tools %}<|tools|>{% for tool in tools %}{{ tool.function | tojson }}{% endfor %}{% endif -%}
{%- for m in messages -%}
<|{{ m.role }}|>
{%- if m.content is string %}{{ m.content }}{% else -%}
{%- for part in m.content %}[{{ part.text }}]{% endfor -%}
{%- endif -%}
{%- for call in m.tool_calls or [] -%}
{{ '\\n' if m.content or not loop.first }}<call>{{ call.function | tojson }}</call>
{%- endfor -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""
"""As those of models with images: contents are parts, and a line break stands between a text and calls."""

MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen3": ({}, {"reasoning_parser": "qwen3"}),
    "deepseek_v32": ({"tokenizer_mode": "deepseek_v32"}, {"reasoning_parser": "deepseek_v3"}),
    "deepseek_v4": ({"tokenizer_mode": "deepseek_v4"}, {"reasoning_parser": "deepseek_v4"}),
    "calls by id": ({}, {"chat_template": CALLS_BY_ID, "reasoning_parser": "deepseek_v3"}),
    "arguments by name": ({}, {"chat_template": ARGUMENTS_BY_NAME, "reasoning_parser": "glm45"}),
    "parts": ({}, {"chat_template": PARTS, "reasoning_parser": "qwen3"}),
}
"""By the way of writing: arguments of vLLM's, and options."""


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is Paris?"}
AGAIN, ANSWER = {"role": "user", "content": "And Rome?"}, said("It is sunny.")
ONE, TWO = "functions.weather:0", "functions.time:1"
WEATHER, TIME = call(ONE, "weather", '{"city": "Paris"}'), call(TWO, "time", "{}")
SUNNY, NOON = result(ONE, "Sunny"), result(TWO, "Noon")
ODD = '{"city": "Zürich 世界", "n": 1.50, "big": 12345678901234567890, "list": [1, {"a": null}], "s": "a\\n\\"b\\""}'

SAME: dict[str, Messages] = {
    "a question": [ASKED],
    "with a system message": [SYSTEM, ASKED],
    "in parts": [{"role": "user", "content": parts("a", "b")}],
    "a second question": [ASKED, ANSWER, AGAIN],
    "two questions": [ASKED, AGAIN],
    "two answers": [ASKED, ANSWER, ANSWER, AGAIN],
    "an answer in parts": [ASKED, said(parts("a", "b")), AGAIN],
    "an empty answer": [ASKED, said(""), AGAIN],
    "a late system message": [ASKED, ANSWER, SYSTEM, AGAIN],
    "names": [{**ASKED, "name": "Eve"}, said("So.", name="Bob"), AGAIN],
    "earlier reasoning": [ASKED, said("Sunny.", reasoning="Hm."), AGAIN],
    "earlier reasoning by its older name": [ASKED, said("Sunny.", reasoning_content="Hm."), AGAIN],
    "reasoning in the text": [ASKED, said("<think>\nHm.\n</think>\n\nSunny."), AGAIN],
    "a call": [ASKED, said(tool_calls=[WEATHER]), SUNNY],
    "a call, the text left out": [ASKED, {"role": "assistant", "tool_calls": [WEATHER]}, SUNNY],
    "a call after a text": [ASKED, said("Let me see.", tool_calls=[WEATHER]), SUNNY],
    "a call after reasoning": [ASKED, said(reasoning="Hm.", tool_calls=[WEATHER]), SUNNY],
    "an answer after it": [
        ASKED, said(reasoning="Hm.", tool_calls=[WEATHER]), SUNNY, said("Yes.", reasoning="So."), AGAIN,
    ],
    "two calls": [ASKED, said(tool_calls=[WEATHER, TIME]), SUNNY, NOON],
    "calls one after the other": [
        ASKED, said(reasoning="1.", tool_calls=[WEATHER]), SUNNY,
        said("Well.", reasoning="2.", tool_calls=[TIME]), NOON,
    ],
    "no arguments": [ASKED, said(tool_calls=[call(ONE, "time", "")]), result(ONE, "Noon")],
    "odd arguments": [ASKED, said(tool_calls=[call(ONE, "weather", ODD)]), SUNNY],
    "no calls": [ASKED, said("Hi.", tool_calls=[]), AGAIN],
    "a result in parts": [ASKED, said(tool_calls=[WEATHER]), result(ONE, parts("Sun", "ny"))],
    "an empty result": [ASKED, said(tool_calls=[WEATHER]), result(ONE, "")],
    "a result with a name": [ASKED, said(tool_calls=[WEATHER]), result(ONE, "Sunny", name="weather")],
    "a result in JSON": [ASKED, said(tool_calls=[WEATHER]), result(ONE, '{"sky": "clear"}')],
}  # fmt: skip
"""What vLLM's server makes of a conversation."""

BETTER: dict[str, tuple[str, Messages, Messages]] = {
    "white space before calls": (
        "the template has its own, and the model wrote no other",
        [ASKED, said("Let me see.\n\n", tool_calls=[WEATHER]), SUNNY],
        [ASKED, said("Let me see.", tool_calls=[WEATHER]), SUNNY],
    ),
    "an empty text before calls": (
        "it is none: some templates write a line break after it",
        [ASKED, said("", tool_calls=[WEATHER]), SUNNY],
        [ASKED, said(tool_calls=[WEATHER]), SUNNY],
    ),
    "results in another order": (
        "some templates go by the calls' order, and prefixes are cached",
        [ASKED, said(tool_calls=[WEATHER, TIME]), NOON, SUNNY],
        [ASKED, said(tool_calls=[WEATHER, TIME]), SUNNY, NOON],
    ),
    "arguments that were cut off": (
        "0.26 refuses every later turn, 0.32 forgets what the model wrote",
        [ASKED, said(tool_calls=[call(ONE, "weather", '{"city": "Par')]), SUNNY],
        [ASKED, said(tool_calls=[call(ONE, "weather", '{"raw_arguments": "{\\"city\\": \\"Par"}')]), SUNNY],
    ),
    "arguments that are no object": (
        "templates fail on them, or 0.32 forgets them",
        [ASKED, said(tool_calls=[call(ONE, "weather", "[1]")]), SUNNY],
        [ASKED, said(tool_calls=[call(ONE, "weather", '{"raw_arguments": "[1]"}')]), SUNNY],
    ),
    "a refusal": (
        "it is what the assistant said",
        [ASKED, said(refusal="No."), AGAIN],
        [ASKED, said("No."), AGAIN],
    ),
}
"""By what it is: why, the conversation, and that of which vLLM's server makes our prompt."""

REFERS = {
    "type": "object", "properties": {"what": {"$ref": "#/$defs/what"}}, "$defs": {"what": {"type": "string"}},
}  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "time"}},
    {"type": "function", "function": {"name": "find", "strict": True, "parameters": REFERS}},
]
NAMED = {"type": "function", "function": {"name": "weather"}}
ON = {"enable_thinking": True, "thinking": True}
FIELDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tools": {"tools": TOOLS},
    "thinking": {"chat_template_kwargs": ON},
    "thinking, with tools": {"chat_template_kwargs": ON, "tools": TOOLS},
}
"""What else a body has, for each conversation."""
MORE: dict[str, dict[str, Any]] = {
    **{f"tool_choice {choice}": {"tools": TOOLS, "tool_choice": choice} for choice in ("auto", "none", "required")},
    "a named function": {"tools": TOOLS, "tool_choice": NAMED},
    "one call": {"tools": TOOLS, "parallel_tool_calls": False},
    **{f"effort {effort}": {"reasoning_effort": effort} for effort in ("none", "low", "medium", "high")},
    "effort and tools": {"reasoning_effort": "high", "tools": TOOLS},
    **{
        f"{name} {said}": {"chat_template_kwargs": {name: said}}
        for name in ("enable_thinking", "thinking")
        for said in (True, False)
    },
    "the client's own goes first": {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
}
"""The same, for one conversation."""
NAMES_OF_THINKING = {
    f"effort {effort}": {"chat_template_kwargs": {"thinking": effort != "none"}}
    for effort in ("none", "low", "medium", "high")
}
"""What vLLM's server is told beside: of an effort it makes `enable_thinking` alone, which not every template knows."""
ASKS: Messages = [SYSTEM, ASKED, said("Hm.", reasoning="Hm.", tool_calls=[WEATHER]), SUNNY]


@pytest.fixture(scope="module", params=MODELS)
def prompts(request: pytest.FixtureRequest) -> Prompts:
    model, options = MODELS[request.param]
    return Prompts(vocabulary("qwen3"), model, tool_call_parser="hermes", **options)


def body(messages: Messages, **more: Any) -> dict[str, Any]:
    return {"model": "served", "messages": messages, **more}


def others(prompts: Prompts, bodies: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, tuple[str, str]]:
    """The prompts that are not what they are to be, with these: by the name, a body and that of vLLM's prompt."""
    made = {name: (prompts.ours(given), prompts.vllms(vllms)) for name, (given, vllms) in bodies.items()}
    return {name: (prompts.text(ours), prompts.text(its)) for name, (ours, its) in made.items() if ours != its}


@pytest.mark.parametrize("fields", FIELDS)
def test_a_history_is_written_as_by_vllms_server(prompts: Prompts, fields: str) -> None:
    more = FIELDS[fields]
    bodies = {name: (body(messages, **more),) * 2 for name, messages in SAME.items()}
    bodies |= {name: (body(given, **more), body(vllms, **more)) for name, (_, given, vllms) in BETTER.items()}
    assert others(prompts, bodies) == {}


def test_tools_and_variables_are_those_of_vllms_server(prompts: Prompts) -> None:
    bodies = {
        name: (body(ASKS, **more), body(ASKS, **more, **NAMES_OF_THINKING.get(name, {}))) for name, more in MORE.items()
    }
    assert others(prompts, bodies) == {}


def test_a_developer_is_not_lost(prompts: Prompts) -> None:
    """DeepSeek's encoders leave out a developer's message before the user's last, where the model thinks."""
    for fields in FIELDS.values():
        text = prompts.text(prompts.ours(body([{"role": "developer", "content": "Be brief."}, ASKED], **fields)))
        assert "Be brief." in text


DEFAULTS: list[dict[str, Any]] = [
    {"enable_thinking": False},
    {"enable_thinking": False, "thinking": False},
    {"thinking": True, "enable_thinking": True},
    {"reasoning_effort": "high", "unknown": 1},
]
ASKED_WITH: list[dict[str, Any]] = [
    {},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "high"},
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"chat_template_kwargs": {"enable_thinking": None}},
    {"chat_template_kwargs": {"thinking": False, "enable_thinking": False}},
    {"chat_template_kwargs": {"other": 1}, "tools": TOOLS},
]


@pytest.fixture(scope="module")
def qwen() -> Prompts:
    return Prompts(vocabulary("qwen3"), {})


@pytest.mark.parametrize("defaults", DEFAULTS, ids=str)
@pytest.mark.parametrize("model", ["qwen3", "arguments by name"])
def test_the_defaults_stand_behind_what_a_request_says(qwen: Prompts, model: str, defaults: dict[str, Any]) -> None:
    _, options = MODELS[model]
    qwen.use(tool_call_parser="hermes", default_chat_template_kwargs=defaults, **options)
    assert others(qwen, {str(more): (body([ASKED], **more),) * 2 for more in ASKED_WITH}) == {}


def test_tools_are_left_out_by_an_option(qwen: Prompts) -> None:
    qwen.use(tool_call_parser="hermes", exclude_tools_when_tool_choice_none=True)
    bodies = {name: (body(ASKS, **more),) * 2 for name, more in MORE.items() if "tools" in more}
    assert others(qwen, bodies) == {}
    assert "The weather" not in qwen.text(qwen.ours(body(ASKS, tools=TOOLS, tool_choice="none")))


def test_whatever_the_parser_tools_are_as_they_were_given(qwen: Prompts) -> None:
    """Parsers adjust a request to what is to guide its answer: nothing of that gets into the prompt."""
    from vllm.tool_parsers import ToolParserManager

    qwen.use(tool_call_parser="hermes")
    choices = {name: body(ASKS, **MORE[name]) for name in MORE if "tools" in MORE[name] and "choice" in name}
    choices["a named function"] = body(ASKS, **MORE["a named function"])
    expected = {name: qwen.vllms(given) for name, given in choices.items()}
    tried = 0
    for parser in ToolParserManager.list_registered():
        try:
            qwen.use(tool_call_parser=parser)
        except Exception:  # noqa: BLE001 - it is for a model with other tokens
            continue
        tried += 1
        assert {name: qwen.ours(given) for name, given in choices.items()} == expected, parser
    assert tried > 20


def test_a_parsers_own_default_stays_its_own(qwen: Prompts) -> None:
    """vLLM's parser of Holo2 writes what it takes for granted into the variables that it is given."""
    qwen.use(reasoning_parser="holo2", chat_template="{{ thinking }} {{ other }} {{ messages[0].content }}")
    assert qwen.text(qwen.ours(body([ASKED], chat_template_kwargs={"other": 1}))) == " 1 How is Paris?"
