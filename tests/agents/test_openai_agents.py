"""OpenAI Agents SDK, over /v1/responses and /v1/chat/completions.

Over the second the SDK itself leaves images out of results ("[tool output omitted]"). A prompt that is too long is the
user's to handle: what the SDK has to compact a conversation is a route of OpenAI's own servers.
"""

from __future__ import annotations

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import LOOPS, Played, play
from .conftest import Served

APIS = ["responses", "chat"]


@pytest.fixture(scope="module", params=APIS)
def played(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What was seen over one API."""
    configuration = example("OpenAI Agents SDK", "python", served.url, APIS.index(request.param) + 1)
    name = f"openai-agents-{request.param}"
    return play(served.stage, name, tmp_path_factory.mktemp(name), "openai_agents_loops.py", configuration)


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop not in ("full", "look")])
def test_a_loop(played: Played, loop: str) -> None:
    played.check(loop, failure="An error occurred while running the tool")


def test_an_image_in_a_result(played: Played) -> None:
    if "responses" in played.name:
        played.check("look", failure="An error")
    else:
        assert "[tool output omitted]" in played.heard("look")[-1].last


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "BadRequestError")
