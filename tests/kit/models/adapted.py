"""Adapters of every sort for one model, what each should answer, and a model directory that has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..adapters import SEVEN, write_adapter
from ..engines.model_infos import note_model
from ..hosts.host import model_directory
from .merged import Greediest, Greedy, merge

__all__ = ["ADAPTERS", "BASE", "PROMPTS", "Adapted", "adapted", "adapted_directory", "write"]

BASE = ""
"""The name of the model itself."""
ADAPTERS: Mapping[str, Mapping[str, Any]] = {
    "all": {"rank": 8, "scale": 0.1},
    "slight": {"rank": 1, "alpha": 2, "targets": ["q_proj"], "scale": 0.7},
    "heads": {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj"], "scale": 0.3},
    "stable": {"rank": 8, "alpha": 4, "use_rslora": True, "scale": 0.12},
    "inner": {"rank": 16, "alpha": 16, "targets": ["gate_proj", "up_proj", "down_proj"], "scale": 0.12},
    "out": {"rank": 3, "alpha": 6, "targets": ["o_proj", "down_proj"], "scale": 0.2},
    "wide": {"rank": 16, "alpha": 32, "scale": 0.07},
    "keys": {"rank": 2, "alpha": 8, "targets": ["k_proj", "o_proj"], "scale": 0.25},
}
"""By name, what tests/kit/adapters.py: write_adapter is told: ranks 1 to 16, different targets and scales."""
PROMPTS = [
    form.format(word)
    for word in ("rivers", "Paris", "layers", "1 2 3", "deep", "a b c d", "json", "weather", "old", "x", "many", "last")
    for form in (
        "Tell me of {}, please.",
        "What is {0} and how is the weather there in the city of {0}?",
        "I do not know the {} capital of many neural networks. Count up.",
    )
]


def write(model_dir: Path, folder: Path, names: Iterable[str] = ADAPTERS) -> dict[str, Path]:
    """Adapters of the table, each in a folder of its name; by name."""
    config = json.loads((model_dir / "config.json").read_text())
    seeds = {name: number for number, name in enumerate(ADAPTERS)}
    given = {name: {"targets": SEVEN, "seed": seeds[name], **ADAPTERS[name]} for name in names}
    return {name: write_adapter(folder / name, config, **said) for name, said in given.items()}


def adapted_directory(source: Path, target: Path, properties: Mapping[str, str]) -> Path:
    """As model_directory, for an engine with adapters."""
    made = model_directory(source, target, {"option.enable_lora": "true", **properties})
    note_model(made, properties.get("option.task", ""))
    return made


@dataclass(frozen=True)
class Adapted:
    """Adapters, and what each should answer."""

    folders: Mapping[str, Path]
    answers: Mapping[str, list[Greediest]]
    """By name, the model itself among them: to prompts with which it is sure of each token."""

    def one(self, name: str) -> Greediest:
        """The first of its answers."""
        return self.answers[name][0]


def adapted(
    source: Path,
    folder: Path,
    names: Iterable[str] = ADAPTERS,
    *,
    most: int = 12,
    count: int = 4,
    margin: float = 5e-3,
) -> Adapted:
    """Adapters for the model in `source`, in `folder`, and `count` answers of each of up to `most` tokens.

    `margin`: by how much the best token must be ahead of the second one (merged.py: Greedy.clear).
    """
    folders = write(source, folder / "adapters", names)
    answers = {BASE: Greedy(source).clear(PROMPTS, most, count, margin)}
    for name, adapter in folders.items():
        merged = Greedy(merge(source, adapter, folder / "merged" / name))
        answers[name] = merged.clear(PROMPTS, most, count, margin)
    # Each is another model: a prompt that several answer is answered differently.
    texts = [{answer.prompt: answer.ids for answer in of} for of in answers.values()]
    for at, one in enumerate(texts):
        assert all(one != other for other in texts[:at])
    return Adapted(folders, answers)
