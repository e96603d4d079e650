"""`lmi chat` as people and programs use it: at a terminal, by a pipe, with one question."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ....demo.model import question
from ....kit.hosts.host import Server, free_port, model_directory, with_parrot
from ....kit.installed import LMI
from ....kit.typed import CTRL_C, CTRL_D, ENTER, Typed

# Its server needs what reads a tokenizer.
pytestmark = [pytest.mark.once, pytest.mark.engine]

PLAIN, OTHER = question("plain"), question("unicode")
ENDLESS = question("endless")
KEY = "a key of the test's"


@pytest.fixture(scope="module")
def url(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that knows the demo model's answers, and wants a key."""
    folder = tmp_path_factory.mktemp("chat")
    directory = model_directory(demo_model, folder / "model", {})
    server = Server(directory, folder / "log", environment={**with_parrot(), "LMI_API_KEY": KEY})
    yield server.url
    server.stop()


def chat(url: str, *arguments: str, text: str = "", key: str | None = KEY) -> tuple[int, str, str]:
    """Status, standard output and error of `lmi chat`, with `text` by a pipe."""
    environment = {name: value for name, value in os.environ.items() if name != "LMI_API_KEY"}
    done = subprocess.run(
        [*LMI, "chat", url, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False,
        env=environment | ({"LMI_API_KEY": key} if key else {}),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_one_question(url: str) -> None:
    """The answer and nothing else, wherever the question stands."""
    assert chat(url, PLAIN.prompt) == (0, f"{PLAIN.answer}\n", "")
    assert chat(f"{url}/v1", "--system", "You are a helpful assistant.", PLAIN.prompt)[:2] == (0, f"{PLAIN.answer}\n")


def test_lines_of_a_pipe(url: str) -> None:
    text = f"{PLAIN.prompt}\n\n{OTHER.prompt}"
    assert chat(url, text=text) == (0, f"{PLAIN.answer}\n{OTHER.answer}\n", "")


def test_what_fails_is_status_1(url: str) -> None:
    status, out, err = chat(url, PLAIN.prompt, key=None)
    assert (status, out) == (1, "")
    assert err.startswith("lmi: ")
    assert err.endswith(" (HTTP status 401)\n")
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert chat(nowhere, text="Hi\n") == (1, "", f"lmi: {nowhere}: nobody listens there\n")


def test_a_person(url: str) -> None:
    """Answers with how fast they came; Ctrl-C ends the one that is coming, or drops a line; lines have a history."""
    with Typed([*LMI, "chat", url], {"LMI_API_KEY": KEY}) as talk:
        talk.expect("Ctrl-D ends")
        talk.expect("> ")
        talk.keys(PLAIN.prompt + ENTER)
        talk.expect(PLAIN.answer)
        talk.expect("tokens/s]")
        talk.expect("> ")
        talk.keys(ENDLESS.prompt + ENTER)
        talk.expect("one two three four five six seven eight nine ten\none two")
        talk.keys(CTRL_C)
        talk.expect("> ")
        talk.keys("What I did not mean")
        talk.expect("What I did not mean")
        talk.interrupt("\n> ")
        # The line before the last one.
        talk.keys("\x1b[A\x1b[A" + ENTER)
        talk.expect(PLAIN.answer)
        talk.expect("> ")
        talk.keys(CTRL_D)
        assert talk.end() == 0
    assert "Traceback" not in talk.text


def test_ctrl_c_ends_the_one_answer(url: str) -> None:
    with Typed([*LMI, "chat", url, ENDLESS.prompt], {"LMI_API_KEY": KEY}) as talk:
        talk.expect("one two three")
        talk.keys(CTRL_C)
        assert talk.end() == 130
    assert "Traceback" not in talk.text


def test_reasoning_and_calls_of_a_model(demo_model: Path, tmp_path: Path) -> None:
    """A model directory: what is thought and called is shown; a person says what a function returns."""
    weather, thinks = question("tool_call"), question("reasoning")
    tools = tmp_path / "tools.json"
    assert weather.tools is not None
    tools.write_text(json.dumps(list(weather.tools)))
    options = ("--set", "tool_call_parser=hermes", "--set", "reasoning_parser=deepseek_r1")
    with Typed([*LMI, "chat", str(demo_model), "--tools", str(tools), *options]) as talk:
        talk.expect("loading the weights", 120)
        talk.expect("> ", 120)
        talk.keys(weather.prompt + ENTER)
        talk.expect('(calls) get_weather({"city": "Paris"})')
        talk.expect("get_weather returns> ")
        talk.keys(weather.tool_results[0] + ENTER)
        talk.expect(str(weather.follow_up))
        talk.expect("> ")
        talk.keys(CTRL_D)
        assert talk.end() == 0
    with Typed([*LMI, "chat", str(demo_model), *options, thinks.prompt]) as talk:
        talk.expect("(thinks) 17 times 3 is 10 times 3", 120)
        talk.expect("\n17 times 3 is 51.\n")
        assert talk.end() == 0
