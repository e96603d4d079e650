"""User code on every host: djl_python's formatters, a dialect and a content filter of the user's; its own `handle`.

Each of their forms, and what becomes of mistakes: tests/handler/user_code.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...demo.model import question
from ...kit.djl import hosting, other
from ...kit.hosts.host import Host, client, eventually, model_directory, running
from ...kit.paths import USER_CODE

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.anyio,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

ASKED = question("plain")
ENDLESS = question("endless")


@dataclass
class Place:
    """A running host and its model directory."""

    kind: str
    host: Host
    folder: Path

    def waits(self, name: str) -> bool:
        """Whether user code waits for `release`."""
        return (self.folder / f"{name}.waiting").exists()

    def release(self, name: str) -> None:
        (self.folder / f"{name}.release").touch()

    def reset(self) -> None:
        for pattern in ("*.waiting", "*.release"):
            for file in self.folder.glob(pattern):
                file.unlink()


def place(
    kind: str, demo_model: Path, folder: Path, files: dict[str, str], properties: dict[str, str] | None = None
) -> Iterator[Place]:
    """A host of a model directory with the user's `files`, each the copy of one in custom/."""
    directory = model_directory(demo_model, folder / "model", properties or {})
    for name, source in files.items():
        shutil.copy(USER_CODE / source, directory / name)
    # In the container djl_python is on the path; `lmi serve` takes it from there as well.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(hosting.djl_python_path()), prepend=os.pathsep)
        with running(kind, directory, folder / "log", parrot=True) as host:
            yield Place(kind, host, directory)


@pytest.fixture(scope="module", params=["server", "rolling", "async"])
def new(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The forms of the async handlers, the toy dialect and the content filter."""
    files = {"model.py": "responses.py", "toy.py": "toy.py", "guard.py": "guard.py"}
    properties = {
        "option.output_formatter": "toy:Toy",
        "option.content_filter": "guard:judge",
        # A real engine refuses tools without one, before the filter is asked; the parrot does not.
        "option.tool_call_parser": "hermes",
    }
    yield from place(request.param, demo_model, tmp_path_factory.mktemp("new"), files, properties)


@pytest.fixture(scope="module", params=["rolling", "async"])
def old(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The forms of the rolling-batch handlers, and a handle of the user's."""
    yield from place(
        request.param,
        demo_model,
        tmp_path_factory.mktemp("old"),
        {"model.py": "outputs.py"},
        {"option.entryPoint": "model.py"},
    )


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    for name in ("new", "old"):
        if name in request.fixturenames:
            request.getfixturevalue(name).reset()


def lmi(prompt: str, /, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 100, **parameters}}


# The forms of the async handlers.


async def test_formatters_make_the_payload_and_the_answer(new: Place) -> None:
    async with client(new.host) as http:
        answer = await http.post({"question": ASKED.prompt})
        plain = await http.post(lmi(question("json").prompt))
        chat = await http.post({"messages": [{"role": "user", "content": ASKED.prompt}], "max_tokens": 100})
    assert answer.json() == {"answer": ASKED.answer, "by": "write_answer"}
    # What the formatter returns as it came is the documented answer.
    assert plain.json() == {"generated_text": question("json").answer}
    assert chat.json()["choices"][0]["message"]["content"] == ASKED.answer.upper()
    assert chat.json()["object"] == "chat.completion"


async def test_a_stream_is_given_as_its_records(new: Place) -> None:
    """To `inputs` djl_python gives vLLM's text completion, streamed too."""
    async with client(new.host) as http:
        answer = await http.stream({**lmi(ASKED.prompt), "stream": True})
        chat = await http.stream({"messages": [{"role": "user", "content": ASKED.prompt}], "stream": True})
    assert answer.content_type.startswith("text/event-stream")
    events = [line for line in answer.lines if line]
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == ASKED.answer
    chunks = [json.loads(line.removeprefix("data: ")) for line in chat.lines if line and "[DONE]" not in line]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == ASKED.answer


def executions(place: Place) -> int:
    """How often model.py has been executed."""
    return len((place.folder / "executions").read_text().splitlines())


def by_djl(place: Place) -> bool:
    """Whether djl_python executes it as an entry point and for each kind of formatter, as that of DJL Serving 0.36 does
    (service_loader.load_model_service). We do it once at most."""
    return bool(other.COMMAND) and place.kind != "server"


async def test_model_py_is_executed_once(new: Place) -> None:
    async with client(new.host) as http:
        await asyncio.gather(*(http.post({"question": ASKED.prompt}) for _ in range(4)))
    assert executions(new) == (2 if by_djl(new) else 1)


async def test_what_raises_fails_alone(new: Place) -> None:
    async with client(new.host) as http:
        good = [asyncio.create_task(http.post({"question": ASKED.prompt})) for _ in range(4)]
        before, after = await asyncio.gather(
            http.post({"question": ASKED.prompt, "mode": "raise"}), http.post(lmi("How many legs does a spider have?"))
        )
        for answer in await asyncio.gather(*good):
            assert answer.json()["answer"] == ASKED.answer
    for answer, said in (
        (before, "read_question raised ValueError: no such question"),
        (after, "write_answer raised KeyError: 'legs'"),
    ):
        assert answer.status_code == 424
        assert said in answer.json()["error"]


async def test_a_formatter_that_raises_in_a_stream_ends_it(new: Place) -> None:
    async with client(new.host) as http:
        answer = await http.stream({**lmi(ENDLESS.prompt, max_new_tokens=8), "stream": True})
        after = await http.post({"question": ASKED.prompt})
    *sent, told = [line for line in answer.lines if line and "[DONE]" not in line]
    assert "write_answer raised RuntimeError: cut off" in told
    # If all tokens came while the formatter had no thread yet, its first call was its last.
    assert answer.status == (200 if sent else 424)
    assert after.json()["answer"] == ASKED.answer


async def test_a_slow_function_holds_up_its_own_request_only(new: Place) -> None:
    async with client(new.host) as http:
        waiting = asyncio.create_task(http.post(lmi("What is the capital of France?")))

        async def waits() -> bool:
            return new.waits("output")

        await eventually(waits)
        others = await asyncio.gather(
            http.post({"question": ASKED.prompt}),
            http.post(lmi(question("json").prompt)),
            http.post({"say": ASKED.prompt}),
        )
        assert [answer.status_code for answer in others] == [200] * 3
        assert not waiting.done()
        new.release("output")
        answer = await waiting
    assert (answer.status_code, "Paris" in answer.text) == (200, True)


# The user's own dialect.


async def test_an_own_dialect_is_found_by_the_body_and_by_name(new: Place) -> None:
    async with client(new.host) as http:
        answer = await http.post({"say": ASKED.prompt})
        streamed = await http.stream({"say": ASKED.prompt, "stream": True})
        refused = await http.post({"say": 5})
    assert answer.json() == {"said": ASKED.answer}
    assert answer.headers["x-toy"] == "yes"
    assert "".join(document["piece"] for document in streamed.documents) == ASKED.answer
    assert streamed.documents[-1]["reason"] == "eos"
    assert refused.status_code == 400
    assert "say: expected a string, got 5" in refused.text
    headers = {"x-amzn-sagemaker-custom-attributes": "dialect=toy", "content-type": "application/json"}
    async with httpx.AsyncClient(timeout=60) as plain:
        named = await plain.post(f"{new.host.url}/invocations", json=lmi(ASKED.prompt), headers=headers)
    assert "say: expected a string, got None" in named.text


# The content filter.


async def test_a_flagged_prompt_is_refused(new: Place) -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "an apple"}]}]}
    async with client(new.host) as http:
        by_lmi, by_chat = await asyncio.gather(http.post(lmi("an apple")), http.post(chat))
    for answer, status, field in ((by_lmi, 424, "inputs"), (by_chat, 400, "messages")):
        assert answer.status_code == status
        assert f"{field}: flagged by the content filter: forbidden fruit" in answer.text


async def test_flagged_text_is_cut_off_and_its_generation_ends(new: Place) -> None:
    """The filter lets the demo model count to six, and not to the end of `seven`."""
    chat = {"messages": [{"role": "user", "content": ENDLESS.prompt}], "max_tokens": 1900}
    async with client(new.host) as http:
        whole = (await http.post(chat)).json()
        streamed = await http.stream({**chat, "stream": True})
        by_toy = (await http.post({"say": ENDLESS.prompt, "most": 1900})).json()
        by_lmi = (await http.post(lmi(ENDLESS.prompt, details=True, max_new_tokens=1900))).json()
    accepted = ENDLESS.answer[: ENDLESS.answer.index("seven") + len("seve")]
    choice = whole["choices"][0]
    assert choice["finish_reason"] == "content_filter"
    assert accepted.upper().startswith(choice["message"]["content"])
    assert 0 < whole["usage"]["completion_tokens"] < 100
    chunks = [json.loads(line.removeprefix("data: ")) for line in streamed.lines if line and "[DONE]" not in line]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"][0]["finish_reason"]] == [
        "content_filter"
    ]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert accepted.startswith(text)
    assert accepted.startswith(by_toy["said"])
    assert accepted.startswith(by_lmi["generated_text"])
    assert by_lmi["details"]["finish_reason"] == "content_filter"
    assert by_lmi["details"]["generated_tokens"] == len(by_lmi["details"]["tokens"])


# The forms of the rolling-batch handlers.


async def test_objects_of_djl_python_make_the_request_and_the_answer(old: Place) -> None:
    async with client(old.host) as http:
        whole = await http.post({"question": ASKED.prompt, "asked_by": "me"})
        streamed = await http.stream({"question": ASKED.prompt, "asked_by": "me", "stream": True})
    lines = [json.loads(line) for line in whole.text.splitlines()]
    assert lines == streamed.documents
    assert len(lines) > 5
    assert all(line["by"] == "me" for line in lines)
    assert "".join(line["piece"] for line in lines) == lines[-1]["whole"] == ASKED.answer
    assert lines[-1]["reason"] == "eos_token"
    assert (old.folder / "handled").exists()
    assert executions(old) == (3 if by_djl(old) else 1)
