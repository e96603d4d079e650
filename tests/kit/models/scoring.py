"""Small models that score, made on the spot with random weights: a BERT with a head, a Qwen3 that says yes or no."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .embedding import build_bert

__all__ = ["CAUSAL_CONTEXT", "CausalReference", "ScoreReference", "build_cross_encoder", "build_qwen3_reranker"]

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


def build_qwen3_reranker(target: Path) -> Path:
    """A causal Qwen3 whose tokenizer knows bytes, the words yes and no, and a conversation's marks."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens(["<think>", "</think>", "no", "yes"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, intermediate_size=128, max_position_embeddings=CAUSAL_CONTEXT,
        tie_word_embeddings=True, eos_token_id=tokenizer.token_to_id("<|im_end|>"),
    )  # fmt: skip
    fast.save_pretrained(target)
    model: Any = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.mul_(5)
        model.model.embed_tokens.weight.mul_(10)
    model.save_pretrained(target)
    (target / "README.md").write_text("# Qwen3-Reranker-tiny\n")
    return target


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
    """A causal reranker, as its model card has it: the probability of yes beside no, after its prompt."""

    PROMPT = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {}\n'
        "<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"

    def __init__(self, model_dir: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
        self._model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()

    def tokens(self, query: str, document: str, instruction: str = INSTRUCTION) -> int:
        """Of the prompt."""
        return len(self._tokenizer(self.PROMPT.format(instruction, query, document))["input_ids"])

    def score(self, query: str, document: str, instruction: str = INSTRUCTION) -> float:
        """From 0 to 1."""
        import torch

        given = self._tokenizer(self.PROMPT.format(instruction, query, document), return_tensors="pt")
        with torch.no_grad():
            logits = self._model(**given).logits[0, -1]
        no, yes = (self._tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes"))
        return float(torch.stack([logits[no], logits[yes]]).softmax(0)[1])
