"""Scripts: what the model says, turn by turn, to whoever's text bears the script's mark.

    stage = Stage(folder)
    asked = stage.script("look", [call("read_file", path="a.txt"), "It says 42."])
    (an agent is asked "What is in a.txt? [[look]]": asked is that mark)
    stage.heard("look")  --> the prompts that bore it, and what was said to each

The turn is the number of the model's own messages after the mark, so that a request that is sent again gets the same
answer. What an agent asks beside its loop (a title, a summary) is told by words of its system prompt or of its last
message.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Heard", "Stage", "call", "grown", "thinking"]

MARK = re.compile(r"\[\[([a-z0-9-]+)\]\]")
START, END = "<|im_start|>", "<|im_end|>"
HEARD = "heard.jsonl"
OTHERWISE = "Noted."
"""To a prompt without a mark."""
OVER = "The script is over."
"""To a turn that the script does not have: a loop that should have ended goes on."""


def call(name: str, **arguments: Any) -> str:
    """A call of a tool, as Qwen3 writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def thinking(thought: str, answer: str = "") -> str:
    """Reasoning, and what is said after it, as Qwen3 writes them."""
    return f"<think>\n{thought}\n</think>\n\n{answer}"


@dataclass(frozen=True)
class Heard:
    """A prompt as text, special tokens and all, and what was said to it."""

    mark: str
    prompt: str
    said: str

    @property
    def last(self) -> str:
        """The last message of the prompt, without its role."""
        return _messages(self.prompt)[-1][1]


def grown(heard: Sequence[Heard], count: int) -> Sequence[Heard]:
    """Themselves, so many; each of the prompts goes on after what was said to the one before."""
    assert len(heard) == count
    for one, later in itertools.pairwise(heard):
        assert later.prompt.startswith(one.prompt + one.said), f"{one}\n{later}"
    return heard


class Stage:
    """A folder that the tests write scripts to, and the model what it has heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, mark: str, turns: Sequence[str], beside: Mapping[str, str] | None = None) -> str:
        """Writes a script; returns the mark as it stands in a user's text.

        beside: by words of the system prompt or the last message, what is said to a prompt that has them, whatever
        the turn.
        """
        (self.folder / f"{mark}.json").write_text(json.dumps({"turns": list(turns), "beside": dict(beside or {})}))
        return f"[[{mark}]]"

    def heard(self, mark: str) -> list[Heard]:
        """What bore a mark, in order. None of it was beyond the script's end."""
        log = self.folder / HEARD
        rows = [Heard(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
        found = [row for row in rows if row.mark == mark]
        assert found, f"no prompt bore the mark {mark}; others: {sorted({row.mark for row in rows})}"
        assert not [row for row in found if row.said == OVER], f"the loop went on after the script's end: {found[-1]}"
        return found

    def answer(self, prompt: str) -> Heard:
        """What the model says to a prompt; it is noted down."""
        mark, said = self._said(prompt)
        # A template that is told not to think has closed the thought already.
        if prompt.endswith("</think>\n\n"):
            said = said.rpartition("</think>\n\n")[2]
        heard = Heard(mark, prompt, said)
        with (self.folder / HEARD).open("a") as log:
            log.write(json.dumps(vars(heard)) + "\n")
        return heard

    def _said(self, prompt: str) -> tuple[str, str]:
        messages = _messages(prompt)
        for at in reversed(range(len(messages))):
            role, text = messages[at]
            marks = MARK.findall(text) if role == "user" else []
            if marks and (self.folder / f"{marks[-1]}.json").exists():
                script = json.loads((self.folder / f"{marks[-1]}.json").read_text())
                return marks[-1], _line(script, messages, at)
        return "", OTHERWISE


def _line(script: dict[str, Any], messages: list[tuple[str, str]], at: int) -> str:
    """What a script says to a prompt whose message `at` bears its mark."""
    beside: dict[str, str] = script["beside"]
    outer = [text for role, text in messages if role == "system"] + [messages[-1][1]]
    for words, said in beside.items():
        if any(words in text for text in outer):
            return said
    roles = [role for role, _ in messages[at:]]
    # Some clients send a text and the calls after it as two messages.
    turn = sum(role == "assistant" != before for before, role in itertools.pairwise(roles))
    turns: list[str] = script["turns"]
    return turns[turn] if turn < len(turns) else OVER


def _messages(prompt: str) -> list[tuple[str, str]]:
    """Role and text of each message of a prompt in ChatML, without the one that is to be generated."""
    pieces = prompt.split(START)[1:-1]
    cut = [piece.rpartition(END)[0].partition("\n") for piece in pieces]
    return [(role, text) for role, _, text in cut]
