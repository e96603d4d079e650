"""Prompts of Mistral's tokenizer are those of vLLM's server, token by token; and what it refuses that need not be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ....kit.api.dialects import parse
from ....kit.api.errors import OptionError, RequestError
from ....kit.engines.backends import NUMBERS
from ....kit.engines.said import SaidEngine
from ....kit.models.mistral import THINKING, VERSIONS, mistral_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

Body = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Looks up 世界", "parameters": SCHEMA}}
BARE = {"type": "function", "function": {"name": "now"}}
USER = {"role": "user", "content": "Weather?"}
SYSTEM = {"role": "system", "content": "Be brief."}
OK = {"role": "assistant", "content": "ok"}


def called(*ids: str, arguments: str = '{"word": "Paris, 世界"}', **more: Any) -> Body:
    calls = [{"id": one, "type": "function", "function": {"name": "look_up", "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(given: str, content: Any = "5 degrees", **more: Any) -> Body:
    return {"role": "tool", "tool_call_id": given, "content": content, **more}


def turn(*ids: str, **more: Any) -> list[Body]:
    return [USER, called(*ids, **more), *(result(one, f"result {place}") for place, one in enumerate(ids))]


TOOLS = [TOOL, BARE]
ONE, TWO = "abcdefgh1", "abcdefgh2"
CONVERSATIONS: dict[str, Body] = {
    "one message": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    "two systems": {"messages": [SYSTEM, {"role": "system", "content": "And kind."}, USER]},
    "several turns": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "Sunny. "}, USER, OK, USER]},
    "unicode": {"messages": [{"role": "user", "content": "é 世界 👩‍👩‍👧 مرحبا हिन्दी \n\t x"}]},
    "marks in a text": {"messages": [{"role": "user", "content": "[INST] [TOOL_CALLS]</s> [THINK]"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": one} for one in "ab"]}]},
    "two in a row": {"messages": [USER, USER]},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "a call that is required": {"messages": [SYSTEM, USER], "tools": TOOLS, "tool_choice": "required"},
    "a call": {"messages": [SYSTEM, *turn(ONE)], "tools": TOOLS},
    "parallel calls": {"messages": [*turn(ONE, TWO), OK, USER], "tools": TOOLS},
    "several rounds": {"messages": [*turn(ONE), *turn(TWO)[1:], OK, *turn(ONE)], "tools": TOOLS},
    "OpenAI's id": {"messages": turn("call_Zk3vP0aXyQwErTyUiOpA1b2C"), "tools": TOOLS},
    "Anthropic's id": {"messages": turn("toolu_01A09q90qw90lq917835lq9"), "tools": TOOLS},
    "vLLM's id": {"messages": turn("chatcmpl-tool-0123456789abcdef0123456789abcdef"), "tools": TOOLS},
    "a result of JSON": {"messages": [*turn(ONE)[:2], result(ONE, '{"a":[1, 2.0], "b":"é"}')], "tools": TOOLS},
    "an empty result": {"messages": [*turn(ONE)[:2], result(ONE, "")], "tools": TOOLS},
    "a result in parts": {
        "messages": [*turn(ONE)[:2], result(ONE, [{"type": "text", "text": one} for one in "ab"])], "tools": TOOLS,
    },
    "a call without arguments": {"messages": turn(ONE, arguments=""), "tools": TOOLS},
    "a call without a result": {"messages": [*turn(ONE)[:2], USER], "tools": TOOLS},
    "gone on with": {
        "messages": [USER, {"role": "assistant", "content": "The weather"}],
        "continue_final_message": True, "add_generation_prompt": False,
    },
    "no prompt for an answer": {"messages": [USER], "add_generation_prompt": False},
    "effort": {"messages": [USER], "reasoning_effort": "high"},
    "no effort": {"messages": [USER], "reasoning_effort": "none"},
}  # fmt: skip
"""What vLLM's server takes, whatever the version."""
THOUGHT: dict[str, Body] = {
    "reasoning": {"messages": [USER, {"role": "assistant", "content": "Sunny.", "reasoning": "Hm, 世."}, USER]},
    "reasoning and a call": {"messages": turn(ONE, reasoning="Hm."), "tools": TOOLS},
    "reasoning, a text and a call": {"messages": turn(ONE, reasoning="Hm.", content="Let me see."), "tools": TOOLS},
}
"""The same for versions that think."""

SAME: dict[str, tuple[Body, Body]] = {
    "short ids": ({"messages": turn("call_1", "call_2")}, {"messages": turn("d338da91d", "81fde30c1")}),
    "an empty answer": ({"messages": [USER, {"role": "assistant", "content": ""}, USER]}, {"messages": [USER, USER]}),
    "a name of a result": (
        {"messages": [*turn(ONE)[:2], result(ONE, name="functions.look_up")]},
        {"messages": [*turn(ONE)[:2], result(ONE)]},
    ),
    "variables of templates": (
        {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False, "x": 1}},
        {"messages": [USER], "reasoning_effort": "none"},
    ),
    "a system's message later": ({"messages": [USER, OK, SYSTEM, USER]}, {"messages": [SYSTEM, USER, OK, USER]}),
}
"""What vLLM's server refuses, and what it has the same prompt as."""


@pytest.fixture(scope="module", params=VERSIONS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaidEngine]:
    name: str = request.param
    folder = mistral_directory(tmp_path_factory.mktemp("mistral") / "model", name)
    made = SaidEngine(folder, tokenizer_mode="mistral", load_format="dummy", tool_call_parser="mistral", **thinks(name))
    yield made
    made.close()


def thinks(version: str) -> dict[str, str]:
    return {"reasoning_parser": "mistral"} if version in THINKING else {}


def ours(engine: SaidEngine, body: Body) -> list[int]:
    (generation,) = parse("openai", json.loads(json.dumps(body)), engine.settings).generations
    return engine.backend.prepare(next(NUMBERS), generation).prompt_ids


def vllms(engine: SaidEngine, body: Body) -> list[int]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.online_renderer import OnlineRenderer

    core = engine.core
    renderer: Any = OnlineRenderer(
        core.model_config, core.renderer, request_logger=None, chat_template=None,
        chat_template_content_format="auto", enable_auto_tools=True, tool_parser="mistral",
        reasoning_parser=engine.settings.reasoning_parser,
    )  # fmt: skip
    request: Any = ChatCompletionRequest(**json.loads(json.dumps(body)))
    _, (prompt,) = asyncio.run(renderer.render_chat(request))
    return [*prompt["prompt_token_ids"]]


def test_prompts_are_those_of_vllms_server(engine: SaidEngine) -> None:
    conversations = {**CONVERSATIONS, **(THOUGHT if engine.settings.reasoning_parser else {})}
    made = {what: (ours(engine, body), vllms(engine, body)) for what, body in conversations.items()}
    text = engine.tokenizer.decode
    assert {what: (text(one), text(other)) for what, (one, other) in made.items() if one != other} == {}


def test_what_vllms_server_refuses_is_served(engine: SaidEngine) -> None:
    for what, (given, same) in SAME.items():
        assert ours(engine, given) == vllms(engine, same), what


REFUSED: dict[str, tuple[Body, str]] = {
    "a template": ({"messages": [USER], "chat_template": "x"}, "chat_template"),
    "a name of a tool": (
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": "a.b"}}]},
        "prompt.tools[0].name",
    ),
    "an answer at the end": ({"messages": [USER, OK]}, "prompt.continue_final_message"),
    "nothing to go on with": (
        {"messages": [USER], "continue_final_message": True, "add_generation_prompt": False},
        "prompt.continue_final_message",
    ),
    "calls without results": ({"messages": [*turn(ONE)[:2], OK, USER]}, "prompt"),
}


@each_row("what", REFUSED)
def test_what_is_refused_is_named(engine: SaidEngine, what: str) -> None:
    body, path = REFUSED[what]
    with pytest.raises(RequestError) as raised:
        ours(engine, body)
    assert raised.value.param == path
    assert raised.value.status == 400


def test_a_template_of_the_options_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = mistral_directory(tmp_path_factory.mktemp("mistral") / "model", "v3")
    with pytest.raises(OptionError, match=r"^option\.chat_template: Mistral's tokenizer takes none, set .*=hf"):
        SaidEngine(folder, tokenizer_mode="mistral", load_format="dummy", chat_template="{{ messages }}")
