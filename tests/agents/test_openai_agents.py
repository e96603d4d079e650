"""OpenAI Agents SDK, over /v1/responses and /v1/chat/completions.

Over the second the SDK itself leaves images out of results ("[tool output omitted]"). A prompt that is too long is the
user's to handle: what the SDK has to compact a conversation is a route of OpenAI's own servers.
"""

from __future__ import annotations

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import LOOPS, Loop, Played, play
from ..kit.played.scripts import call
from .conftest import Served

APIS = ["responses", "chat"]
FAILURE = "An error occurred while running the tool"
ALL = {
    **LOOPS,
    "structured": Loop(
        "Which number?", [call("read_file", path="a.txt"), '{"number": 42}'], "Number(number=42)", results=["42\n"]
    ),
    "search": Loop(
        "What is in a.txt?", [call("files__read_file", path="a.txt"), "It says 42."], "It says 42.", results=["42\n"]
    ),
}


@pytest.fixture(scope="module", params=APIS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen over one API."""
    configuration = example("OpenAI Agents SDK", "python", served.url, APIS.index(request.param) + 1)
    name = f"openai-agents-{request.param}"
    return play(served.stage, name, tmp_path_factory.mktemp(name), "openai_agents_loops.py", configuration, ALL)


@pytest.mark.parametrize("loop", [loop for loop in ALL if loop not in ("full", "look", "search")])
def test_a_loop(played: Played, loop: str) -> None:
    played.check(loop, failure=FAILURE)


def test_what_only_responses_have(played: Played) -> None:
    if played.name.endswith("chat"):
        assert "[tool output omitted]" in played.heard("look")[-1].last
        assert "only supported with OpenAI Responses models" in played.told["search"]["message"]
    else:
        played.check("look", failure=FAILURE)
        played.check("search", failure=FAILURE)


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "BadRequestError")
