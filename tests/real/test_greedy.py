"""SmolLM2's greedy answers are transformers' in 32-bit floats, prompts of 10 to 4,000 tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.hosts.host import Server
from ..kit.paths import DOCS

pytestmark = [pytest.mark.engine, pytest.mark.once]

PAGES = {
    "clients.md": (4000, 3000, 2200, 1500, 1000, 700, 450),
    "robustness.md": (600, 350, 200, 100, 50, 24, 10),
}
"""Prompts: the first so many tokens of a page's text. Those of a page share their cache."""
ASKED = (
    "What is the capital of France?",
    "List the planets of the solar system in order.",
    "Write a short poem about the sea.",
    "Translate 'good morning' into Spanish, French and Italian.",
    "Explain in two sentences what a prime number is.",
    "Write a Python function that reverses a string.",
)
NEW = 64
"""Tokens of an answer."""
CLOSE = 1e-3
"""Two logits that differ by less are one: the order of additions decides which is the greater."""


def prompts(tokenizer: Any) -> list[str]:
    """Twenty, the longest of each page before the others, which find their beginnings in the cache."""
    found: list[str] = []
    for page, lengths in PAGES.items():
        ids = tokenizer(re.sub(r"\s+", " ", (DOCS / page).read_text("utf-8")))["input_ids"]
        assert len(ids) >= lengths[0], (page, len(ids))
        found += [tokenizer.decode(ids[:length]) for length in lengths]
    for asked in ASKED:
        turn = [{"role": "user", "content": asked}]
        found.append(tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False))
    return found


def answer(server: Server, prompt: str) -> tuple[list[int], str]:
    """The tokens' ids, and the text."""
    body = {"inputs": prompt, "parameters": {"max_new_tokens": NEW, "details": True}, "stream": True}
    lines = httpx.post(f"{server.url}/invocations", json=body, timeout=280).raise_for_status().text.splitlines()
    records = [json.loads(line) for line in lines]
    return [record["token"]["id"] for record in records], records[-1]["generated_text"]


def first_differences(model: Any, prompt: Sequence[int], ids: Sequence[int], cache: Any) -> list[tuple[int, float]]:
    """Where `ids` leave transformers' greedy way and by how much of a logit; empty where they never do.

    All steps in one pass: as long as the ids are the greedy ones, what precedes each is what generation had before it.
    """
    import torch

    with torch.no_grad():
        cache.crop(len(prompt) - 1 - cache.get_seq_length())
        logits = model(torch.tensor([[prompt[-1], *ids[:-1]]]), past_key_values=cache).logits[0]
    best = logits.max(-1).values
    chosen = logits[torch.arange(len(ids)), torch.tensor(ids)]
    behind = (best - chosen).tolist()
    return [(at, value) for at, value in enumerate(behind) if value > 0][:1]


def test_answers_are_those_of_transformers(real_server: Server, smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    cache, cached = DynamicCache(), list[int]()
    wrong: list[str] = []
    known = prompts(tokenizer)
    assert len(known) == 20
    # The longest ones alone, all others at once: what is computed together must not matter.
    longest = {prompt: answer(real_server, prompt) for prompt in (known[0], known[len(PAGES["clients.md"])])}
    others = [prompt for prompt in known if prompt not in longest]
    with ThreadPoolExecutor(len(others)) as pool:
        answers = longest | dict(zip(others, pool.map(lambda prompt: answer(real_server, prompt), others), strict=True))
    for prompt in known:
        prompt_ids = tokenizer(prompt)["input_ids"]
        ids, text = answers[prompt]
        if prompt_ids != cached[: len(prompt_ids)]:
            cache, cached = DynamicCache(), prompt_ids
            with torch.no_grad():
                model(torch.tensor([prompt_ids]), past_key_values=cache, logits_to_keep=1)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
        ended = ids[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert len(ids) == NEW or ended, (len(ids), text)
        left = first_differences(model, prompt_ids, ids, cache)
        wrong += [f"{prompt[-60:]!r}: token {at} is {behind:.4f} behind" for at, behind in left if behind >= CLOSE]
    assert not wrong


def test_prompts_are_computed_in_chunks_and_found_in_the_cache(real_server: Server, smollm2: Path) -> None:
    """What the test before relies on: the second of two prompts that begin alike comes from the cache."""
    from transformers import AutoTokenizer

    prompt = prompts(AutoTokenizer.from_pretrained(smollm2))[3]
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    usages = [
        httpx.post(f"{real_server.url}/v1/completions", json=body, timeout=120).raise_for_status().json()["usage"]
        for _ in range(2)
    ]
    assert usages[1]["prompt_tokens_details"]["cached_tokens"] > 0.9 * usages[1]["prompt_tokens"] > 1000
    log = real_server.log_text()
    assert re.search(r"[Cc]hunked prefill", log), log[-2000:]
