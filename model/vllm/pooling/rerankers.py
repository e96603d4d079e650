"""Models that rank texts: which of them vLLM runs, what it must be told, and how a prompt is made of a pair.

Rerankers made from causal models score a pair by the logits of one or two tokens. vLLM makes a classification head of
these tokens' rows where `hf_overrides` names them, and takes whatever prompt it is given: with other tokens, or without
the prompt that the model was trained with, scores are wrong and nothing says so. So only families that are known are
told this, and what is not known is refused. Sources: the model cards, and vLLM's examples/pooling/score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import OptionError
from ...options import Settings
from .activation import leaving_logits

__all__ = ["FAMILIES", "Family", "family_of", "overrides", "template_of"]

HEAD = "ForSequenceClassification"
"""How architectures end that have a head for classes."""


@dataclass(frozen=True, slots=True)
class Family:
    """Rerankers that are used alike."""

    name: str
    architecture: str
    """Without what it ends with."""
    named: str
    """A pattern of their names, in lower case."""
    template: str
    """Of a prompt, in Jinja, which drops a last line break: `messages` of the roles query and document, as vLLM's
    templates of scores have them."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """vLLM's hf_overrides for the original form, a causal model; none: there is no such form."""

    def fits(self, architecture: str, names: Iterable[str]) -> bool:
        """Whether a model is one of them."""
        if architecture not in (self.architecture + HEAD, self.architecture + "ForCausalLM"):
            return False
        return any(re.search(self.named, name.lower()) for name in names)


_QUERY = '{{ (messages | selectattr("role", "eq", "query") | first).content }}'
_DOCUMENT = '{{ (messages | selectattr("role", "eq", "document") | first).content }}'

FAMILIES = (
    Family(
        "Qwen3-Reranker", "Qwen3", r"qwen3-reranker",
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        '<Instruct>: {{ instruction | default("Given a web search query, retrieve relevant passages that answer the '
        f'query", true) }}}}\n<Query>: {_QUERY}\n<Document>: {_DOCUMENT}<|im_end|>\n'
        "<|im_start|>assistant\n<think>\n\n</think>\n\n\n",
        {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True},
    ),
    Family(
        "mxbai-rerank-v2", "Qwen2", r"mxbai-rerank-\w+-v2",
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n{% if instruction %}instruction: {{ instruction }}\n{% endif %}"
        f"query: {_QUERY}\ndocument: {_DOCUMENT}\nYou are a search relevance expert who evaluates how well documents "
        "match search queries. For each query-document pair, carefully analyze the semantic relationship between them, "
        "then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n"
        "<|im_start|>assistant\n\n",
        {"classifier_from_token": ["0", "1"], "method": "from_2_way_softmax"},
    ),
    Family(
        "bge-reranker-v2-gemma", "Gemma", r"bge-reranker-v2-gemma",
        f"A: {_QUERY}\nB: {_DOCUMENT}\nGiven a query A and a passage B, determine whether the passage contains an "
        "answer to the query by providing a prediction of either 'Yes' or 'No'.",
        {"classifier_from_token": ["Yes"], "method": "no_post_processing"},
    ),
    Family(
        "llama-nemotron-rerank", "LlamaBidirectional", r"",
        f"question:{_QUERY} \n \n passage:{_DOCUMENT}",
    ),
)  # fmt: skip

REFUSED = (
    (r"JinaForRanking", "it ranks all documents in one prompt (jina-reranker-v3)"),
    (r"JinaVLForRanking|\w*VL\w*", "it ranks images too"),
    (r"(?:HF_)?Col\w+", "it has a vector for each token (late interaction, ColBERT)"),
)
"""Architectures that rank in a way that is not served, and why not."""

HEADLESS = re.compile(r"\w+(?:Model|ForCausalLM|ForConditionalGeneration|ForMaskedLM|LMHeadModel)")
"""Architectures without a head for classes."""

_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
MAX_README = 1 << 20
"""Bytes that are read of it."""


def overrides(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's hf_overrides for a model that scores, on top of those `given`; raises OptionError for one that cannot."""
    config = _config(settings)
    architecture = _architecture({**config, **given})
    why = next((why for pattern, why in REFUSED if re.fullmatch(pattern, architecture)), None)
    if why is not None:
        raise OptionError(f"option.task: {architecture} is not served as a reranker: {why}", "task")
    if "architectures" in given or not HEADLESS.fullmatch(architecture):
        return leaving_logits(config, given)
    family = family_of(architecture, names_of(settings, config))
    if family is not None:
        return leaving_logits(config, {"architectures": [family.architecture + HEAD], **family.overrides, **given})
    known = ", ".join(family.name for family in FAMILIES if family.overrides)
    if architecture.endswith("ForCausalLM"):
        raise OptionError(
            f"option.task: {architecture} generates text, and which of its tokens are its verdict is not known: "
            f"expected a model with a head for classes, or one of {known} (told by option.model_id, "
            "option.served_model_name, _name_or_path in config.json or a heading of README.md); of another one "
            'option.hf_overrides={"architectures": ["..."], "classifier_from_token": ["no", "yes"], "method": '
            '"from_2_way_softmax"} says it, and option.chat_template its prompt',
            "task",
        )
    raise OptionError(
        f"option.task: {architecture} has no head for classes; with option.task=text-embedding texts are scored by the "
        "cosine of their vectors",
        "task",
    )


def template_of(settings: Settings, config: Mapping[str, Any], own: str | None) -> str | None:
    """The template of a prompt for a pair: the family's, or the tokenizer's `own` where it is for pairs; None: none.

    `config` is the one that vLLM has, with its overrides.
    """
    architecture = _architecture(config)
    names = names_of(settings, config)
    if config.get("is_original_qwen3_reranker"):
        names = (*names, "qwen3-reranker")
    if (family := family_of(architecture, names)) is not None:
        return family.template
    roles = (rf"[\"']{role}[\"']" for role in ("query", "document"))
    return own if own is not None and all(re.search(role, own) for role in roles) else None


def family_of(architecture: str, names: Iterable[str]) -> Family | None:
    """Which family a model is of."""
    names = tuple(names)
    return next((family for family in FAMILIES if family.fits(architecture, names)), None)


def names_of(settings: Settings, config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the model is called: by the options, by its configuration, and by the headings of its model card."""
    named = (settings.model_id, settings.model_name, str(config.get("_name_or_path") or ""))
    card = Path(settings.model_id, "README.md")
    try:
        with card.open("rb") as file:
            text = file.read(MAX_README).decode("utf-8", "replace")
    except OSError:
        return named
    return (*named, *_HEADING.findall(text))


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])


def _config(settings: Settings) -> dict[str, Any]:
    """The model's config.json; empty where that cannot be read, which vLLM then tells."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(settings.model_id, revision=settings.revision)
    except (OSError, json.JSONDecodeError):
        return {}
    return dict(config)
