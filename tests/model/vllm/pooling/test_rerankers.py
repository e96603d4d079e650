"""Which models rank, told by their configuration and their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm.pooling.rerankers import FAMILIES, overrides, template_of

from ....kit.api.errors import OptionError
from ....kit.api.options import typed_settings
from ....kit.api.types import Settings

pytestmark = pytest.mark.engine


def model(folder: Path, architecture: str, card: str | None = None, **config: Any) -> Settings:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **config}))
    if card is not None:
        (folder / "README.md").write_text(card)
    return typed_settings(task="rank", model_dir=str(folder), model_id=str(folder))


def by_name(settings: Settings, name: str) -> Settings:
    return typed_settings(task="rank", model_id=settings.model_id, model_name=name)


def test_a_head_needs_nothing(tmp_path: Path) -> None:
    settings = model(tmp_path, "BertForSequenceClassification", problem_type="regression")
    assert overrides(settings, {"a": 1}) == {"a": 1, "problem_type": "regression", "lmi_problem_type": "regression"}


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("Qwen3ForCausalLM", "Qwen/Qwen3-Reranker-0.6B",
         {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}),
        ("Qwen2ForCausalLM", "mixedbread-ai/mxbai-rerank-base-v2",
         {"classifier_from_token": ["0", "1"], "method": "from_2_way_softmax"}),
        ("GemmaForCausalLM", "BAAI/bge-reranker-v2-gemma",
         {"classifier_from_token": ["Yes"], "method": "no_post_processing"}),
    ],
)  # fmt: skip
def test_a_family_is_known_by_its_names(tmp_path: Path, architecture: str, name: str, expected: dict[str, Any]) -> None:
    heads = {**expected, "architectures": [architecture.replace("ForCausalLM", "ForSequenceClassification")]}
    settings = model(tmp_path, architecture)
    for told in (
        by_name(settings, name),
        model(tmp_path, architecture, _name_or_path=name),
        model(tmp_path, architecture, f"---\nx: y\n---\n\n# {name.rpartition('/')[2]}\n"),
    ):
        found = overrides(told, {})
        assert {key: found[key] for key in heads} == heads
        assert template_of(told, {**found, "_name_or_path": name}, None) is not None


def test_a_comparison_in_a_card_is_no_name(tmp_path: Path) -> None:
    settings = model(tmp_path, "Qwen3ForCausalLM", "# Other\nBetter than Qwen3-Reranker.\n")
    with pytest.raises(OptionError, match=r"^option.task: Qwen3ForCausalLM generates text, and which of its tokens"):
        overrides(settings, {})


def test_what_the_user_says_goes_first(tmp_path: Path) -> None:
    settings = by_name(model(tmp_path, "Qwen3ForCausalLM"), "Qwen3-Reranker-4B")
    assert overrides(settings, {"classifier_from_token": ["a", "b"]})["classifier_from_token"] == ["a", "b"]
    given = {"architectures": ["Qwen3ForSequenceClassification"], "is_original_qwen3_reranker": True}
    unnamed = model(tmp_path, "Qwen3ForCausalLM")
    found = overrides(unnamed, given)
    assert found.items() >= given.items()
    assert template_of(unnamed, found, None) == FAMILIES[0].template


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("JinaForRanking", "it ranks all documents in one prompt"),
        ("Qwen3VLForConditionalGeneration", "it ranks images too"),
        ("HF_ColBERT", "late interaction"),
        ("ColBERTModernBertModel", "late interaction"),
        ("BertModel", "has no head for classes; with option.task=text-embedding"),
        ("LlamaForCausalLM", "or one of Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma"),
    ],
)
def test_others_are_refused_with_what_is_missing(tmp_path: Path, architecture: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        overrides(model(tmp_path, architecture), {})
    assert caught.value.param == "task"


def test_templates(tmp_path: Path) -> None:
    """A converted form's, one that every model of an architecture has, the tokenizer's where it is for pairs."""
    settings = model(tmp_path, "X")
    converted = {"architectures": ["Qwen3ForSequenceClassification"], "_name_or_path": "tomaarsen/Qwen3-Reranker-0.6B"}
    assert template_of(settings, converted, None) == FAMILIES[0].template
    nemotron = template_of(settings, {"architectures": ["LlamaBidirectionalForSequenceClassification"]}, None)
    assert (nemotron or "").startswith("question:")
    other = {"architectures": ["LlamaForSequenceClassification"]}
    own = "{% if message.role == 'query' %}..{% elif message.role == 'document' %}"
    assert template_of(settings, other, own) == own
    assert template_of(settings, other, "{{ messages[0].content }}") is None


def test_a_model_whose_configuration_cannot_be_read(tmp_path: Path) -> None:
    """vLLM says so."""
    settings = typed_settings(task="rank", model_id=str(tmp_path / "none"))
    assert overrides(settings, {})["problem_type"] == "regression"
