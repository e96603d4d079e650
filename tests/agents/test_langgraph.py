"""LangGraph with LangChain's agent, over /v1/responses, /v1/messages and /v1/chat/completions.

LangChain shows the reasoning of Anthropic's API alone. Of responses it keeps what is carried for it (docs/decisions.md,
"Reasoning that clients carry"), of Chat Completions nothing, so that it is missing in the next prompt.
"""

from __future__ import annotations

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import LOOPS, Loop, Played, play
from ..kit.played.scripts import call
from .conftest import Served

APIS = ["responses", "anthropic", "chat"]
READ = call("read_file", path="a.txt")
ALL = {
    **LOOPS,
    # OpenAI's and Anthropic's own servers would find the tool: here it is among the others.
    "search": Loop("What is in a.txt?", [READ, "It says 42."], "It says 42.", results=["42\n"]),
    "compacted": Loop(
        "What is in a.txt?",
        [READ, "It says 42."],
        "It says 42.",
        results=["42\n"],
        beside={"Context Extraction Assistant": "Much was dropped."},
    ),
}


@pytest.fixture(scope="module", params=APIS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen over one API."""
    configuration = example("LangGraph", "python", served.url, APIS.index(request.param) + 1)
    name = f"langgraph-{request.param}"
    return play(served.stage, name, tmp_path_factory.mktemp(name), "langgraph_loops.py", configuration, ALL)


@pytest.mark.parametrize("loop", [*(loop for loop in LOOPS if loop != "full"), "search"])
def test_a_loop(played: Played, loop: str) -> None:
    keeps = "chat" not in played.name or not ALL[loop].thoughts
    played.check(loop, thoughts="anthropic" in played.name, grows=keeps)


def test_a_full_context_is_told(played: Played) -> None:
    whose = "Anthropic" if "anthropic" in played.name else "OpenAI"
    played.refused("full", f"{whose}ContextOverflowError")


def test_a_history_that_is_too_long_is_compacted(played: Played) -> None:
    """The first request for a summary is refused, the second has what fits."""
    summary, first, second = played.heard("compacted")
    assert summary.said in first.prompt
    assert "drop drop" not in first.prompt
    assert second.prompt.startswith(first.prompt + first.said)
    assert (played.told["compacted"]["answer"], played.told["compacted"]["results"]) == ("It says 42.", ["42\n"])
