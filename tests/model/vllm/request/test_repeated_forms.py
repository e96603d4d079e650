"""A conversation that differs from one that came before in its messages alone becomes what it becomes when it comes for
the first time; one that differs in more is made anew.

The oracle is a second front, which has never had the first conversation: it has vLLM validate and render all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi.model.vllm.request.repeated_forms import RepeatedForms

from ....kit.api.conversation import Call
from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Generation, Message, Token
from ....kit.engines.start import front
from ....kit.hosts.host import model_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": parameters}}


FORECAST = _tool("forecast", city={"type": "string", "maxLength": 8}, days={"type": "integer"})
FIRST = Conversation(messages=(Message("user", "one two"),), tools=(FORECAST, _tool("stop")), tool_choice="auto")
MESSAGES: dict[str, tuple[Message, ...]] = {
    "another text": (Message("user", "three four five"),),
    "several": (Message("system", "Be brief."), Message("user", "a"), Message("assistant", "b"), Message("user", "c")),
    "calls and results": (
        Message("user", "a"),
        Message("assistant", "", calls=(Call("c1", "forecast", '{"city": "Oslo"}'),)),
        Message("tool", "cold", call_id="c1"),
    ),
}
"""Of the second conversation."""
OTHERS: dict[str, dict[str, Any]] = {
    "the order of a schema's keys": {"tools": (_tool("a", days={"type": "integer"}, city={"type": "string"}),)},
    "1.0 and not 1": {"tools": (_tool("a", city={"type": "string", "maxLength": 8.0}),)},
    "true and not 1": {"tools": (_tool("a", city={"type": "string", "x": True}),)},
    "a tool that is described later": {"tools": (FORECAST, {**_tool("stop"), "defer_loading": True})},
    "no tools": {"tools": (), "tool_choice": None},
    "no calls": {"tool_choice": "none"},
    "a forced call": {"function": "stop"},
    "one call": {"parallel_tool_calls": False},
    "variables of the template": {"template_arguments": {"enable_thinking": False}},
    "its last message goes on": {
        "messages": (Message("user", "a"), Message("assistant", "b")),
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "a template": {"chat_template": "{{ tools | tojson }}{{ messages[-1].content }}"},
}
"""In what the second one differs from FIRST."""
BEFORE: dict[str, dict[str, Any]] = {
    "the order of a schema's keys": {"tools": (_tool("a", city={"type": "string"}, days={"type": "integer"}),)},
    "1.0 and not 1": {"tools": (_tool("a", city={"type": "string", "maxLength": 8}),)},
    "true and not 1": {"tools": (_tool("a", city={"type": "string", "x": 1}),)},
}
"""In what the first one differs from FIRST."""
ANSWER = 'so</think>It is <tool_call>\n{"name": "forecast", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.fixture(scope="module")
def front_of(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Any]:
    """Makes what prepares generations and has had none."""
    folder = model_directory(demo_model, tmp_path_factory.mktemp("forms") / "model", {})
    settings = make_settings(folder, max_model_len="1024", tool_call_parser="hermes", reasoning_parser="qwen3")
    return lambda: front(settings).requests


def _made(requests: Any, conversation: Conversation) -> dict[str, Any]:
    """All that becomes of it, as values, and what becomes of an answer."""
    made = requests.prepare(1, Generation(request_id="r", prompt=conversation))
    for one in made.requests:
        one.arrival_time = 0.0
    (splitter,) = made.splitters
    part = splitter.feed([Token(id=7, text=ANSWER)], ended=True)
    calls = [(call.name, call.arguments) for call in part.calls]
    sent = [msgspec.json.encode(one) for one in made.requests]
    prompt = made.prompt.get("prompt")
    return {"prompt": prompt, "ids": made.prompt_ids, "sent": sent, "sampling": made.sampling,
            "text": part.text, "reasoning": part.reasoning, "calls": calls}  # fmt: skip


@each_row("case", MESSAGES)
def test_other_messages(front_of: Callable[[], Any], case: str) -> None:
    repeating, fresh = front_of(), front_of()
    first = _made(repeating, FIRST)
    second = msgspec.structs.replace(FIRST, messages=MESSAGES[case])
    ours = _made(repeating, second)
    assert ours == _made(fresh, second)
    assert ours["prompt"] != first["prompt"]
    assert "forecast" in ours["prompt"]
    # Nothing of the first one has become another's.
    assert _made(repeating, FIRST) == first


@each_row("case", OTHERS)
def test_other_tools_or_options(front_of: Callable[[], Any], case: str) -> None:
    repeating, fresh = front_of(), front_of()
    first = msgspec.structs.replace(FIRST, **BEFORE.get(case, {}))
    for conversation in (first, first):
        _made(repeating, conversation)
    second = msgspec.structs.replace(FIRST, **OTHERS[case])
    assert _made(repeating, second) == _made(fresh, second)


def test_more_than_are_kept(front_of: Callable[[], Any]) -> None:
    repeating, fresh = front_of(), front_of()
    tools = [(_tool(f"t{number}"),) for number in range(12)]
    for given in (*tools, *reversed(tools)):
        conversation = msgspec.structs.replace(FIRST, tools=given)
        assert _made(repeating, conversation) == _made(fresh, conversation)


def test_what_is_kept() -> None:
    forms, form = RepeatedForms(), SimpleNamespace(tools=None, structured_outputs=None)
    guided = SimpleNamespace(tools=None, structured_outputs=object())
    assert forms.again(FIRST) is None
    forms.keep(FIRST, guided)
    assert forms.again(FIRST) is None
    forms.keep(FIRST, form)
    for messages in MESSAGES.values():
        assert forms.again(msgspec.structs.replace(FIRST, messages=messages)) is form
    for case, fields in OTHERS.items():
        first = msgspec.structs.replace(FIRST, **BEFORE.get(case, {}))
        forms.keep(first, form)
        assert forms.again(msgspec.structs.replace(FIRST, **fields)) is None, case
    # Two that come together are one.
    for _ in range(12):
        forms.keep(FIRST, form)
    assert forms.again(msgspec.structs.replace(FIRST, **BEFORE["1.0 and not 1"])) is form
