"""aider, over /v1/chat/completions and /v1/messages.

It calls no tools and has no MCP: what it does are edits, written as text. What fails there, an edit that does not fit,
a linter, a command that tests, comes back to the model as a user's message. It sends no reasoning back and puts its
messages in a new order with each turn, so that prompts need not grow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..kit.agents.documented import example
from ..kit.agents.model import CONTEXT
from ..kit.agents.programs import Ran, python_of, run
from ..kit.models.pictures import png
from ..kit.played.scripts import thinking
from .conftest import Served

DIALECTS = {"openai": 1, "anthropic": 2}
"""By the provider's name, which of the page's configurations speaks to it."""
QUIET = ("--no-analytics", "--no-check-update", "--no-show-release-notes", "--no-pretty", "--yes-always")


class Aider:
    """A home with docs/agents.md's configuration, and a folder to work in."""

    def __init__(self, folder: Path, url: str, dialect: str = "openai") -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        self.home.mkdir()
        (self.home / ".aider.conf.yml").write_text(example("aider", "yaml", url, DIALECTS[dialect]))
        metadata = example("aider", "json", url).replace("openai", dialect)
        (self.home / ".aider.model.metadata.json").write_text(metadata)

    def run(self, message: str, *words: str, git: bool = False) -> Ran:
        """`aider --message`, which says yes to whatever it asks."""
        options = (*QUIET, *(() if git else ("--no-git",)), "--message", message)
        aider = python_of("agents-older").with_name("aider")
        return run([aider, *options, *words], self.home, within=self.work).well()


def edit(path: str, before: str, after: str) -> str:
    """A change of a file in aider's format `diff`."""
    return f"{path}\n```\n<<<<<<< SEARCH\n{before}\n=======\n{after}\n>>>>>>> REPLACE\n```"


def whole(path: str, text: str) -> str:
    """A file in aider's format `whole`."""
    return f"{path}\n```\n{text}\n```"


@pytest.mark.parametrize(("dialect", "options"), [("openai", ()), ("anthropic", ("--no-stream",))])
def test_an_edit_after_reasoning(served: Served, tmp_path: Path, dialect: str, options: tuple[str, ...]) -> None:
    aider = Aider(tmp_path, served.url, dialect)
    (aider.work / "a.py").write_text("answer = 41\n")
    name = f"aider-edit-{dialect}"
    said = thinking("One more.", f"It is 42.\n\n{edit('a.py', 'answer = 41', 'answer = 42')}")
    ran = aider.run(f"Mend it. {served.stage.script(name, [said])}", *options, "a.py")
    assert (aider.work / "a.py").read_text() == "answer = 42\n"
    assert "Applied edit to a.py" in ran.out
    assert ran.out.index("THINKING") < ran.out.index("One more.") < ran.out.index("ANSWER") < ran.out.index("It is 42.")
    (heard,) = served.stage.heard(name)
    assert "answer = 41" in heard.prompt


def test_several_files_at_once_and_a_commit(served: Served, tmp_path: Path) -> None:
    """Format `whole`; the message of the commit is another request, which is not streamed."""
    aider = Aider(tmp_path, served.url, "anthropic")
    for words in (["init"], ["config", "user.name", "me"], ["config", "user.email", "me@localhost"]):
        subprocess.run(["git", *words], cwd=aider.work, check=True, capture_output=True)
    files = {"a.txt": "one", "b.txt": "two"}
    mark = served.stage.script(
        "aider-whole",
        ["\n\n".join(whole(name, text) for name, text in files.items())],
        {"one-line Git commit messages": thinking("Short.", "feat: Count to two")},
    )
    aider.run(f"Count. {mark}", "--edit-format", "whole", *files, git=True)
    assert {name: (aider.work / name).read_text() for name in files} == {
        name: f"{text}\n" for name, text in files.items()
    }
    log = subprocess.run(["git", "log", "--format=%s"], cwd=aider.work, check=True, capture_output=True, text=True)
    assert log.stdout.splitlines()[0] == "feat: Count to two"
    _, commit = served.stage.heard("aider-whole")
    assert "+one" in commit.last
    assert "+two" in commit.last


def test_edits_that_fail(served: Served, tmp_path: Path) -> None:
    """One that does not fit, one that is no Python, one that a command tells to be wrong; the fourth is right."""
    aider = Aider(tmp_path, served.url)
    (aider.work / "a.py").write_text("answer = 41\n")
    (aider.work / "check.py").write_text("import a\nassert a.answer == 42, a.answer\n")
    mark = served.stage.script(
        "aider-errors",
        [edit("a.py", "answer = 40", "answer = 42")],
        {
            "failed to exactly match": edit("a.py", "answer = 41", "answer = (42"),
            "Fix any errors below": edit("a.py", "answer = (42", "answer = 43"),
            "I ran this command": edit("a.py", "answer = 43", "answer = 42"),
        },
    )
    tested = ("--auto-test", "--test-cmd", f"{sys.executable} check.py")
    ran = aider.run(f"Mend it. {mark}", *tested, "a.py")
    assert (aider.work / "a.py").read_text() == "answer = 42\n"
    assert ran.out.count("Applied edit to a.py") == 3
    _, unfit, no_python, wrong = served.stage.heard("aider-errors")
    assert "answer = 40" in unfit.last
    assert "SyntaxError" in no_python.last
    assert "AssertionError: 43" in wrong.last


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image(served: Served, tmp_path: Path, dialect: str) -> None:
    aider = Aider(tmp_path, served.url, dialect)
    (aider.work / "red.png").write_bytes(png(64, 64))
    name = f"aider-image-{dialect}"
    ran = aider.run(f"Which color? {served.stage.script(name, ['It is red.'])}", "--no-stream", "red.png")
    assert "It is red." in ran.out
    (heard,) = served.stage.heard(name)
    assert "<|image_pad|>" in heard.prompt


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_full_context(served: Served, tmp_path: Path, dialect: str) -> None:
    """aider counts for itself and tries nevertheless; it tells what the server has refused, and asks once."""
    aider = Aider(tmp_path, served.url, dialect)
    (aider.work / "a.txt").write_text("".join(f"{number}\n" for number in range(CONTEXT // 4)))
    ran = aider.run(f"What is in it? {served.stage.script('aider-full', ['Never said.'])}", "a.txt")
    assert "has hit a token limit!" in ran.out
    assert "possibly exhausted context window!" in ran.out
    assert "Never said." not in ran.out


def test_an_earlier_conversation(served: Served, tmp_path: Path) -> None:
    """Once as it was; once in few words, which the model is asked for."""
    aider = Aider(tmp_path, served.url)
    aider.run(f"Which number? {served.stage.script('aider-first', ['It is 42.'])}")
    summary = {"*Briefly* summarize": thinking("Short.", "I asked you for a number, and you said 42.")}
    second = served.stage.script("aider-resumed", ["As I said, 42."], summary)
    ran = aider.run(f"Once more? {second}", "--restore-chat-history")
    assert "As I said, 42." in ran.out
    (resumed,) = served.stage.heard("aider-resumed")
    assert "Which number?" in resumed.prompt
    assert "It is 42." in resumed.prompt
    short = ("--restore-chat-history", "--max-chat-history-tokens", "8")
    aider.run(f"And now? {served.stage.script('aider-short', ['Still 42.'])}", *short)
    _, asked_for_few_words = served.stage.heard("aider-resumed")
    assert "It is 42." in asked_for_few_words.last
    (shortened,) = served.stage.heard("aider-short")
    assert "you said 42." in shortened.prompt
    assert "Which number?" not in shortened.prompt
