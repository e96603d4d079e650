"""docs/clients.md's table of each dialect's responses on each host, compared with what the hosts really send."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from ..kit.answers.spoken import SPOKEN
from ..kit.api.dialects import GENERATING
from ..kit.hosts.host import Host, Server
from ..kit.paths import DOCS

SPEAKS = {one.dialect: one for one in reversed(SPOKEN.values())}
"""The first of each dialect."""
COLUMNS = (
    "dialect",
    "whole",
    "stream",
    "bad value: local server",
    "bad value: DJL",
    "not JSON: local server",
    "not JSON: DJL",
)


def table() -> dict[str, dict[str, str]]:
    """Its rows by dialect."""
    text = (DOCS / "clients.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- answers -->\n(.*?)<!-- /answers -->", text, re.DOTALL)
    assert found, "docs/clients.md has no table between <!-- answers --> and <!-- /answers -->"
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].strip().splitlines()]
    assert tuple(heads) == COLUMNS
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def told(answer: httpx.Response) -> str:
    """An error as the table has it: status, the fields of its body, and a header that is its own."""
    body = answer.text.removeprefix("event: error\n").partition("\n")[0].removeprefix("data: ")
    document: Any = json.loads(answer.text if answer.headers["content-type"] == "application/json" else body)
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        shown = "error: {" + ", ".join(sorted(document["error"])) + "}"
    else:
        shown = ", ".join(sorted(document))
    own = "".join(f", header `{name}`" for name in answer.headers if name.startswith("x-ms-"))
    return f"{answer.status_code} `{shown}`{own}"


def test_every_dialect_has_a_row_with_its_content_types() -> None:
    rows = table()
    assert list(rows) == [known.name for known in GENERATING]
    for dialect, row in rows.items():
        assert (row["whole"], row["stream"]) == tuple(f"`{kind}`" for kind in SPEAKS[dialect].kinds), dialect


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.parametrize("host", ["server", "rolling"], indirect=True)
def test_errors(host: Host) -> None:
    on = "local server" if isinstance(host, Server) else "DJL"
    for dialect, row in table().items():
        spoken = SPEAKS[dialect]
        bad, torn = (
            told(httpx.post(f"{host.url}/invocations", content=content, headers=spoken.headers, timeout=120))
            for content in (json.dumps(spoken.bad).encode(), b"{")
        )
        assert (bad, torn) == (row[f"bad value: {on}"], row[f"not JSON: {on}"]), dialect
