"""What other people's clients find of the APIs that LMI's container does not have, on the local server and behind DJL.

A script of tests/clients/scripts has a check for each thing that users of an API rely on, and runs all of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from ...demo.model import JSON_SCHEMA, QUESTIONS, question
from ...kit.clients.scripts import run_client
from ...kit.hosts.host import Host
from ...kit.hosts.pool import CHAT, HostPool

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

PLAIN, CALLING, REASONING, DATA = map(question, ("plain", "parallel_tool_calls", "reasoning", "json"))
THOUGHT, _, ANSWER = REASONING.answer.removeprefix("<think>").partition("</think>")
TOLD: dict[str, Any] = {
    "questions": {one.kind: asdict(question(one.kind)) for one in QUESTIONS},
    "schema": JSON_SCHEMA,
    "question": PLAIN.prompt,
    "answer": PLAIN.answer,
    "reasoning": {"prompt": REASONING.prompt, "thought": THOUGHT.strip(), "answer": ANSWER.strip()},
    "calls": {
        "prompt": CALLING.prompt,
        "tools": CALLING.tools,
        "calls": [json.loads(one.partition("</tool_call>")[0]) for one in CALLING.answer.split("<tool_call>")[1:]],
        "results": CALLING.tool_results,
        "follow_up": CALLING.follow_up,
    },
    "endless": question("endless").prompt,
    "short_call": question("tool_call").prompt,
    "json": {"prompt": DATA.prompt, "schema": JSON_SCHEMA, "answer": json.loads(DATA.answer)},
}
CHECKS = {"anthropic_client.py": 24, "responses_client.py": 21, "tokens_client.py": 12}
"""How many there are at least in each script."""
OWN_ERRORS = ["an_errors_body"]
"""Checks that need the body of an error, which in rolling batch and async mode is DJL Serving's (docs/clients.md)."""


def found(script: str, host: Host, way: str, **told: Any) -> None:
    """Fails with whatever failed in the script. `bodies`: whether the body of an error is the dialect's own."""
    without = [] if told["bodies"] else OWN_ERRORS
    seen = run_client(script, host.url, way, {**TOLD, **told, "without": without})
    failed = {name: wrong for name, wrong in seen.items() if wrong}
    assert not failed, "\n".join(f"{name}: {wrong}" for name, wrong in failed.items())
    assert len(seen) + len(without) >= CHECKS[script]


@pytest.mark.parametrize("script", CHECKS)
def test_checks_by_path(hosts: HostPool, script: str) -> None:
    """On the local server."""
    found(script, hosts.get("server"), "path", store=False, bodies=True)


@pytest.mark.parametrize("script", CHECKS)
def test_checks_by_route(hosts: HostPool, script: str) -> None:
    found(script, hosts.get("rolling"), "route", store=False, bodies=False)


def test_responses_that_are_kept(hosts: HostPool) -> None:
    """Behind DJL Serving by the one worker that there is."""
    found(
        "responses_client.py",
        hosts.get("async", {**CHAT, "option.response_store": "true"}),
        "route",
        store=True,
        bodies=False,
    )
