"""Which models rank: by their configuration, their own files, and options; never by a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm.pooling.rerankers import FAMILIES, overrides, template_of

from ....kit.api.errors import OptionError
from ....kit.api.options import make_settings, typed_settings
from ....kit.api.types import Settings
from ....kit.models.scoring import add_sentence_transformers, build_causal

pytestmark = pytest.mark.engine


def model(folder: Path, architecture: str, config: Any = None, **settings: Any) -> Settings:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **(config or {})}))
    return typed_settings(task="rank", model_dir=str(folder), model_id=str(folder), **settings)


def refused(settings: Settings, **given: Any) -> OptionError:
    with pytest.raises(OptionError) as caught:
        overrides(settings, given)
    assert caught.value.message.startswith(f"option.{caught.value.param}: ")
    return caught.value


def test_a_head_needs_nothing(tmp_path: Path) -> None:
    settings = model(tmp_path, "BertForSequenceClassification", {"problem_type": "regression"})
    assert overrides(settings, {"a": 1}) == {"a": 1, "problem_type": "regression", "lmi_problem_type": "regression"}


TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}),
    "mxbai-v2": ("Qwen2", {"classifier_from_token": ["0", "1"], "method": "from_2_way_softmax"}),
    "bge-gemma": ("Gemma", {"classifier_from_token": ["Yes"], "method": "no_post_processing"}),
}
"""By option.reranker; as the model cards and vLLM's examples/pooling/score have them."""
HEAD = {"architectures": ["Qwen3ForSequenceClassification"]}
PAIR = {"classifier_from_token": ["a", "b"], "method": "from_2_way_softmax"}


@pytest.mark.parametrize("name", TOKENS)
def test_a_family_by_the_option(tmp_path: Path, name: str) -> None:
    kind, expected = TOKENS[name]
    settings = model(tmp_path, f"{kind}ForCausalLM", reranker=name)
    heads = {**expected, "architectures": [f"{kind}ForSequenceClassification"]}
    assert overrides(settings, {}).items() >= heads.items()
    assert overrides(settings, {"architectures": heads["architectures"]}).items() >= heads.items()
    made = template_of(settings, overrides(settings, {}), None)
    assert made is not None
    assert made.source == FAMILIES[name].template
    # Converted to a head it needs the prompt alone.
    converted = overrides(model(tmp_path, f"{kind}ForSequenceClassification", reranker=name), {})
    assert "classifier_from_token" not in converted
    # What the user says goes first.
    assert overrides(settings, {"classifier_from_token": ["x", "y"]})["classifier_from_token"] == ["x", "y"]


def test_a_family_that_the_model_cannot_be_of(tmp_path: Path) -> None:
    error = refused(model(tmp_path, "LlamaForCausalLM", reranker="qwen3"))
    assert error.message == (
        "option.reranker: 'qwen3' is for Qwen3ForCausalLM or Qwen3ForSequenceClassification, the model is "
        "LlamaForCausalLM"
    )


@pytest.mark.parametrize("where", ["config.json", "hf_overrides"])
@pytest.mark.parametrize(
    "said",
    [PAIR, {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}],
    ids=["method", "qwen3"],
)
def test_tokens_that_the_configuration_names(tmp_path: Path, where: str, said: dict[str, Any]) -> None:
    """vLLM reads them in config.json: only what is given is passed on."""
    in_file, given = (said, {}) if where == "config.json" else ({}, said)
    found = overrides(model(tmp_path, "Qwen3ForCausalLM", in_file), given)
    assert found["architectures"] == HEAD["architectures"]
    assert {name: found[name] for name in said if name in found} == given


def test_tokens_of_sentence_transformers(tmp_path: Path) -> None:
    source = build_causal(tmp_path / "model", "mxbai")
    add_sentence_transformers(source, "mxbai", "")
    found = overrides(make_settings(source, task="text-ranking"), {})
    assert found.items() >= {**TOKENS["mxbai-v2"][1], "architectures": ["Qwen2ForSequenceClassification"]}.items()


@pytest.mark.parametrize(
    ("architecture", "param", "message"),
    [
        ("Qwen3ForCausalLM", "reranker", "set option.reranker=qwen3 if it is a Qwen3-Reranker, else option.hf_over"),
        ("Qwen2ForCausalLM", "reranker", "set option.reranker=mxbai-v2 if it is a mxbai-rerank-v2, else option.hf_"),
        ("GemmaForCausalLM", "reranker", "set option.reranker=bge-gemma if it is a bge-reranker-v2-gemma, else opti"),
        ("LlamaForCausalLM", "hf_overrides", 'set option.hf_overrides={"classifier_from_token": ["no", "yes"], "meth'),
        ("JinaForRanking", "task", "it ranks all documents in one prompt"),
        ("Qwen3VLForConditionalGeneration", "task", "it ranks images too"),
        ("HF_ColBERT", "task", "late interaction"),
        ("ColBERTModernBertModel", "task", "late interaction"),
        ("BertModel", "task", "has no head for classes; with option.task=text-embedding"),
    ],
)
def test_others_are_refused_with_what_to_set(tmp_path: Path, architecture: str, param: str, message: str) -> None:
    error = refused(model(tmp_path, architecture))
    assert message in error.message
    assert error.param == param


def test_no_name_makes_a_reranker(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Qwen3-Reranker-0.6B\n")
    name = "Qwen/Qwen3-Reranker-0.6B"
    settings = model(tmp_path, "Qwen3ForCausalLM", {"_name_or_path": name}, model_name=name)
    assert refused(settings).param == "reranker"
    # Nor a prompt of one with a head.
    assert template_of(settings, {**HEAD, "_name_or_path": name}, None) is None


OWN = (
    "{% for m in messages %}{% if m.role == 'query' %}q: %s{% elif m.role == 'document' %}d: %s{% endif %}{% endfor %}"
)


def test_templates(tmp_path: Path) -> None:
    """vLLM's word for a family, an architecture's own, the tokenizer's where it is for pairs."""
    settings = model(tmp_path, "X")
    original = template_of(settings, {**HEAD, "is_original_qwen3_reranker": True}, None)
    assert original is not None
    assert original.source == FAMILIES["qwen3"].template
    nemotron = template_of(settings, {"architectures": ["LlamaBidirectionalForSequenceClassification"]}, None)
    assert nemotron is not None
    assert nemotron.source.startswith("question:")
    other = {"architectures": ["LlamaForSequenceClassification"]}
    for content, in_parts in (("{{ m.content }}", False), ("{{ m.content[0].text }}", True)):
        own = OWN.replace("%s", content)
        made = template_of(settings, other, own)
        assert made is not None
        assert (made.source, made.in_parts, made.system) == (own, in_parts, None)
    assert template_of(settings, other, "{{ messages[0].content }}") is None
    with pytest.raises(OptionError, match=r"^option.chat_template: .* neither text comes out of it"):
        template_of(settings, other, OWN.replace("%s", ""))


def test_a_model_whose_configuration_cannot_be_read(tmp_path: Path) -> None:
    """vLLM says so."""
    settings = typed_settings(task="rank", model_id=str(tmp_path / "none"))
    assert overrides(settings, {})["problem_type"] == "regression"
