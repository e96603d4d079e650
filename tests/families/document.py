"""The table of families for docs/models.md: python -m tests.families.document."""

from __future__ import annotations

from ..kit.engines.parsing import form_of
from .table import ENDS, NAMES, Family, family

__all__ = ["families_table"]

HEAD = (
    "| models | `tool_call_parser` | `reasoning_parser` | calls of a stream | cases | of these read right by nobody |"
)


def families_table() -> str:
    """A row a family."""
    rows = [_row(family(name)) for name in NAMES]
    return "\n".join([HEAD, "| --- | --- | --- | --- | --- | --- |", *sorted(rows, key=str.lower)])


def _row(one: Family) -> str:
    tools, reasoners = (", ".join(f"`{name}`" for name in names) for names in (one.tool_parsers, one.reasoning_parsers))
    return f"| {one.models} | {tools} | {reasoners} | {_streamed(one)} | {len(one.cases)} | {_unread(one)} |"


def _streamed(one: Family) -> str:
    forms = [form_of(tool, reasoner) for tool in one.tool_parsers for reasoner in (*one.reasoning_parsers, None)]
    form = next((form for form in forms if form is not None), None)
    if form is None:
        return "as they come"
    return "each when it is whole" if form.end else "at the end"


def _unread(one: Family) -> str:
    """How many cases nobody reads right; both numbers where the versions differ."""
    counts = {version: sum(version in case.neither for case in one.cases) for version in ENDS}
    same = len(set(counts.values())) == 1
    return str(counts[ENDS[0]]) if same else ", ".join(f"{count} ({version})" for version, count in counts.items())


if __name__ == "__main__":
    print(families_table())
