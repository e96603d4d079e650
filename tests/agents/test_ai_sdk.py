"""The AI SDK by Vercel, with its providers for chat, for /v1/responses and for /v1/messages, in scripts/ai_sdk.mjs.

What the providers cannot do: `chat` of @ai-sdk/openai knows no reasoning, neither shown nor sent back; both providers
for chat write a picture in a result as JSON with base64; that for responses shows summaries of reasoning, which are
none here, and sends the reasoning back. The SDK does not compact: a context that is full is the program's to see.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from ..kit.agents.documented import example
from ..kit.agents.loops import IMAGE, LOOPS, Loop, Played, play
from ..kit.agents.programs import mcp_server
from ..kit.played.scripts import call, thinking
from .conftest import Served

WEATHER = ["It snows in Bern.", "There is no city Rome."]
ALL = {
    **LOOPS,
    "formed": replace(LOOPS["picture"], turns=[thinking("Colours.", '{"color":"red"}')], answer='{"color":"red"}'),
    "look": replace(LOOPS["look"], given=["<tool_response>", "The view:", IMAGE], results=["seen"]),
    "mcp": Loop(
        "How is the weather?",
        [call("weather", city="Bern"), call("weather", city="Rome"), call("photo", city="Bern"), "It snows."],
        "It snows.",
        given=[*WEATHER, "<tool_response>", IMAGE],
        results=[*WEATHER, "image/png"],
    ),
}


@dataclass(frozen=True)
class Provider:
    """What one of docs/agents.md's models can do."""

    shows: bool = True
    """Whether it shows reasoning."""
    keeps: bool = True
    """Whether it sends reasoning back."""
    pictures: bool = True
    """Whether results may have pictures."""


PROVIDERS = {
    "compatible": Provider(pictures=False),
    "messages": Provider(),
    "responses": Provider(shows=False),
    "chat": Provider(shows=False, keeps=False, pictures=False),
}


@pytest.fixture(scope="module", params=PROVIDERS)
def played(served: Served, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Played:
    """What was seen with one provider."""
    provider: str = request.param
    loops = dict(ALL)
    if not PROVIDERS[provider].pictures:
        for loop in ("look", "mcp"):
            loops[loop] = replace(ALL[loop], given=[given for given in ALL[loop].given if given != IMAGE])
    return play(
        served.stage, f"sdk-{provider}", tmp_path_factory.mktemp("sdk"), "ai_sdk.mjs",
        example("AI SDK", "js", served.url), loops, MODEL=provider, MCP=json.dumps(mcp_server("weather", "photo")),
    )  # fmt: skip


@pytest.mark.parametrize("loop", [loop for loop in ALL if loop != "full"])
def test_a_loop(played: Played, loop: str) -> None:
    can, plan, told = PROVIDERS[played.name.removeprefix("sdk-")], ALL[loop], played.told[loop]
    played.check(loop, thoughts=can.shows, grows=can.keeps or not plan.thoughts, failure="ENOENT")
    assert told["unsupported"] == []
    assert told["object"] == ({"color": "red"} if loop == "formed" else None)
    assert told["finishes"] == ["tool-calls"] * (len(plan.turns) - 1) + ["stop"]
    assert all(told["tokens"])


def test_a_full_context_is_told(played: Played) -> None:
    played.refused("full", "AI_APICallError")
    told = played.told["full"]
    assert (told["statusCode"], told["isRetryable"]) == (400, False)
