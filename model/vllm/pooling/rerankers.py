"""Models that rank texts: which of them vLLM runs, what it must be told, and how a prompt is made of a pair.

Rerankers made from causal models score a pair by the logits of one or two tokens. vLLM makes a classification head of
these tokens' rows where the configuration names them (classifier_from_token), and takes whatever prompt it is given:
with other tokens, or without the prompt that the model was trained with, scores are wrong and nothing says so. Their
configuration is often that of the model that they were made from, so that only these say it:

    option.reranker      a family of FAMILIES, with its tokens and its prompt
    config.json          classifier_from_token and method; option.hf_overrides goes before it
    modules.json         sentence-transformers' LogitScore, with the tokens' ids
    the tokenizer        a template with the roles query and document

Sources: the model cards, vLLM's examples/pooling/score, sentence-transformers 6.2 (cross_encoder/modules).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import OptionError
from ...options import Settings
from ..library.parts import part
from .activation import leaving_logits

__all__ = ["FAMILIES", "Family", "PairTemplate", "overrides", "template_of"]

HEAD, CAUSAL = "ForSequenceClassification", "ForCausalLM"
"""How architectures end that have a head for classes, and that generate text."""


@dataclass(frozen=True, slots=True)
class Family:
    """Rerankers that are used alike."""

    title: str
    """What their makers call them."""
    architecture: str
    """Without what it ends with."""
    template: str
    """Of a prompt, in Jinja, which drops a last line break: `messages` of the roles query and document, as vLLM's
    templates of scores have them."""
    overrides: Mapping[str, Any]
    """vLLM's hf_overrides for the original form, a causal model."""


_QUERY = '{{ (messages | selectattr("role", "eq", "query") | first).content }}'
_DOCUMENT = '{{ (messages | selectattr("role", "eq", "document") | first).content }}'

FAMILIES: Mapping[str, Family] = {
    "qwen3": Family(
        "Qwen3-Reranker",
        "Qwen3",
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        '<Instruct>: {{ instruction | default("Given a web search query, retrieve relevant passages that answer the '
        f'query", true) }}}}\n<Query>: {_QUERY}\n<Document>: {_DOCUMENT}<|im_end|>\n'
        "<|im_start|>assistant\n<think>\n\n</think>\n\n\n",
        {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True},
    ),
    "mxbai-v2": Family(
        "mxbai-rerank-v2",
        "Qwen2",
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n{% if instruction %}instruction: {{ instruction }}\n{% endif %}"
        f"query: {_QUERY}\ndocument: {_DOCUMENT}\nYou are a search relevance expert who evaluates how well documents "
        "match search queries. For each query-document pair, carefully analyze the semantic relationship between them, "
        "then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n"
        "<|im_start|>assistant\n\n",
        {"classifier_from_token": ["0", "1"], "method": "from_2_way_softmax"},
    ),
    "bge-gemma": Family(
        "bge-reranker-v2-gemma",
        "Gemma",
        f"A: {_QUERY}\nB: {_DOCUMENT}\nGiven a query A and a passage B, determine whether the passage contains an "
        "answer to the query by providing a prediction of either 'Yes' or 'No'.",
        {"classifier_from_token": ["Yes"], "method": "no_post_processing"},
    ),
}
"""By their names as option.reranker has them."""

NEMOTRON = "LlamaBidirectional" + HEAD
NEMOTRON_TEMPLATE = f"question:{_QUERY} \n \n passage:{_DOCUMENT}"
"""llama-nemotron-rerank has an architecture of its own, a head, and needs its prompt."""

REFUSED = (
    (r"JinaForRanking", "it ranks all documents in one prompt (jina-reranker-v3)"),
    (r"JinaVLForRanking|\w*VL\w*", "it ranks images too"),
    (r"(?:HF_)?Col\w+", "it has a vector for each token (late interaction, ColBERT)"),
)
"""Architectures that rank in a way that is not served, and why not."""

HEADLESS = re.compile(r"\w+(?:Model|ForCausalLM|ForConditionalGeneration|ForMaskedLM|LMHeadModel)")
"""Architectures without a head for classes."""


def overrides(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's hf_overrides for a model that scores, on top of those `given`; raises OptionError for one that cannot."""
    config = _config(settings)
    architecture = _architecture({**config, **given})
    why = next((why for pattern, why in REFUSED if re.fullmatch(pattern, architecture)), None)
    if why is not None:
        raise OptionError.of("task", f"{architecture} is not served as a reranker: {why}")
    family = _family(settings, architecture)
    if "architectures" in given or not HEADLESS.fullmatch(architecture):
        made = family.overrides if family is not None and _architecture(config).endswith(CAUSAL) else {}
        return leaving_logits(config, {**made, **given})
    if architecture.endswith(CAUSAL):
        made = _tokens(settings, {**config, **given}, family)
        return leaving_logits(config, {"architectures": [architecture.removesuffix(CAUSAL) + HEAD], **made, **given})
    raise OptionError.of(
        "task",
        f"{architecture} has no head for classes; with option.task=text-embedding texts are scored by the cosine of "
        "their vectors",
    )


def _family(settings: Settings, architecture: str) -> Family | None:
    """The one that option.reranker names; raises OptionError where the model cannot be of it."""
    if settings.reranker is None:
        return None
    family = FAMILIES[settings.reranker]
    known = (family.architecture + CAUSAL, family.architecture + HEAD)
    if architecture not in known:
        why = f"{settings.reranker!r} is for {known[0]} or {known[1]}, the model is {architecture}"
        raise OptionError.of("reranker", why, given=settings.reranker)
    return family


def _tokens(settings: Settings, config: Mapping[str, Any], family: Family | None) -> Mapping[str, Any]:
    """What of hf_overrides says which tokens a causal model scores by; raises OptionError where nothing says it."""
    if family is not None:
        return family.overrides
    if config.get("classifier_from_token") and (config.get("method") or config.get("is_original_qwen3_reranker")):
        # vLLM reads it there.
        return {}
    if (found := _of_sentence_transformers(settings)) is not None:
        return found
    architecture = _architecture(config)
    like = {name: one.title for name, one in FAMILIES.items() if one.architecture + CAUSAL == architecture}
    named = "".join(f"option.reranker={name} if it is a {title}, else " for name, title in like.items())
    option = "reranker" if like else "hf_overrides"
    raise OptionError.of(
        option,
        f"{architecture} generates text, and nothing in its files says by which of its tokens it "
        f'scores: set {named}option.hf_overrides={{"classifier_from_token": ["no", "yes"], "method": '
        '"from_2_way_softmax"} with its own tokens, and option.chat_template to its prompt',
    )


SCORE = "LogitScore"
"""The module of sentence-transformers that scores by tokens."""


def _of_sentence_transformers(settings: Settings) -> dict[str, Any] | None:
    """The same as modules.json has it; None where it has no such module."""
    modules: Any = _file(settings, "modules.json")
    found = [one for one in modules or () if str(one.get("type", "")).rpartition(".")[2] == SCORE]
    if not found:
        return None
    scores = _file(settings, f"{found[0]['path']}/config.json") or {}
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(
        settings.model_id, revision=settings.revision, trust_remote_code=settings.trust_remote_code
    )
    ids = [scores[name] for name in ("false_token_id", "true_token_id") if scores.get(name) is not None]
    method = "from_2_way_softmax" if len(ids) > 1 else "no_post_processing"
    made: dict[str, Any] = {"classifier_from_token": tokenizer.convert_ids_to_tokens(ids), "method": method}
    if name := (_file(settings, SENTENCE_TRANSFORMERS) or {}).get("activation_fn"):
        made["sentence_transformers"] = {"activation_fn": name}
    return made


SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """Makes a prompt of a pair."""

    source: str
    """In Jinja."""
    in_parts: bool = False
    """Whether a message's content is a list with a part of text, as sentence-transformers' templates may have it."""
    system: str | None = None
    """What a system message says in front: the prompt that sentence-transformers has by default."""

    def messages(self, query: str, document: str) -> list[dict[str, Any]]:
        """What it is rendered with."""
        said = {"system": self.system, "query": query, "document": document}
        return [
            {"role": role, "content": [{"type": "text", "text": text}] if self.in_parts else text}
            for role, text in said.items()
            if text is not None
        ]


def template_of(settings: Settings, config: Mapping[str, Any], own: str | None) -> PairTemplate | None:
    """The template of a prompt for a pair: the family's, or the tokenizer's `own` where it is for pairs; None: none.

    `config` is the one that vLLM has, with its overrides.
    """
    architecture = _architecture(config)
    if settings.reranker is not None:
        return PairTemplate(FAMILIES[settings.reranker].template)
    if config.get("is_original_qwen3_reranker"):
        # vLLM's own word for these.
        return PairTemplate(FAMILIES["qwen3"].template)
    if architecture == NEMOTRON:
        return PairTemplate(NEMOTRON_TEMPLATE)
    roles = (rf"[\"']{role}[\"']" for role in ("query", "document"))
    return _own(settings, own) if own is not None and all(re.search(role, own) for role in roles) else None


def _own(settings: Settings, source: str) -> PairTemplate:
    """The tokenizer's, with contents in the form that brings them into the prompt; raises OptionError if none does."""
    from transformers.utils.chat_template_utils import render_jinja_template

    given = _file(settings, SENTENCE_TRANSFORMERS) or {}
    system = (given.get("prompts") or {}).get(given.get("default_prompt_name") or "")
    reason = "neither text comes out of it"
    for in_parts in (False, True):
        made = PairTemplate(source, in_parts, system or None)
        try:
            (text,), _ = render_jinja_template([made.messages("a-query", "a-document")], chat_template=source)
        except Exception as error:  # noqa: BLE001 - a template is a program
            reason = str(error)
            continue
        if "a-query" in text and "a-document" in text:
            return made
    why = f"the tokenizer's template names the roles query and document, but cannot be used: {reason}"
    raise OptionError.of("chat_template", f"{why}; expected one that can")


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])


def _file(settings: Settings, name: str) -> Any:
    """A JSON file of the model's; None: it has none."""
    return part("vllm.transformers_utils.repo_utils:get_hf_file_to_dict")(name, settings.model_id, settings.revision)


def _config(settings: Settings) -> dict[str, Any]:
    """The model's config.json; empty where that cannot be read, which vLLM then tells."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(settings.model_id, revision=settings.revision)
    except (OSError, json.JSONDecodeError):
        return {}
    return dict(config)
