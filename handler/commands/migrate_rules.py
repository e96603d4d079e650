"""What of LMI's serving.properties is an option here too and means something else: the table of `lmi migrate`.

Sources: djl-serving 0.36 (LmiConfigRecommender, the LMI user guides). Names and values that are none here are those of
model/options/advice/. What neither names stays as it is, and `lmi check` judges it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...model.errors import Fault, shown
from ...model.options.advice.find import on_name, on_value
from ...model.options.advice.meant import meant
from ...model.options.combined import is_users
from ...model.options.table import option_named
from .migrate_entry import Entry

__all__ = ["ASYNC_MODE", "ENTRY_POINT", "JAVAS", "LOAD_MODELS", "READ", "mpi_models", "ruled"]

ENTRY_POINT = "lmi.handler"
ASYNC_MODE = {"option.rolling_batch": "disable", "option.async_mode": "true", "retry_threshold": "10"}
"""The mode for a configuration that has none of LMI's."""

JAVAS = {
    "SERVING_JOB_QUEUE_SIZE": "job_queue_size",
    "SERVING_BATCH_SIZE": "batch_size",
    "SERVING_MAX_BATCH_DELAY": "max_batch_delay",
    "SERVING_MAX_IDLE_TIME": "max_idle_time",
    "SERVING_MIN_WORKERS": "minWorkers",
    "SERVING_MAX_WORKERS": "maxWorkers",
    "SERVING_LOAD_ON_DEVICES": "load_on_devices",
    "SERVING_RETRY_THRESHOLD": "retry_threshold",
}
"""DJL Serving's variables that a model's own file says as well, with their keys there."""
READ = re.compile(
    # vLLM's server alone reads its key.
    "(?:SERVING|DJL|AI_DJL|JAVA|MODEL_SERVER|SAGEMAKER|AWS|LMI|VLLM(?!_API_KEY$)|HF|HUGGING_?FACE|TRANSFORMERS|"
    "LMCACHE|OTEL|RAY|CUDA|NVIDIA|NCCL|GLOO|UCX|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|TOKENIZERS|OMP|MKL|PYTHON|"
    "XDG|LD)_.*|PYTHONPATH|PATH|HOME|TMPDIR|TZ|LANG|(?i:https?|no|all)_PROXY",
)
"""Names that nothing above takes and somebody reads: DJL Serving, the hub's client, vLLM, CUDA and other libraries.
They stay where they are."""
LOAD_MODELS = "SERVING_LOAD_MODELS"
"""DJL Serving's models at start, `NAME::ENGINE=PATH`."""


def mpi_models(models: str) -> Fault:
    """Why models that LOAD_MODELS starts with MPI are not served."""
    instead = f"{LOAD_MODELS}={re.sub('::MPI', '::Python', models)}"
    return Fault(LOAD_MODELS, "one worker uses all devices", given=shown(models), instead=instead, source=LOAD_MODELS)


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of a key with a value."""

    key: str
    """A pattern: DJL Serving's own keys as they are, options without `option.`."""
    why: str
    """For the comment; {value} is what was given."""
    becomes: tuple[tuple[str, str], ...] = ()
    """Entries that take its place; none drop it."""
    value: str = ".*"
    """A pattern."""
    fate: Literal["mapped", "dropped", "kept"] = "mapped"


RULES = (
    Rule("entryPoint", "this handler takes LMI's place", (("option.entryPoint", ENTRY_POINT),), r"djl_python\..*"),
    Rule("entryPoint", "code of yours: it serves through this handler if it imports lmi.handler (docs/migrating.md)",
         value=rf"(?!{re.escape(ENTRY_POINT)}$).*", fate="kept"),
    Rule("engine", "one worker uses all devices", (("engine", "Python"),), "MPI"),
    Rule("engine", "vLLM makes the vectors, not DJL's {value}",
         (("engine", "Python"), ("option.task", "text-embedding")), "Rust|OnnxRuntime"),
    Rule("mpi_mode", "one worker uses all devices", value="(?i:true)", fate="dropped"),
    Rule("rolling_batch", "vLLM has taken the place of {value}", (("option.rolling_batch", "vllm"),),
         "lmi-dist"),
    Rule("rolling_batch", "vLLM runs the model, with TensorRT-LLM's defaults of parameters",
         (("option.rolling_batch", "vllm"), ("option.parameter_schema", "trtllm")), "trtllm"),
    Rule("rolling_batch", "vLLM runs the model, with transformers' modelling", value="scheduler|hf-accelerate",
         fate="kept"),
    Rule("enable_stateful_sessions", "it is the default; written out, it makes DJL Serving start one worker only, "
         "on the first device", value="(?i:true)", fate="dropped"),
)  # fmt: skip
"""The first that fits counts."""


def ruled(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with what the tables make of them."""
    return list(_joined(_ruled(list(entries))))


def _ruled(entries: list[Entry]) -> Iterator[Entry]:
    own = any(entry.option == "backend" and is_users(entry.value) for entry in entries)
    for entry in entries:
        was = f"{entry.key}={entry.value}"
        if entry.key and (found := meant(entry.value.strip())):
            what, entry.value = found
            entry.raw = ""
            entry.comments.append(f"{was}: without {what}, part of the value otherwise")
        rule = _rule_of(entry, own=own)
        if rule is None:
            yield entry
            continue
        if isinstance(rule, Fault):
            entry.fault = rule
            yield entry
            continue
        why = rule.why.replace("{value}", entry.value)
        if rule.fate == "kept":
            entry.comments.append(why)
            yield entry
        elif rule.fate == "dropped":
            yield Entry(comments=[*entry.comments, f"dropped: {was}: {why}"])
        else:
            comments = [*entry.comments, f"{was}: {why}"]
            for key, value in rule.becomes:
                yield Entry(key, value.replace("{value}", entry.value), comments=comments)
                comments = []


def _rule_of(entry: Entry, *, own: bool) -> Rule | Fault | None:
    """What becomes of it, or why it is not served; `own`: the engine is the user's, which has names of its own."""
    if not entry.key:
        return None
    text = entry.value.strip()
    for rule in RULES:
        if re.fullmatch(rule.key, entry.option) and re.fullmatch(rule.value, text):
            return rule
    option = option_named(entry.option)
    if option is not None and option.owner == "nobody":
        return Rule("", f"it has no effect: {option.reason}", fate="dropped")
    if not text or (own and option is None):
        return None
    advice = None if option else on_name(entry.option, text, any_version=True)
    advice = advice or on_value(option.name if option else entry.option, text)
    if advice is None:
        return None
    if advice.fate in {"lost", "by hand"}:
        return advice.fault(entry.option, text).come_from(entry.key)
    becomes = tuple((f"option.{name}", value) for name, value in advice.entries)
    return Rule("", advice.why, becomes, fate="mapped" if becomes else "dropped")


def _joined(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, with those that are parts of one JSON object as one."""
    first: dict[str, Entry] = {}
    for entry in entries:
        before = first.setdefault(entry.option, entry) if entry.key and not entry.fault else entry
        if before is not entry and (both := _both(before.value, entry.value)):
            before.value, before.raw = both, ""
            before.comments += entry.comments
        else:
            yield entry


def _both(one: str, other: str) -> str | None:
    try:
        objects = [json.loads(text) for text in (one, other)]
    except ValueError:
        return None
    return json.dumps({**objects[0], **objects[1]}) if all(isinstance(part, dict) for part in objects) else None
