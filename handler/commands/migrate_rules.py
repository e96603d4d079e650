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

from ...model.options.advice.find import on_name, on_value
from ...model.options.advice.meant import meant
from ...model.options.advice.row import Fate
from ...model.options.combined import is_users
from ...model.options.environment.vllm_image import PREFIX
from ...model.options.table import option_named
from .migrate_entry import Entry

__all__ = ["ASYNC_MODE", "ENTRY_POINT", "JAVAS", "STAYS", "ruled"]

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
STAYS = re.compile(rf"(?!OPTION_|ARGS_|{PREFIX}).*")
"""Names that nothing above takes: they are for DJL Serving, the hub's client, vLLM or CUDA, and stay where they are."""


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
    fate: Literal["mapped", "dropped", "refused", "kept"] = "mapped"


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

FATES: dict[Fate, Literal["mapped", "dropped", "refused"]] = {
    "renamed": "mapped", "gone": "dropped", "lost": "refused"
}  # fmt: skip
"""By what is to be done about a name or a value that is none here."""


def ruled(entries: Iterable[Entry], refused: list[str]) -> list[Entry]:
    """The entries with what the tables make of them; what is not served is added to `refused`."""
    return list(_joined(_ruled(list(entries), refused)))


def _ruled(entries: list[Entry], refused: list[str]) -> Iterator[Entry]:
    own = any(entry.option == "backend" and is_users(entry.value) for entry in entries)
    for entry in entries:
        refused += [one for comment in entry.comments if (one := comment.removeprefix("refused: ")) != comment]
        was = f"{entry.key}={entry.value}"
        if entry.key and (found := meant(entry.value.strip())):
            what, entry.value = found
            entry.raw = ""
            entry.comments.append(f"{was}: without {what}, part of the value otherwise")
        rule = _rule_of(entry, own=own)
        if rule is None:
            yield entry
            continue
        why = rule.why.replace("{value}", entry.value)
        if rule.fate == "refused":
            refused.append(f"{was}: {why}")
            entry.active = False
            entry.comments.append(f"refused: {why}")
            yield entry
        elif rule.fate == "kept":
            entry.comments.append(why)
            yield entry
        elif rule.fate == "dropped":
            yield Entry(comments=[*entry.comments, f"dropped: {was}: {why}"])
        else:
            comments = [*entry.comments, f"{was}: {why}"]
            for key, value in rule.becomes:
                yield Entry(key, value.replace("{value}", entry.value), comments=comments)
                comments = []


def _rule_of(entry: Entry, *, own: bool) -> Rule | None:
    """`own`: the engine is the user's, which has names of its own."""
    if not entry.key:
        return None
    text = entry.value.strip()
    for rule in RULES:
        if re.fullmatch(rule.key, entry.option) and re.fullmatch(rule.value, text):
            return rule
    option = option_named(entry.option)
    if option is not None and option.owner == "nobody":
        return Rule("", f"it has no effect: {option.help[0].lower()}{option.help[1:].rstrip('.')}", fate="dropped")
    if not text or (own and option is None):
        return None
    advice = None if option else on_name(entry.option, text, any_version=True)
    advice = advice or on_value(option.name if option else entry.option, text)
    if advice is None:
        return None
    becomes = tuple((f"option.{name}", value) for name, value in advice.entries)
    return Rule("", advice.why, becomes, fate=FATES[advice.fate])


def _joined(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, with those that are parts of one JSON object as one."""
    first: dict[str, Entry] = {}
    for entry in entries:
        before = first.setdefault(entry.option, entry) if entry.key and entry.active else entry
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
