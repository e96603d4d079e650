"""The AI SDK by Vercel, with its providers for chat, for /v1/responses and for /v1/messages, in scripts/ai_sdk.mjs.

What the providers cannot do: `chat` of @ai-sdk/openai knows no reasoning, neither shown nor sent back; both providers
for chat write a picture in a result as JSON with base64; that for responses shows summaries of reasoning, which are
none here, and sends the reasoning back. The SDK does not compact: a context that is full is the program's to see.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from ..kit.agents.documented import example
from ..kit.agents.model import CONTEXT
from ..kit.agents.programs import mcp_server, node_modules, run
from ..kit.models.pictures import png
from ..kit.paths import AGENT_SCRIPTS
from ..kit.played.scripts import call, thinking
from .conftest import Served

PICTURE = "<|vision_start|>"
A, B = call("read_file", path="a.txt"), call("read_file", path="b.txt")


@dataclass(frozen=True)
class Loop:
    """What the model says, what the program's user sees of it, and what the model is given at the last turn."""

    turns: Sequence[str]
    thoughts: Sequence[str] = ()
    results: Sequence[str] = ()
    """Begins of the results' texts, in any order: the SDK runs several calls at once."""
    failed: Sequence[str] = ()
    given: Sequence[str] = ()
    """In this order."""
    pictured: bool = False
    """Whether the user shows a picture."""
    whole: bool = False
    after: str = ""
    formed: Mapping[str, str] | None = None
    """What the user gets of an answer that he wants by a schema."""

    @property
    def answer(self) -> str:
        return self.turns[-1].rpartition("</think>")[2].strip()


LOOPS = {
    "tool": Loop(
        [thinking("A file.", A), thinking("I see.", "It says 42.")],
        thoughts=["A file.", "I see."],
        results=["42\n"],
        given=["<tool_response>", "42", "</tool_response>"],
    ),
    "whole": Loop(
        [thinking("A file.", A), thinking("I see.", "It says 42.")],
        thoughts=["A file.", "I see."],
        results=["42\n"],
        given=["<tool_response>", "42", "</tool_response>"],
        whole=True,
    ),
    "several": Loop(
        [f"Both.\n{A}\n{B}", "42 and 43."],
        results=["42\n", "43\n"],
        given=["Both.", "<tool_response>", "42", "<tool_response>", "43"],
    ),
    "error": Loop(
        [thinking("A file.", call("read_file", path="none.txt")), thinking("It is gone.", A), "It says 42."],
        thoughts=["A file.", "It is gone."],
        results=["42\n"],
        failed=["Error: ENOENT"],
        given=["<tool_response>", "ENOENT", "<tool_response>", "42"],
    ),
    "picture": Loop([thinking("Colors.", "Red.")], thoughts=["Colors."], given=[PICTURE], pictured=True),
    "formed": Loop(
        [thinking("Colors.", '{"color": "red"}')],
        thoughts=["Colors."],
        given=[PICTURE],
        pictured=True,
        formed={"color": "red"},
    ),
    "look": Loop([call("look"), "Red."], results=["seen"], given=["<tool_response>", "The view:", PICTURE]),
    "mcp": Loop(
        [call("weather", city="Bern"), call("weather", city="Rome"), call("photo", city="Bern"), "It snows."],
        results=["It snows in Bern.", "There is no city Rome.", "image/png"],
        given=["It snows in Bern.", "There is no city Rome.", "<tool_response>", PICTURE],
    ),
    "again": Loop(
        [thinking("Once more.", "42, as I said.")],
        thoughts=["Once more."],
        given=["[[", "<tool_response>", "42", "It says 42.", "[["],
        after="tool",
    ),
}
FULL = "full"


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
def seen(
    served: Served, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[str, Mapping[str, Any]]:
    """A provider, and what a user sees of each loop with it."""
    folder = tmp_path_factory.mktemp("sdk")
    (folder / "node_modules").symlink_to(node_modules())
    (folder / "models.mjs").write_text(example("AI SDK", "js", served.url))
    shutil.copy(AGENT_SCRIPTS / "ai_sdk.mjs", folder)
    for file, text in {"a.txt": "42\n", "b.txt": "43\n", "big.txt": "more " * CONTEXT}.items():
        (folder / file).write_text(text)
    (folder / "picture.png").write_bytes(png(56, 56))
    command, *args = mcp_server("weather", "photo")
    server = {"command": command, "args": args}
    (folder / "mcp.json").write_text(json.dumps(server))
    loops = {**LOOPS, FULL: Loop([call("read_file", path="big.txt")])}
    asked = [
        {
            "name": name,
            "prompt": f"Go on. {served.stage.script(f'sdk-{request.param}-{name}', loop.turns)}",
            **{key: getattr(loop, key) for key in ("whole", "pictured", "after", "formed")},
        }
        for name, loop in loops.items()
    ]
    (folder / "loops.json").write_text(json.dumps(asked))
    ran = run(["node", "ai_sdk.mjs", request.param], folder / "home", within=folder).well()
    return request.param, json.loads(ran.out)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop(served: Served, seen: tuple[str, Mapping[str, Any]], name: str) -> None:
    loop, (provider, outcomes) = LOOPS[name], seen
    can, outcome = PROVIDERS[provider], outcomes[name]
    assert "error" not in outcome
    assert outcome["unsupported"] == []
    assert outcome["object"] == loop.formed
    assert outcome["text"] == loop.answer
    assert [thought for thought in outcome["thoughts"] if thought] == [*(loop.thoughts if can.shows else ())]
    results = [one if isinstance(one, str) else json.dumps(one) for one in outcome["results"]]
    assert len(results) == len(loop.results)
    assert all(any(text in one for one in results) for text in loop.results)
    assert len(outcome["failed"]) == len(loop.failed)
    assert all(one.startswith(text) for one, text in zip(outcome["failed"], loop.failed, strict=True))
    assert outcome["finishes"] == ["tool-calls"] * (len(loop.turns) - 1) + ["stop"]
    assert all(outcome["tokens"])

    heard = served.stage.heard(f"sdk-{provider}-{name}")
    assert len(heard) == len(loop.turns)
    if can.keeps or not loop.thoughts:
        assert all(later.prompt.startswith(before.prompt + before.said) for before, later in pairwise(heard))
    text = heard[-1].prompt.rpartition("</tools>")[2]
    for words in loop.given:
        if words != PICTURE or can.pictures or loop.pictured:
            assert words in text
            text = text.partition(words)[2]


def test_a_full_context_is_told(served: Served, seen: tuple[str, Mapping[str, Any]]) -> None:
    provider, outcomes = seen
    assert len(served.stage.heard(f"sdk-{provider}-{FULL}")) == 1
    error = outcomes[FULL]["error"]
    assert (error["name"], error["statusCode"], error["isRetryable"]) == ("AI_APICallError", 400, False)
    assert "prompt is too long" in error["message"]
    assert f"{CONTEXT} tokens" in error["message"]
