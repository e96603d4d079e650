"""Small embedding models, made on the spot: random weights, a WordPiece tokenizer of letters."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CONTEXT", "WIDTH", "Reference", "build_bert", "build_sentence_bert"]

WIDTH = 64
"""Numbers of a vector."""
CONTEXT = 64


def build_bert(target: Path, width: int = WIDTH, layers: int = 2) -> Path:
    """A BERT, whose vector is by default that of its first token."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    vocabulary = {word: index for index, word in enumerate([*special, *letters, *("##" + one for one in letters)])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        mask_token="[MASK]", model_max_length=CONTEXT,
    )  # fmt: skip
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 32,
        intermediate_size=128, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    fast.save_pretrained(target)
    BertModel(config).eval().save_pretrained(target)
    return target


def build_sentence_bert(target: Path) -> Path:
    """The same as sentence-transformers saves it: the mean of the tokens, 48 at most, lower case, Matryoshka."""
    build_bert(target)
    kinds = ["Transformer", "Pooling", "Normalize"]
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "",
         "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]  # fmt: skip
    config = json.loads((target / "config.json").read_text())
    files: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 48, "do_lower_case": True},
        "config.json": {**config, "is_matryoshka": True},
    }
    (target / "1_Pooling").mkdir()
    for name, content in files.items():
        (target / name).write_text(json.dumps(content))
    return target


class Reference:
    """The same model by transformers alone."""

    def __init__(self, model_dir: Path, pooling: str, *, lower: bool = False) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
        self._model: Any = AutoModel.from_pretrained(model_dir, dtype=torch.float32).eval()
        self._pooling = pooling
        self._lower = lower

    @property
    def vocabulary(self) -> int:
        """How many tokens it has."""
        size: int = self._model.config.vocab_size
        return size

    def ids(self, text: str) -> list[int]:
        """A text's tokens, special ones included."""
        return [*self._tokenizer(text.lower() if self._lower else text)["input_ids"]]

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""
        return self._tokenizer.chat_template is not None

    def chat(self, content: str, *, prompts: bool) -> list[int]:
        """The tokens of what a user says; `prompts`: with the beginning of an answer."""
        messages = [{"role": "user", "content": content}]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompts)
        return [*self._tokenizer(text, add_special_tokens=False)["input_ids"]]

    def vector(
        self, given: str | Sequence[int], *, normalize: bool = True, dimensions: int | None = None
    ) -> list[float]:
        """The vector of a text or of tokens."""
        import torch

        ids = self.ids(given) if isinstance(given, str) else list(given)
        with torch.no_grad():
            hidden = self._model(torch.tensor([ids])).last_hidden_state[0]
        pooled = {"cls": hidden[0], "mean": hidden.mean(0), "last": hidden[-1]}[self._pooling][:dimensions]
        return [*map(float, pooled / pooled.norm() if normalize else pooled)]
