"""What a LoRA adapter should make of a model, by transformers alone: the adapter is merged into its weights."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Greediest", "Greedy", "merge"]


def merge(model_dir: Path, adapter: Path, target: Path) -> Path:
    """A model directory with W + s * B @ A in the place of each W, float32; returned.

    s is alpha / rank, with rsLoRA alpha / sqrt(rank).
    """
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(model_dir, target, ignore=shutil.ignore_patterns("adapters"))
    config = json.loads((adapter / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])
    weights: dict[str, Any] = load_file(target / "model.safetensors")
    halves: dict[str, Any] = load_file(adapter / "adapter_model.safetensors")
    for name, a in halves.items():
        if ".lora_A." not in name:
            continue
        module = re.sub(r"^base_model\.model\.", "", name.partition(".lora_A.")[0])
        change = scale * (halves[name.replace(".lora_A.", ".lora_B.")].double() @ a.double())
        weights[f"{module}.weight"] = (weights[f"{module}.weight"].double() + change).to(torch.float32)
    # A link to the model's own file is not to be followed.
    (target / "model.safetensors").unlink()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


@dataclass(frozen=True)
class Greediest:
    """What greedy decoding finds."""

    prompt: str
    ids: tuple[int, ...]
    text: str
    margin: float
    """By how much the best token was ahead of the second one, at the step where it was least."""


class Greedy:
    """A model directory by transformers, greedily and in float32."""

    def __init__(self, model_dir: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
        self._model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
        self._ends: int = self._model.config.eos_token_id

    def answer(self, prompt: str, most: int) -> Greediest:
        """Up to `most` tokens, the end of the sequence not among them."""
        import torch

        ids: list[int] = self._tokenizer(prompt)["input_ids"]
        made: list[int] = []
        margin = math.inf
        cache: Any = None
        step: Sequence[int] = ids
        with torch.no_grad():
            while len(made) < most:
                out = self._model(torch.tensor([step]), past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                best = torch.topk(out.logits[0, -1], 2)
                margin = min(margin, float(best.values[0] - best.values[1]))
                token = int(best.indices[0])
                if token == self._ends:
                    break
                made.append(token)
                step = [token]
        return Greediest(prompt, tuple(made), self._tokenizer.decode(made, skip_special_tokens=True), margin)

    def clear(self, prompts: Sequence[str], most: int, count: int, margin: float = 5e-3) -> list[Greediest]:
        """Its answers to the first `count` of the prompts with which it is never less sure than `margin`.

        None with parts of characters or special tokens, which dialects show in several ways.
        """
        found: list[Greediest] = []
        for prompt in prompts:
            answer = self.answer(prompt, most)
            if answer.margin > margin and answer.text and not set(answer.text) & set("<\N{REPLACEMENT CHARACTER}"):
                found.append(answer)
            if len(found) == count:
                return found
        raise AssertionError(f"only {len(found)} of {len(prompts)} prompts are clear enough, expected {count}")
