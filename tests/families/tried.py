"""Which parsers a family's cases are tried with, on the vLLM that is installed.

Family --made_for--> ("tool parser", "reasoning parser"), Case, Parsers
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .answers import Parsers, Vocabulary
from .table import Case, Family

__all__ = ["Pair", "judged", "known", "made_for", "model_config", "version"]

NEEDED = {
    "minimax_m3": ("vllm._rust_tool_parser", "vllm.parser.minimax_m3"),
}
"""What parsers need one of: a part that the CPU build of 0.26 lacks, and what later versions have."""
Pair = tuple[str, str]
"""Names of a tool parser and of a reasoning parser; "": none."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 40_000, "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}  # fmt: skip


def model_config(folder: Path, family: Family) -> Any:
    """vLLM's ModelConfig of a small model; of it, parsers want the kind of the model."""
    from vllm import EngineArgs

    (folder / "config.json").write_text(json.dumps(CONFIG | family.model))
    return EngineArgs(model=str(folder), skip_tokenizer_init=True, enforce_eager=True).create_model_config()


def version() -> str:
    """That of vLLM, as in "0.26"."""
    import vllm

    return ".".join(vllm.__version__.split(".")[:2])


def known() -> tuple[set[str], set[str]]:
    """The names of the tool parsers and of the reasoning parsers that there are, and that can be made here."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    tools, reasoners = {*ToolParserManager.lazy_parsers}, {*ReasoningParserManager.lazy_parsers}
    missing = {name for name, modules in NEEDED.items() if not any(map(importlib.util.find_spec, modules))}
    return tools - missing, reasoners - missing


def judged(ours: Mapping[str, bool], theirs: Mapping[str, bool]) -> str:
    """What is to be said of a case, by the ways that are right: "" where nothing is.

    "wrong": vLLM is right in a way in which we are not, or in any way where we are not right whole. "streams": nobody's
    streams are right, but the whole answer is. "neither": nobody is right.
    """
    if all(ours.values()):
        return ""
    if any(theirs[way] and not right for way, right in ours.items()) or (any(theirs.values()) and not ours["whole"]):
        return "wrong"
    return "streams" if ours["whole"] else "neither"


def made_for(family: Family, config: Any) -> Iterator[tuple[Pair, Case, Parsers]]:
    """A family's cases, each with each pair of parsers that it asks for and that there is."""
    tools, reasoners = known()
    vocabulary = Vocabulary(family)
    made: dict[Pair, Parsers] = {}
    for case in family.cases:
        with_tools = case.tool_choice != "off" and bool(family.tool_parsers)
        for pair in (
            (tool, reasoner)
            for tool in (family.tool_parsers if with_tools else ("",))
            for reasoner in (family.reasoning_parsers if case.reasoning is not None else ("",))
            if (not tool or tool in tools) and (not reasoner or reasoner in reasoners)
        ):
            if pair not in made:
                made[pair] = Parsers(family, vocabulary, config, *pair)
            yield pair, case, made[pair]
