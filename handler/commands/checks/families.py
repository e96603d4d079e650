"""Which parsers the answers of a model need that the options do not name.

options, config.json, chat template --of_families--> notes of `lmi check`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ....model.adapters.folder import base_config
from ....model.options import Settings
from ....model.options.advice.families import proposed
from ....model.options.combined import is_users
from ....model.options.finding import Finding, note

__all__ = ["of_families"]

READS = {"tool_call_parser": "calls tools", "reasoning_parser": "thinks"}
"""What a model does whose answers the option's parser reads."""


def of_families(settings: Settings) -> list[Finding]:
    """A note for each parser that a model's own files ask for and that is not set."""
    if settings.pools or is_users(settings.backend):
        return []
    found = proposed(base_config(settings), _template(settings))
    unread = "by its chat template, and nothing reads that"
    return [
        note(f"the model {READS[option]}, {unread}", option, f"option.{option}={parser}")
        for option, parser in found.items()
        if getattr(settings, option) is None
    ]


def _template(settings: Settings) -> str:
    """The chat templates that there are, one after another; a file that cannot be read has none."""
    if given := settings.chat_template:
        return given if "{" in given else _read(Path(settings.model_dir, given))
    folder = Path(settings.model_id)
    if not folder.is_absolute():
        return ""
    known: list[Any] = [_read(folder / "chat_template.jinja")]
    for name in ("chat_template.json", "tokenizer_config.json"):
        try:
            held = json.loads(_read(folder / name) or "{}").get("chat_template")
        except (ValueError, AttributeError, RecursionError):
            continue
        known += [one.get("template") for one in held if isinstance(one, dict)] if isinstance(held, list) else [held]
    return "\n".join(text for text in known if isinstance(text, str))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
