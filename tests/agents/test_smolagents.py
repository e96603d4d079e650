"""smolagents over /v1/chat/completions: ToolCallingAgent, which must call a tool each time, and CodeAgent.

smolagents leaves reasoning out of what it reads, and writes calls and results into the conversation as texts of its
own: the first agent's calls are not as the model wrote them, and no prompt goes on after them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import LOOPS, Loop, Played, play
from ..kit.played.scripts import call
from .conftest import Served

CALL = re.compile(r"<tool_call>\n(.*)\n</tool_call>")


def of_tools(loop: Loop) -> Loop:
    """A loop that ends with a call, of the answer."""
    *turns, last = loop.turns
    # Several calls and their results are in the order of their ids, which are random.
    several = loop is LOOPS["several"]
    given = ["Observation:"] if several else [text for text in loop.given if "tool_response" not in text]
    results = ["Here."] if loop is LOOPS["look"] else [result.strip() for result in loop.results]
    final = call("final_answer", answer=loop.answer)
    return replace(loop, turns=[*turns, last.replace(loop.answer, final)], given=given, results=results)


def of_code(loop: Loop) -> Loop:
    """A loop in which the calls are code."""

    def code(turn: str) -> str:
        calls = [json.loads(found) for found in CALL.findall(turn)]
        lines = [
            f"{name}({', '.join(f'{key}={value!r}' for key, value in one['arguments'].items())})"
            for one in calls
            for name in [one["name"]]
        ]
        lines = [line if line.startswith("final_answer") else f"print({line})" for line in lines]
        return "\n".join([CALL.sub("", turn).strip(), "<code>", *lines, "</code>"]).strip()

    plan = of_tools(loop)
    return replace(plan, turns=[code(turn) for turn in plan.turns])


KINDS = {"tools": of_tools, "code": of_code}


@pytest.fixture(scope="module", params=KINDS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen of one kind of agent."""
    name = f"smolagents-{request.param}"
    loops = {loop: KINDS[request.param](plan) for loop, plan in LOOPS.items()}
    configuration = example("smolagents", "python", served.url)
    folder = tmp_path_factory.mktemp(name)
    script = "smolagents_loops.py"
    return play(
        served.stage, name, folder, script, configuration, loops, environment="agents-older", KIND=request.param
    )


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "full"])
def test_a_loop(played: Played, loop: str) -> None:
    played.check(loop, thoughts=False, grows="code" in played.name and not LOOPS[loop].thoughts)


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "AgentGenerationError")
