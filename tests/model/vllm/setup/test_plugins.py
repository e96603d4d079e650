"""Parsers of the user's: files that register them with vLLM, and chats that go through them, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm.setup.plugins import import_plugins

from ....demo.model import Question, question
from ....kit.api.errors import OptionError
from ....kit.api.options import make_settings
from ....kit.engines.said import SaidEngine

PLUGIN = '''"""Calls as the demo model writes them, told when they are whole."""

import json
import re

try:
    from vllm.entrypoints.openai.engine.protocol import (
        DeltaFunctionCall, DeltaMessage, DeltaToolCall, ExtractedToolCallInformation, FunctionCall, ToolCall,
    )
except ImportError:  # vLLM 0.32
    from vllm.entrypoints.generate.base.protocol import (
        DeltaFunctionCall, DeltaMessage, DeltaToolCall, ExtractedToolCallInformation, FunctionCall, ToolCall,
    )
from vllm.tool_parsers import ToolParser, ToolParserManager

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def calls(text):
    found = [json.loads(call) for call in CALL.findall(text)]
    return [("my_" + call["name"], json.dumps(call["arguments"])) for call in found]


@ToolParserManager.register_module("mine")
class Mine(ToolParser):
    def extract_tool_calls(self, model_output, request):
        made = [ToolCall(function=FunctionCall(name=name, arguments=text)) for name, text in calls(model_output)]
        content = model_output.partition("<tool_call>")[0]
        return ExtractedToolCallInformation(tools_called=bool(made), tool_calls=made, content=content or None)

    def extract_tool_calls_streaming(
        self, previous_text, current_text, delta_text, previous_token_ids, current_token_ids, delta_token_ids, request
    ):
        if "<tool_call>" not in current_text:
            return DeltaMessage(content=delta_text)
        new = list(enumerate(calls(current_text)))[len(calls(previous_text)):]
        made = [
            DeltaToolCall(index=index, id=f"mine-{index}", function=DeltaFunctionCall(name=name, arguments=text))
            for index, (name, text) in new
        ]
        return DeltaMessage(tool_calls=made) if made else None
'''
"""A file as users write it."""


REASONING_PLUGIN = '''"""Reasoning as the demo model writes it, shouted."""

from vllm.reasoning import ReasoningParserManager
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser


@ReasoningParserManager.register_module("mine")
class Mine(BaseThinkingReasoningParser):
    start_token = "<think>"
    end_token = "</think>"

    def extract_reasoning(self, model_output, request):
        reasoning, content = super().extract_reasoning(model_output, request)
        return reasoning and reasoning.upper(), content

    def extract_reasoning_streaming(self, *arguments, **named):
        delta = super().extract_reasoning_streaming(*arguments, **named)
        if delta is not None and delta.reasoning:
            delta.reasoning = delta.reasoning.upper()
        return delta
'''
"""The same for reasoning. What it changes of it no parser of vLLM's does."""


@pytest.fixture
def registered() -> Iterator[None]:
    """What tests register is gone after them."""
    from vllm.tool_parsers import ToolParserManager

    before = dict(ToolParserManager.tool_parsers)
    yield
    ToolParserManager.tool_parsers.clear()
    ToolParserManager.tool_parsers.update(before)


def written(folder: Path, text: str = PLUGIN) -> str:
    (folder / "my_parser.py").write_text(text)
    return "my_parser.py"


CITY = '{"city": "Paris"}'


def said(engine: SaidEngine, asked: Question) -> tuple[Any, list[Any]]:
    """What clients get of the answer to a question, whole and streamed."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": asked.prompt}]}
    if asked.tools:
        body["tools"] = [dict(tool) for tool in asked.tools]
    ids = engine.ids(asked.answer)
    (whole,) = engine.ask("openai", body, ids)
    streamed = b"".join(engine.ask("openai", {**body, "stream": True}, ids, per_step=2)).decode()
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    return json.loads(whole)["choices"][0], [event["choices"][0]["delta"] for event in events]


@pytest.mark.engine
def test_a_chat_with_calls(tmp_path: Path, demo_model: Path, registered: None) -> None:
    """One token at a time as in a stream, all at once as of a whole answer."""
    written(tmp_path)
    file = str(tmp_path / "my_parser.py")
    engine = SaidEngine(demo_model, tool_parser_plugin=file, tool_call_parser="mine")
    choice, deltas = said(engine, question("tool_call"))
    engine.close()
    function = choice["message"]["tool_calls"][0]["function"]
    assert (choice["finish_reason"], function) == ("tool_calls", {"name": "my_get_weather", "arguments": CITY})
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call.get("name") or "" for call in calls) == function["name"]
    assert "".join(call.get("arguments") or "" for call in calls) == CITY


@pytest.mark.engine
def test_a_chat_with_reasoning(tmp_path: Path, demo_model: Path) -> None:
    """Apart from the content, whole and streamed."""
    written(tmp_path, REASONING_PLUGIN)
    file = str(tmp_path / "my_parser.py")
    engine = SaidEngine(demo_model, reasoning_parser_plugin=file, reasoning_parser="mine")
    asked = question("reasoning")
    choice, deltas = said(engine, asked)
    engine.close()
    reasoning, _, content = asked.answer.removeprefix("<think>").partition("</think>")
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (reasoning.upper(), content)
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == reasoning.upper()
    assert "".join(delta.get("content") or "" for delta in deltas) == content


def test_one_file_for_both_is_executed_once(tmp_path: Path) -> None:
    file = written(tmp_path, "import pathlib\nwith pathlib.Path(__file__).with_suffix('.log').open('a') as log:\n"
                   "    log.write('executed ')\n")  # fmt: skip
    import_plugins(make_settings(tmp_path, tool_parser_plugin=file, reasoning_parser_plugin=str(tmp_path / file)))
    assert (tmp_path / "my_parser.log").read_text() == "executed "


# What a file holds, and what is said of it after its path.
BROKEN = [
    ("import nothing_of_that_name", ", line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("a = 1\n\nraise ValueError('two\\nlines')", ", line 3: ValueError: two lines"),
    ("import sys\nsys.exit(3)", ", line 2: SystemExit: 3"),
    ("def f(:\n    pass", ": SyntaxError: invalid syntax (my_parser.py, line 1)"),
]


@pytest.mark.parametrize("option", ["tool_parser_plugin", "reasoning_parser_plugin"])
@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_a_broken_file(tmp_path: Path, option: str, text: str, said: str) -> None:
    settings = make_settings(tmp_path, **{option: written(tmp_path, text)})
    with pytest.raises(OptionError) as caught:
        import_plugins(settings)
    assert caught.value.message == f"option.{option}: {tmp_path / 'my_parser.py'}{said}"
    assert caught.value.param == option


def test_what_is_no_python_file(tmp_path: Path) -> None:
    (tmp_path / "parser.txt").write_text("")
    with pytest.raises(OptionError, match=r"expected a Python file \(\*\.py\)$"):
        import_plugins(make_settings(tmp_path, tool_parser_plugin="parser.txt"))


def test_vllms_core_gets_the_reasoning_parsers_too(tmp_path: Path) -> None:
    """Whose process imports them for grammars (vllm/v1/structured_output)."""
    taken = make_settings(tmp_path, reasoning_parser_plugin=written(tmp_path))
    assert taken.engine_arguments["reasoning_parser_plugin"] == str(tmp_path / "my_parser.py")
