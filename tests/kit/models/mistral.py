"""Models with Mistral's tokenizer, made on the spot: mistral-common's own vocabularies, a tiny model of random weights.

    VERSIONS: a name --mistral_directory--> tekken.json or tokenizer.model.vN, config.json

Of the tokenizers mistral-common has only the older ones as files; a newer one is the last of them with the tokens and
the settings of its version written into it, and without most of its vocabulary, which takes seconds to read.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["GRAMMARS", "THINKING", "VERSIONS", "mistral_directory", "token_ids"]

SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]",
)  # fmt: skip
THINK = ("[THINK]", "[/THINK]")
SETTINGS = ("[MODEL_SETTINGS]", "[/MODEL_SETTINGS]")
EFFORT = {
    "reasoning_effort": {"type": "enum", "values": ["none", "high"], "accepts_none": True, "default": "none"},
    "json_schema": None,
}
"""The settings of a model that thinks where it is asked to."""

VERSIONS: Mapping[str, tuple[str, tuple[str, ...] | None, Mapping[str, Any] | None]] = {
    "v3 spm": ("mistral_instruct_tokenizer_240323.model.v3", None, None),
    "v7 spm": ("mistral_instruct_tokenizer_241114.model.v7", None, None),
    "v3": ("v3", None, None),
    "v7": ("v7", SPECIAL, None),
    "v11": ("v11", SPECIAL, None),
    "v13": ("v13", SPECIAL, None),
    "v13 think": ("v13", SPECIAL + THINK, None),
    "v15": ("v15", SPECIAL + THINK + SETTINGS, EFFORT),
}
"""By name: the version or the file, the special tokens where the file has to say them, the model's settings."""
GRAMMARS = tuple(name for name in VERSIONS if name not in ("v3 spm", "v7 spm", "v3", "v7"))
"""Those that write calls by a grammar of mistral-common's."""
THINKING = ("v13 think", "v15")
"""Those that may think."""
WORDS, RESERVED = 8_000, 100
"""Tokens of a vocabulary: of text, and special ones."""


def mistral_directory(folder: Path, name: str) -> Path:
    """Makes a model with the tokenizer of that name in `folder`, which must not exist; its weights are to be random
    (option.load_format=dummy)."""
    import mistral_common

    version, special, settings = VERSIONS[name]
    data = Path(mistral_common.__file__).parent / "data"
    folder.mkdir(parents=True)
    if version.startswith("v"):
        made: dict[str, Any] = json.loads((data / "tekken_240911.json").read_bytes())
        # A model without pictures has no such settings.
        del made["image"]
        made["vocab"] = made["vocab"][:WORDS]
        made["config"] |= {
            "version": version,
            "num_vocab_tokens": WORDS,
            "default_vocab_size": WORDS + RESERVED,
            "default_num_special_tokens": RESERVED,
        }
        if special is not None:
            made["special_tokens"] = [
                {"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(special)
            ]
        if settings is not None:
            made["model_settings_builder"] = settings
        (folder / "tekken.json").write_text(json.dumps(made), "utf-8")
        words = WORDS + RESERVED
    else:
        shutil.copyfile(data / version, folder / f"tokenizer.model.{version.rpartition('.')[2]}")
        words = 32_768
    config = {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": words,
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 1e6, "sliding_window": None, "tie_word_embeddings": False, "hidden_act": "silu",
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of what a model writes, in which special ones are written as they are called."""
    special = {tokenizer.tokenizer.id_to_piece(token_id): token_id for token_id in tokenizer.all_special_ids}
    ids: list[int] = []
    for part in re.split(r"(\[/?[A-Z_]+\])", text):
        if part in special:
            ids.append(special[part])
        elif part:
            ids += tokenizer.encode(part, add_special_tokens=False)
    return ids
