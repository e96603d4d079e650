"""The demo model: it says what it was taught, however it is asked, and it is built again to the byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..kit.rows import each_row
from .model import QUESTIONS, Form, Question, TrainingError, build, conversation, forms, question

FORMS = ("raw", "tools", "no_thinking", "follow_up")
"""The others are rendered as `tools` is; that each token is certain in all of them the training itself has seen."""
ASKED = [(asked, form) for asked in QUESTIONS for form in forms(asked) if form.name in FORMS]
TOKENS = 250


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model)


@pytest.fixture(scope="module")
def model(demo_model: Path) -> Iterator[Any]:
    import torch
    from transformers import AutoModelForCausalLM

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield AutoModelForCausalLM.from_pretrained(demo_model).eval()
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


@pytest.mark.timeout(600)
@each_row(("asked", "form"), ASKED, ids=lambda one: one.prompt if isinstance(one, Question) else one.name)
def test_greedy_decoding_gives_the_answer(asked: Question, form: Form, tokenizer: Any, model: Any) -> None:
    given = encoded(tokenizer, form)
    prompt = given["input_ids"].shape[1]
    output = model.generate(**given, max_new_tokens=TOKENS)[0, prompt:].tolist()
    text = tokenizer.decode(output, skip_special_tokens=True)
    if asked.endless:
        assert len(output) == TOKENS
        assert text == (form.answer * TOKENS)[: len(text)]
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


def digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


@pytest.mark.slow
def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
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
    monkeypatch.setattr("tests.demo.training.STEPS", 2)
    with pytest.raises(TrainingError, match="after 2 steps"):
        build(tmp_path / "model", progress=lambda line: None, questions=(question("plain"),))
    assert not (tmp_path / "model").exists()
