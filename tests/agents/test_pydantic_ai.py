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
STRUCTURED = {
    "by-tool": Loop("Which number?", [READ, call("final_result", number=42)], "number=42", results=["42\n", "Final result processed."]),
    "native": Loop("Which number?", [READ, '{"number": 42}'], "number=42", results=["42\n"]),
    "again-by-tool": Loop(
        "Which number?",
        [READ, call("final_result", number="many"), call("final_result", number=42)], "number=42", results=["42\n", "Final result processed."]
    ),
}  # fmt: skip
ALL = {**LOOPS, **STRUCTURED}


@pytest.fixture(scope="module", params=APIS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen over one API."""
    configuration = example("Pydantic AI", "python", served.url, APIS.index(request.param) + 1)
    name = f"pydantic-ai-{request.param}"
    return play(served.stage, name, tmp_path_factory.mktemp(name), "pydantic_ai_loops.py", configuration, ALL)


@pytest.mark.parametrize("loop", [loop for loop in ALL if loop != "full"])
def test_a_loop(played: Played, loop: str) -> None:
    played.check(loop)


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "ModelContextWindowExceededError")
