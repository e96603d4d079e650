"""axe-core, which looks for what keeps people from using a page."""

from __future__ import annotations

import json
from typing import Any

from ..packages import installed
from .browser import Browser

__all__ = ["axe_faults"]

GRAVE = ("serious", "critical")
RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (one) => [one.impact, one.id, one.nodes.map((node) => node.html + " " + node.failureSummary).slice(0, 3)]))
"""


def axe_faults(page: Browser) -> list[Any]:
    """What is serious or critical on the page that is open: impact, rule, elements."""
    # Evaluated from outside, where the page's policy does not apply.
    page.evaluate(f"{_source()}; 0")
    return [fault for fault in page.evaluate(RUN) if fault[0] in GRAVE]


def _source() -> str:
    folder = installed("checks", "axe") / "axe-core"
    version = json.loads((folder / "package.json").read_bytes())["version"]
    source = (folder / "axe.min.js").read_text("utf-8")
    assert version in source[:200]
    return source
