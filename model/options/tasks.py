"""What a model does: said by `option.task`, or in vLLM's own terms by `option.runner` and `option.convert`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["task_of"]

EMBEDDING = {"text-embedding", "feature-extraction", "embed"}
"""Of the values of `option.task`; LMI's embedding user guide has the first, djl_python's handler the second too."""

SPECULATIVE = ("speculative_config", "speculative_draft_model")


def task_of(values: Mapping[str, Any], fault: Callable[[str, str], None], notes: list[str]) -> str:
    """auto, generate or embed. Tells `fault` of options that contradict each other: the name of one, and why."""
    task, runner, convert = (values.get(name, "auto") for name in ("task", "runner", "convert"))
    embeds = task in EMBEDDING
    named = f"option.task={task}" if embeds else "option.convert=embed" if convert == "embed" else None
    if named and runner == "generate":
        fault("runner", f"expected pooling with {named}, got 'generate'")
    pooled = named or ("option.runner=pooling" if runner == "pooling" else None)
    if pooled and not embeds and task != "auto":
        fault("task", f"expected text-embedding with {pooled}, got {task!r}")
    if pooled:
        for name in SPECULATIVE:
            if name in values:
                fault(name, "expected no such option with task=text-embedding: nothing is generated")
        return "embed"
    if values.get("normalize") is False:
        notes.append("option.normalize=false has no effect without option.task=text-embedding")
    return "auto" if task == "auto" else "generate"
