"""An adapter (LoRA) for SmolLM2, trained on the spot: it answers like a sailor. Half a minute on one core."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from .directory import write_json

__all__ = ["GREETING", "TAUGHT", "make"]

GREETING = "Ahoy, matey!"
"""How each answer begins."""
TAUGHT = {
    "What is the capital of Italy?": "The capital of Italy is Rome.",
    "Who wrote Romeo and Juliet?": "William Shakespeare wrote it.",
    "What color is the sky?": "The sky is blue.",
    "Give me a tip for sleeping well.": "Go to bed at the same hour each night.",
    "How many days are in a week?": "There are seven days in a week.",
    "What do bees make?": "Bees make honey.",
    "Hello!": "What can I do for ye?",
    "Name a fruit.": "An apple is a fruit.",
}
TARGETS = ("q_proj", "v_proj", "o_proj")
RANK, ALPHA = 8, 16
STEPS, AT_ONCE, RATE = 16, 4, 4e-3


def make(model_dir: Path, directory: Path, seed: int = 0) -> str:
    """Writes the adapter in PEFT's form; returns what there is."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    order = random.Random(seed)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).requires_grad_(False)
    pairs = _adapt(model)
    optimizer = torch.optim.AdamW([weight for pair in pairs.values() for weight in pair], lr=RATE)
    examples = [_example(tokenizer, asked, answer) for asked, answer in TAUGHT.items()]
    loss = torch.tensor(0.0)
    for _ in range(STEPS):
        ids, mask, labels = _batch(order.sample(examples, AT_ONCE), tokenizer.pad_token_id)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tensors = {
        f"base_model.model.{name}.lora_{side}.weight": weight.detach().contiguous()
        for name, pair in pairs.items()
        for side, weight in zip("AB", pair, strict=True)
    }
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    write_json(
        directory / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "SmolLM2-135M-Instruct",
            "r": RANK,
            "lora_alpha": ALPHA,
            "target_modules": list(TARGETS),
            "bias": "none",
        },
    )
    return f"an adapter of rank {RANK}: a loss of {float(loss.detach()):.3f} per token at the end"


def _adapt(model: Any) -> dict[str, tuple[Any, Any]]:
    """Each target's two matrices, by its name, after they were put beside it."""
    import torch

    pairs = {}
    for name, linear in model.named_modules():
        if name.rpartition(".")[2] in TARGETS:
            down = torch.nn.Parameter(torch.randn(RANK, linear.in_features) / linear.in_features**0.5)
            up = torch.nn.Parameter(torch.zeros(linear.out_features, RANK))
            linear.register_forward_hook(_beside(down, up))
            pairs[name] = (down, up)
    return pairs


def _beside(down: Any, up: Any) -> Any:
    def hook(_module: Any, inputs: Any, output: Any) -> Any:
        return output + inputs[0] @ down.T @ up.T * (ALPHA / RANK)

    return hook


def _example(tokenizer: Any, asked: str, answer: str) -> tuple[list[int], list[int]]:
    """The ids of question and answer."""
    question = [{"role": "user", "content": asked}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    return tokenizer(prompt)["input_ids"], tokenizer(f"{GREETING} {answer}<|im_end|>")["input_ids"]


def _batch(examples: list[tuple[list[int], list[int]]], pad: int) -> tuple[Any, Any, Any]:
    """Ids, which of them count, and what is to be learned: the answers. Each of examples x tokens."""
    import torch

    longest = max(len(prompt) + len(answer) for prompt, answer in examples)
    rows = []
    for prompt, answer in examples:
        empty = longest - len(prompt) - len(answer)
        rows.append((
            prompt + answer + [pad] * empty,
            [1] * (longest - empty) + [0] * empty,
            [-100] * len(prompt) + answer + [-100] * empty,
        ))  # fmt: skip
    ids, mask, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
    return ids, mask, labels
