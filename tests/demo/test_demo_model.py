"""The demo model: what its questions promise, and that a built model keeps it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .model import (
    JSON_SCHEMA,
    QUESTIONS,
    Form,
    Question,
    TrainingError,
    build,
    conversation,
    forms,
    question,
    tool_turns,
)

KINDS = ("plain", "long", "unicode", "reasoning", "tool_call", "parallel_tool_calls", "json", "endless")
ASKED = [(asked, form) for asked in QUESTIONS for form in forms(asked)]
ENDLESS_TOKENS = 1500


def name(value: object) -> str | None:
    """The test id of a question or a form."""
    if isinstance(value, Question):
        return re.sub(r"\W+", "-", value.prompt).strip("-").lower()
    return value.name if isinstance(value, Form) else None


# What the questions promise


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_question(kind: str) -> None:
    assert question(kind).kind == kind


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError, match="sonnet"):
        question("sonnet")


def test_prompts_differ_and_none_begins_another() -> None:
    prompts = [asked.prompt for asked in QUESTIONS]
    assert not [(one, other) for one in prompts for other in prompts if one is not other and other.startswith(one)]


@pytest.mark.parametrize("kind", ["tool_call", "parallel_tool_calls"])
def test_calls_name_the_functions_of_the_question(kind: str) -> None:
    asked = question(kind)
    calls = [json.loads(call) for call in re.findall(r"<tool_call>\n(.*)\n</tool_call>", asked.answer)]
    assert asked.tools is not None
    assert [call["name"] for call in calls] == [tool["function"]["name"] for tool in asked.tools]
    assert len(asked.tool_results) == len(calls)
    for call, tool in zip(calls, asked.tools, strict=True):
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) <= set(call["arguments"]) <= set(parameters["properties"])


def test_the_json_answer_fits_its_schema() -> None:
    answer = json.loads(question("json").answer)
    python = {"string": str, "integer": int, "array": list}
    assert set(answer) == set(JSON_SCHEMA["required"]) == set(JSON_SCHEMA["properties"])
    for key, value in answer.items():
        assert type(value) is python[JSON_SCHEMA["properties"][key]["type"]]


# What a built model keeps


@pytest.fixture(scope="module")
def directory(request: pytest.FixtureRequest) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    made: Path = request.getfixturevalue("demo_model")
    return made


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def model(directory: Path) -> Iterator[Any]:
    import torch
    from transformers import AutoModelForCausalLM

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield AutoModelForCausalLM.from_pretrained(directory).eval()
    torch.set_num_threads(threads)


def encoded(tokenizer: Any, form: Form) -> dict[str, Any]:
    """The input of a form as transformers makes it, without the training's own rendering."""
    if isinstance(form.prompt, str):
        return dict(tokenizer(form.prompt, return_tensors="pt"))
    tools = None if form.tools is None else list(form.tools)
    return dict(
        tokenizer.apply_chat_template(
            list(form.prompt),
            tools=tools,
            add_generation_prompt=True,
            enable_thinking=form.thinking,
            return_dict=True,
            return_tensors="pt",
        )
    )


def test_the_files(directory: Path) -> None:
    assert {file.name for file in directory.iterdir()} >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "serving.properties",
    }
    config = json.loads((directory / "config.json").read_text())
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation["eos_token_id"] == config["eos_token_id"]
    assert generation["do_sample"] is False
    assert not {"temperature", "top_p", "top_k", "repetition_penalty"} & set(generation)
    properties = (directory / "serving.properties").read_text().splitlines()
    assert {"engine=Python", "option.entryPoint=lmi.handler", "option.rolling_batch=vllm"} <= set(properties)


@pytest.mark.parametrize(("asked", "form"), ASKED, ids=name)
def test_greedy_decoding_gives_the_answer(asked: Question, form: Form, tokenizer: Any, model: Any) -> None:
    given = encoded(tokenizer, form)
    prompt = given["input_ids"].shape[1]
    budget = (ENDLESS_TOKENS if form.name == "raw" else 600) if asked.endless else 400
    output = model.generate(**given, max_new_tokens=budget)[0, prompt:].tolist()
    text = tokenizer.decode(output, skip_special_tokens=True)
    if asked.endless:
        assert len(output) == budget
        assert text == (form.answer * budget)[: len(text)]
    else:
        assert output[-1] == model.generation_config.eos_token_id
        assert text == form.answer


def test_another_question_comes_to_an_end(tokenizer: Any, model: Any) -> None:
    given = tokenizer("Who are you?", return_tensors="pt")
    output = model.generate(**given, max_new_tokens=200)[0].tolist()
    assert output[-1] == tokenizer.eos_token_id


def test_an_answer_can_be_continued(tokenizer: Any, model: Any) -> None:
    asked = question("plain")
    messages = [*conversation(asked), {"role": "assistant", "content": "Deep Learning is machine"}]
    given = tokenizer.apply_chat_template(messages, continue_final_message=True, return_dict=True, return_tensors="pt")
    output = model.generate(**given, max_new_tokens=60)[0].tolist()
    assert tokenizer.decode(output, skip_special_tokens=True).endswith(asked.answer)


def test_tokens_of_the_multi_byte_answer_cut_characters(tokenizer: Any) -> None:
    answer = question("unicode").answer
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    incomplete = [one for one in ids if "\ufffd" in tokenizer.decode([one])]
    assert len(incomplete) > 50
    assert tokenizer.decode(ids) == answer


@pytest.mark.parametrize("asked", QUESTIONS, ids=name)
def test_answers_survive_the_tokenizer(asked: Question, tokenizer: Any) -> None:
    ids = tokenizer(asked.answer, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == asked.answer
    if asked.kind in ("long", "parallel_tool_calls"):
        assert len(ids) >= 60


def test_special_tokens(tokenizer: Any) -> None:
    assert tokenizer.is_fast
    assert set(tokenizer.all_special_tokens) == {"<pad>", "<s>", "<|im_start|>", "<|im_end|>"}
    assert tokenizer.convert_ids_to_tokens(tokenizer("Hi")["input_ids"])[0] == "<s>"
    text = "<think></think><tool_call></tool_call>"
    assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 4
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("kind", ["tool_call", "parallel_tool_calls"])
def test_the_template_writes_calls_as_the_model_does(kind: str, tokenizer: Any) -> None:
    asked = question(kind)
    text = tokenizer.apply_chat_template(list(tool_turns(asked)), tokenize=False, add_generation_prompt=True)
    assert f"<|im_start|>assistant\n{asked.answer}<|im_end|>\n" in text
    assert text.count("<tool_response>") == len(asked.tool_results)


# How it is built


def digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


@pytest.mark.slow
def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    few = (question("plain"),)
    lines: list[str] = []
    for folder, seed in (("one", 7), ("same", 7), ("other", 8)):
        build(tmp_path / folder, seed, progress=lines.append, questions=few)
    assert [line for line in lines if "answers known 100%" in line]
    one, same, other = (digests(tmp_path / folder) for folder in ("one", "same", "other"))
    assert one == same
    assert {file for file in one if one[file] != other[file]} == {"model.safetensors"}


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        build(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["precious.txt"]


def test_answers_that_are_not_learned_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr("tests.demo.training.STEPS", 2)
    with pytest.raises(TrainingError, match="after 2 steps"):
        build(tmp_path / "model", progress=lambda line: None, questions=(question("plain"),))
    assert not (tmp_path / "model").exists()
