"""`lmi check` proposes the parsers that a model's own files ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.commands.checks.families import of_families

from ....kit.api.options import load_settings
from ....kit.models.vocabularies import vocabulary
from ....kit.rows import each_row

CHATML = '{% for tool in tools %}<tool_call>\n{"name": {% endfor %}'


def proposed(folder: Path, config: dict[str, Any] | None = None, **options: str) -> list[str]:
    """What is proposed for a model in this folder."""
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    settings = load_settings(folder, environment={}, overrides=options)
    return [str(finding.instead).removeprefix("option.") for finding in of_families(settings)]


@each_row(
    ("kind", "template", "expected"),
    [
        ("qwen2", CHATML, ["tool_call_parser=hermes"]),
        ("qwen3", CHATML + "<think>", ["tool_call_parser=hermes", "reasoning_parser=qwen3"]),
        ("qwen3_moe", CHATML + "<function=", ["tool_call_parser=qwen3_coder"]),
        ("qwen2", "<think>", ["reasoning_parser=deepseek_r1"]),
        ("llama", "Environment: ipython", ["tool_call_parser=llama3_json"]),
        ("gpt_oss", "<|channel|>analysis", []),
        ("gemma3", "<start_of_turn>", []),
        (
            "granite",
            "<|tool_call|> Here is my thought process",
            ["tool_call_parser=granite", "reasoning_parser=granite"],
        ),
        ("glm4_moe", "<tool_call> <arg_key> <think>", ["tool_call_parser=glm45", "reasoning_parser=glm45"]),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜> ```json <think>",
            ["tool_call_parser=deepseek_v3", "reasoning_parser=deepseek_r1"],
        ),
        (
            "cohere2",
            "<|START_THINKING|><|START_ACTION|><|START_RESPONSE|>",
            ["tool_call_parser=cohere_command3", "reasoning_parser=cohere_command3"],
        ),
        (
            "cohere2_moe",
            "<|START_THINKING|><|START_ACTION|><|START_TEXT|>",
            ["tool_call_parser=cohere_command4", "reasoning_parser=cohere_command4"],
        ),
        ("deepseek_v32", "", ["tool_call_parser=deepseek_v32", "reasoning_parser=deepseek_v3"]),
    ],
)
def test_by_the_type_and_the_template(tmp_path: Path, kind: str, template: str, expected: list[str]) -> None:
    (tmp_path / "chat_template.jinja").write_text(template)
    assert proposed(tmp_path, {"model_type": kind}) == expected


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json", "several", "option"])
def test_where_the_template_is(tmp_path: Path, file: str) -> None:
    options: dict[str, str] = {}
    if file == "option":
        (tmp_path / "own.jinja").write_text(CHATML)
        options = {"chat_template": "own.jinja"}
    elif file == "chat_template.jinja":
        (tmp_path / file).write_text(CHATML)
    else:
        held = [{"name": "default", "template": ""}, {"name": "tool_use", "template": CHATML}]
        text = json.dumps({"chat_template": CHATML if file != "several" else held})
        (tmp_path / "tokenizer_config.json").write_text(text)
    assert proposed(tmp_path, {"model_type": "qwen2"}, **options) == ["tool_call_parser=hermes"]


def test_what_is_set_is_not_proposed(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(CHATML + "<think>")
    options = {"tool_call_parser": "hermes"}
    assert proposed(tmp_path, {"model_type": "qwen3"}, **options) == ["reasoning_parser=qwen3"]


@each_row("text", ["", "{", "[]", '{"chat_template": 5}', '{"chat_template": [5]}'])
def test_files_that_cannot_be_read_propose_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    (tmp_path / "config.json").write_text(text)
    assert proposed(tmp_path) == []


def test_a_real_template() -> None:
    settings = load_settings(vocabulary("qwen3"), environment={}, overrides={})
    assert [finding.instead for finding in of_families(settings)] == [
        "option.tool_call_parser=hermes",
        "option.reasoning_parser=qwen3",
    ]
