"""Pydantic AI, over /v1/responses, /v1/chat/completions and /v1/messages.

A prompt that is too long is an exception of its own: what to leave out of the history is the user's to say.
"""

from __future__ import annotations

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import LOOPS, Loop, Played, play
from ..kit.played.scripts import call
from .conftest import Served

APIS = ["responses", "chat", "anthropic"]
READ = call("read_file", path="a.txt")
NUMBER, FINAL = call("final_result", number=42), "Final result processed."
ALL = {
    **LOOPS,
    "by-tool": Loop("Which number?", [READ, NUMBER], "number=42", results=["42\n", FINAL]),
    "retried": Loop(
        "Which number?", [READ, call("final_result", number="many"), NUMBER], "number=42", results=["42\n", FINAL]
    ),
    "native": Loop("Which number?", [READ, '{"number": 42}'], "number=42", results=["42\n"]),
    "search": Loop(
        "What is in a.txt?",
        [call("search_tools", queries=["file"]), READ, "It says 42."],
        "It says 42.",
        given=["read_file", "42"],
        results=["42\n"],
    ),
}


@pytest.fixture(scope="module", params=APIS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen over one API."""
    configuration = example("Pydantic AI", "python", served.url, APIS.index(request.param) + 1)
    name = f"pydantic-ai-{request.param}"
    return play(served.stage, name, tmp_path_factory.mktemp(name), "pydantic_ai_loops.py", configuration, ALL)


@pytest.mark.parametrize("loop", [loop for loop in ALL if loop != "full"])
def test_a_loop(played: Played, loop: str) -> None:
    # A tool that is found is one more in front of the conversation.
    played.check(loop, grows=loop != "search")


def test_a_tool_is_hidden_until_it_is_found(played: Played) -> None:
    first, second, _ = played.heard("search")
    assert ['"name": "read_file"' in one.prompt for one in (first, second)] == [False, True]


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "ModelContextWindowExceededError")
