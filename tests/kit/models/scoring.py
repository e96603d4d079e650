"""Small models that score, made on the spot with random weights: a BERT with a head, causal rerankers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .embedding import build_bert

__all__ = [
    "CAUSAL_CONTEXT",
    "CausalReference",
    "ScoreReference",
    "add_sentence_transformers",
    "build_causal",
    "build_cross_encoder",
]

CAUSAL_CONTEXT = 1024


def build_cross_encoder(target: Path, labels: Sequence[str] = ("LABEL_0",), **config: Any) -> Path:
    """A BERT with a head for so many labels. `config`: further fields of its config.json."""
    import torch
    from tokenizers import processors
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    build_bert(target)
    tokenizer: Any = AutoTokenizer.from_pretrained(target)
    around = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    tokenizer.save_pretrained(target)
    given = BertConfig.from_pretrained(target)
    given.id2label = dict(enumerate(labels))
    given.label2id = {label: index for index, label in enumerate(labels)}
    torch.manual_seed(3)
    model: Any = BertForSequenceClassification(given).eval()
    # Scores that differ.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    model.save_pretrained(target)
    file = target / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return target


@dataclass(frozen=True)
class Causal:
    """A family of causal rerankers, as its model card has it."""

    option: str
    """What option.reranker calls it."""
    kind: str
    """Of transformers' classes, what they begin with."""
    words: tuple[str, ...]
    """One, whose logit is the score; or two, for no and for yes."""
    prompt: str
    instructed: str = ""
    """The same with an instruction, or without one where there is a usual one."""


_QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {}\n'
    "<Query>: {{query}}\n<Document>: {{document}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n{}query: {{query}}\ndocument: {{document}}\nYou are a search relevance expert who evaluates how "
    "well documents match search queries. For each query-document pair, carefully analyze the semantic relationship "
    "between them, then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
    "<|im_end|>\n<|im_start|>assistant\n"
)
_GEMMA = (
    "A: {query}\nB: {document}\nGiven a query A and a passage B, determine whether the passage contains an answer to "
    "the query by providing a prediction of either 'Yes' or 'No'."
)
_USUAL = "Given a web search query, retrieve relevant passages that answer the query"

CAUSAL = {
    "qwen3": Causal("qwen3", "Qwen3", ("no", "yes"), _QWEN3.format(_USUAL), _QWEN3.format("{instruction}")),
    "mxbai": Causal("mxbai-v2", "Qwen2", ("0", "1"), _MXBAI.format(""), _MXBAI.format("instruction: {instruction}\n")),
    "gemma": Causal("bge-gemma", "Gemma", ("Yes",), _GEMMA),
}


def build_causal(target: Path, family: str = "qwen3") -> Path:
    """One of CAUSAL, whose tokenizer knows bytes, a conversation's marks and the family's words."""
    import torch
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    chosen = CAUSAL[family]
    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens(["<think>", "</think>", *(word for word in chosen.words if word not in alphabet)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    torch.manual_seed(5)
    config = getattr(transformers, f"{chosen.kind}Config")(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, intermediate_size=128, max_position_embeddings=CAUSAL_CONTEXT,
        tie_word_embeddings=True, eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    fast.save_pretrained(target)
    model: Any = getattr(transformers, f"{chosen.kind}ForCausalLM")(config).eval()
    # Scores that differ.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.mul_(5)
        model.model.embed_tokens.weight.mul_(10 if chosen.kind != "Gemma" else 2)
    model.save_pretrained(target)
    return target


def add_sentence_transformers(model: Path, family: str, template: str, prompt: str = "") -> None:
    """Gives one of `build_causal` the files of a CrossEncoder (sentence-transformers 6.2, cross_encoder/modules)."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(model)
    *no, yes = tokenizer.convert_tokens_to_ids([*CAUSAL[family].words])
    score = {"true_token_id": yes, "false_token_id": no[0] if no else None, "module_input_name": "causal_logits"}
    kinds = ("sentence_transformers.base.modules.transformer.Transformer",
             "sentence_transformers.cross_encoder.modules.logit_score.LogitScore")  # fmt: skip
    modules = [
        {"idx": index, "name": str(index), "path": "1_LogitScore" if index else "", "type": kind}
        for index, kind in enumerate(kinds)
    ]
    settings = {"prompts": {"query": prompt}, "default_prompt_name": "query" if prompt else None}
    (model / "1_LogitScore").mkdir()
    for name, content in {
        "modules.json": modules,
        "1_LogitScore/config.json": score,
        "config_sentence_transformers.json": settings,
    }.items():
        (model / name).write_text(json.dumps(content))


class ScoreReference:
    """A model with a head, by transformers alone."""

    def __init__(self, model_dir: Path) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
        self._model: Any = AutoModelForSequenceClassification.from_pretrained(model_dir, dtype=torch.float32).eval()

    def tokens(self, text: str, document: str | None = None) -> int:
        """How many there are, special ones included."""
        return len(self._tokenizer(text, document)["input_ids"])

    def logits(self, text: str, document: str | None = None, *, longest: int | None = None) -> list[float]:
        """What the head gives, of what is cut to `longest` tokens."""
        import torch

        cut = {} if longest is None else {"truncation": True, "max_length": longest}
        with torch.no_grad():
            given = self._tokenizer(text, document, return_tensors="pt", **cut)
            return [*map(float, self._model(**given).logits[0])]

    def score(self, query: str, document: str, *, longest: int | None = None) -> float:
        """The sigmoid of the one logit."""
        import torch

        (logit,) = self.logits(query, document, longest=longest)
        return float(torch.tensor(logit).sigmoid())

    def probabilities(self, text: str, document: str | None = None) -> list[float]:
        """The softmax of the logits."""
        import torch

        return [*map(float, torch.tensor(self.logits(text, document)).softmax(0))]


class CausalReference:
    """One of CAUSAL, by transformers alone."""

    def __init__(self, model_dir: Path, family: str = "qwen3") -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._family = CAUSAL[family]
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
        self._model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()

    def prompt(self, query: str, document: str, instruction: str | None = None) -> str:
        """As the model card has it."""
        prompt = self._family.prompt if instruction is None else self._family.instructed
        return prompt.format(query=query, document=document, instruction=instruction)

    def tokens(self, query: str, document: str) -> int:
        """Of the prompt."""
        return len(self._tokenizer(self.prompt(query, document))["input_ids"])

    def score(self, query: str, document: str, instruction: str | None = None) -> float:
        """From 0 to 1."""
        return self.score_of(self.prompt(query, document, instruction))

    @property
    def instructed(self) -> bool:
        """Whether its prompt has a place for an instruction."""
        return bool(self._family.instructed)

    def score_of(self, prompt: str) -> float:
        """After a prompt of its own."""
        import torch

        given = self._tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            logits = self._model(**given).logits[0, -1]
        found = logits[self._tokenizer.convert_tokens_to_ids([*self._family.words])]
        return float(found.softmax(0)[1] if len(found) == 2 else found.sigmoid()[0])
