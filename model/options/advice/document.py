"""The table of names and values that are none here, for docs/migrating.md, in Markdown."""

from __future__ import annotations

import re

from ..table import option_named
from .lmi import LMI
from .row import DEFAULT, Row
from .values import VALUES
from .vllm import VLLM

__all__ = ["advice_table"]


def advice_table() -> str:
    """A line for each row: the names, or the values, and what to write instead."""
    rows = (row for row in (*VALUES, *LMI, *VLLM) if row.why != DEFAULT)
    return "\n".join(["| option | instead |", "| --- | --- |", *(_line(row) for row in rows)])


def _line(row: Row) -> str:
    words = [word for word in row.value.split("|") if re.fullmatch(r"[\w.-]+", word)]
    becomes = " and ".join(f"`{name}={text.replace('{value}', '...')}`" for name, text in row.entries)
    if option_named(row.names[0]) is None and "..." in becomes:
        words = []
    names = ", ".join(
        [f"`{name}={word}`" for name in row.names for word in words] or [f"`{name}`" for name in row.names]
    )
    names += f" after vLLM {row.until}" if row.until else ""
    if row.fate == "by hand":
        return f"| {names} | {row.why[0].upper()}{row.why[1:]}. |"
    return f"| {names} | {becomes or 'Nothing'}: {row.why}. |"
