"""What the model that scripts speak for says to a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from .scripts import OTHERWISE, OVER, Heard, Stage, call, thinking


def prompt(*messages: tuple[str, str], begun: str = "") -> str:
    """In ChatML, up to what the model is to say."""
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
    return f"<s>{said}<|im_start|>assistant\n{begun}"


LOOK = call("look", path="a.txt")
SYSTEM = ("system", "You are an agent.")
ASKED = ("user", "What is it? [[look]]")
RESULT = ("user", "<tool_response>\n42\n</tool_response>")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    beside = {"a title": "Looking", "Sum up": "It was looked for."}
    assert stage.script("look", [thinking("Hm.", LOOK), thinking("So.", "It is 42.")], beside) == "[[look]]"
    stage.script("again", ["Once more."])
    return stage


@pytest.mark.parametrize(
    ("given", "mark", "said"),
    [
        (prompt(SYSTEM, ASKED), "look", thinking("Hm.", LOOK)),
        (prompt(SYSTEM, ASKED, ("assistant", LOOK), RESULT), "look", thinking("So.", "It is 42.")),
        # A turn is sent as two messages, or was another's.
        (prompt(ASKED, ("assistant", "Well."), ("assistant", LOOK), RESULT), "look", thinking("So.", "It is 42.")),
        (prompt(("user", "Hi."), ("assistant", "Hello."), ASKED), "look", thinking("Hm.", LOOK)),
        # The last mark counts, if it has a script and is the user's.
        (prompt(ASKED, ("assistant", "42."), ("user", "And now? [[again]]")), "again", "Once more."),
        (prompt(("user", "[[again]] [[look]]")), "look", thinking("Hm.", LOOK)),
        (prompt(ASKED, ("assistant", "[[again]]"), ("user", "[[none]]")), "look", thinking("So.", "It is 42.")),
        (prompt(("system", "[[look]]"), ("user", "Hi.")), "", OTHERWISE),
        (prompt(("user", "Hi.")), "", OTHERWISE),
        ("no messages", "", OTHERWISE),
        (prompt(ASKED, ("assistant", LOOK), RESULT, ("assistant", "42."), ("user", "Go on.")), "look", OVER),
        # Beside the loop: by the system's words, or those of the last message.
        (prompt(("system", "Find a title."), ASKED), "look", "Looking"),
        (prompt(SYSTEM, ASKED, ("assistant", LOOK), RESULT, ("user", "Sum up.")), "look", "It was looked for."),
        (prompt(SYSTEM, ("user", "Sum up."), ASKED), "look", thinking("Hm.", LOOK)),
        # A model that is told not to think.
        (prompt(SYSTEM, ASKED, begun="<think>\n\n</think>\n\n"), "look", LOOK),
    ],
)
def test_what_is_said(stage: Stage, given: str, mark: str, said: str) -> None:
    assert stage.answer(given) == Heard(mark, given, said)


def test_what_was_heard(stage: Stage) -> None:
    prompts = [prompt(ASKED), prompt(("user", "Hi.")), prompt(ASKED, ("assistant", LOOK), RESULT)]
    for one in prompts:
        stage.answer(one)
    heard = Stage(stage.folder).heard("look")
    assert [(one.prompt, one.last) for one in heard] == [(prompts[0], ASKED[1]), (prompts[2], RESULT[1])]
    with pytest.raises(AssertionError, match="no prompt bore the mark again"):
        stage.heard("again")
    stage.answer(prompt(ASKED, ("assistant", "1"), RESULT, ("assistant", "2"), RESULT))
    with pytest.raises(AssertionError, match="after the script's end"):
        stage.heard("look")
