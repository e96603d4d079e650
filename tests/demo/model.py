"""A model to try everything with: a small Llama, made on the spot, that answers built-in questions word for word.

    build(directory) -> tokenizer, training (about a minute on two cores, nothing is downloaded), files

    config.json, generation_config.json, model.safetensors   float32 weights that transformers and vLLM load
    tokenizer.json, tokenizer_config.json                     byte-level BPE and a ChatML template with tools
    serving.properties                                        the directory as DJL Serving takes it

Decoding is greedy unless a request asks for more. `QUESTIONS` are the questions with their answers, and `forms` the
ways of asking in which they hold.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .answers import (
    FALLBACK,
    JSON_SCHEMA,
    QUESTIONS,
    SYSTEM,
    Form,
    Message,
    Question,
    Tool,
    conversation,
    forms,
    question,
    tool_turns,
)
from .tokenizer import save_tokenizer
from .training import CONFIG, TrainingError, train

__all__ = [
    "FALLBACK",
    "JSON_SCHEMA",
    "QUESTIONS",
    "SYSTEM",
    "Form",
    "Message",
    "Question",
    "Tool",
    "TrainingError",
    "build",
    "conversation",
    "forms",
    "question",
    "tool_turns",
]

SERVING_PROPERTIES = """\
# DJL starts Python workers, which import the handler from the installed package. The model is this directory itself.
engine=Python
option.entryPoint=lmi.handler
# The engine that runs the model behind the rolling batch.
option.rolling_batch=vllm
# The longest prompt and answer together, in tokens: what the model was made for.
option.max_model_len=2048
# The weights are 32-bit floats; they are used as they are.
option.dtype=fp32
# One worker holds the model.
minWorkers=1
maxWorkers=1
# The most requests that generate at one time; others wait.
option.max_rolling_batch_size=256
"""


def build(
    directory: Path,
    seed: int = 0,
    progress: Callable[[str], None] = print,
    questions: Sequence[Question] = QUESTIONS,
) -> None:
    """Make the demo model in `directory`, which may exist if it is empty.

    seed: the same seed gives the same bytes in every file on the same machine with the same libraries.
    progress: gets a line of text every few seconds.
    questions: what to teach; fewer are learned faster.
    Raises FileExistsError if the directory holds anything, ImportError without torch, transformers, tokenizers and
    safetensors, and TrainingError if the answers are not learned. The directory stays as it was if an error is raised.
    """
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    with tempfile.TemporaryDirectory() as made:
        _make(Path(made), seed, progress, questions)
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path(made).iterdir()):
            # The contents only: the permissions of a temporary file are narrower than those of an ordinary one.
            shutil.copyfile(file, directory / file.name)


def _make(directory: Path, seed: int, progress: Callable[[str], None], questions: Sequence[Question]) -> None:
    """Write every file of the model."""
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    save_tokenizer(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = train(tokenizer, questions, seed, progress)
    # The embedding serves as the head too (tie_word_embeddings), and is stored once.
    weights = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    (directory / "config.json").write_text(json.dumps(CONFIG | ids, indent=2) + "\n", encoding="utf-8")
    generation = {"do_sample": False, **ids}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    (directory / "serving.properties").write_text(SERVING_PROPERTIES, encoding="utf-8")
    size = sum(value.numel() for value in weights.values())
    progress(f"{size / 1e6:.2f} million parameters, {len(questions)} questions")
