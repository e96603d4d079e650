"""What other people's clients find of the APIs that LMI's container does not have, on the local server and behind DJL.

A script of tests/clients/scripts has a check for each thing that its users rely on, and runs all of them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from ...demo.model import question
from ...kit.clients.scripts import run_client
from ...kit.hosts.pool import CHAT, HostPool

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

CHECKS = {"anthropic_client.py": 34, "responses_client.py": 16, "tokens_client.py": 6}
"""How many there are at least in each script."""
KINDS = ("plain", "long", "unicode", "reasoning", "tool_call", "parallel_tool_calls", "json", "endless")
TOLD = {"questions": {kind: asdict(question(kind)) for kind in KINDS}}
PROPERTIES = {**CHAT, "option.response_store": "true"}


def found(script: str, url: str, way: str, **told: Any) -> None:
    """Fails with whatever failed in the script."""
    seen = run_client(script, url, way, {**TOLD, **told})
    assert {name: wrong for name, wrong in seen.items() if wrong} == {}
    assert len(seen) + len(told.get("without", ())) >= CHECKS[script]


@pytest.mark.parametrize("script", CHECKS)
@pytest.mark.parametrize(
    ("kind", "way"), [("server", "path"), ("server", "route"), ("rolling", "route"), ("async", "route")]
)
def test_checks(hosts: HostPool, kind: str, way: str, script: str) -> None:
    found(script, hosts.get(kind, PROPERTIES).url, way)
