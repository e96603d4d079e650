"""docs/clients.md says which dialect a body is in: each row of its table is asked, in its order."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ..kit.api.dialects import DIALECTS, receive
from ..kit.api.options import make_settings
from ..kit.api.types import Request
from ..kit.paths import DOCS
from ..kit.rows import each_row


class Rule(NamedTuple):
    """A row of the table."""

    body: str
    option: str
    dialect: str


ROW = re.compile(r"^\| `(\{.*\})` \| (?:`option\.([^`]+)`)? ?\| `(\w+)` \|$", re.MULTILINE)
RULES = [Rule(*row) for row in ROW.findall((DOCS / "clients.md").read_text("utf-8"))]
BY_BODY = {"rerank", "tgi", "dynamic", "lmi", "anthropic", "responses", "openai"}
"""The dialects that are found so."""


def test_the_table_is_read() -> None:
    assert {rule.dialect for rule in RULES} == BY_BODY
    order = [known.name for known in DIALECTS]
    assert list(dict.fromkeys(rule.dialect for rule in RULES)) == [name for name in order if name in BY_BODY]


@each_row("rule", RULES, ids=str)
def test_a_row_holds(rule: Rule) -> None:
    json.loads(rule.body)
    name, _, value = rule.option.partition("=")
    settings = make_settings(**({name: value} if name else {}))
    assert receive(Request(rule.body.encode()), settings).dialect == rule.dialect
