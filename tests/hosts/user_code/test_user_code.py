"""User code on every host: djl_python's formatters in all forms, an own dialect, a content filter."""

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
from ...kit.hosts.host import Host, Streamed, client, eventually, model_directory, start
from ...kit.paths import USER_CODE

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.anyio,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

KINDS = ("server", "rolling", "async")
ASKED = question("plain")
FRANCE, SPIDER, HAMLET = "What is the capital of France?", "How many legs does a spider have?", "Who wrote Hamlet?"
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
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(hosting.djl_python_path()))))
    try:
        host = start(kind, directory, folder / "log", parrot=True)
    finally:
        os.environ["PYTHONPATH"] = before
    yield Place(kind, host, directory)
    host.stop()


@pytest.fixture(scope="module", params=KINDS)
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


@pytest.fixture(scope="module", params=KINDS)
def old(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The forms of the rolling-batch handlers, and a handle of the user's."""
    yield from place(
        request.param,
        demo_model,
        tmp_path_factory.mktemp("old"),
        {"model.py": "outputs.py"},
        {"option.entryPoint": "model.py"},
    )


@pytest.fixture(scope="module", params=["rolling", "async"])
def oldest(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from place(
        request.param,
        demo_model,
        tmp_path_factory.mktemp("oldest"),
        {"model.py": "oldest.py"},
        {"option.entryPoint": "model.py"},
    )


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    for name in ("new", "old", "oldest"):
        if name in request.fixturenames:
            request.getfixturevalue(name).reset()


def lmi(prompt: str, /, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 100, **parameters}}


def failed(answer: httpx.Response, *said: str) -> None:
    """The answer is an error of one line that says all of `said`."""
    assert answer.status_code in (424, 500)
    message = answer.json()["error"]
    assert all(part in message for part in said), message
    assert "\n" not in message


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


async def test_what_raises_or_returns_a_wrong_type_fails_alone(new: Place) -> None:
    async with client(new.host) as http:
        good = [asyncio.create_task(http.post({"question": ASKED.prompt})) for _ in range(4)]
        raised, wrong, out_raised, out_wrong = await asyncio.gather(
            http.post({"question": ASKED.prompt, "mode": "raise"}),
            http.post({"question": ASKED.prompt, "mode": "wrong"}),
            http.post(lmi(SPIDER)),
            http.post(lmi(HAMLET)),
        )
        for answer in await asyncio.gather(*good):
            assert answer.json()["answer"] == ASKED.answer
    failed(raised, "read_question", "raised ValueError: no such question")
    failed(wrong, "read_question", "returned a list, expected a dict")
    failed(out_raised, "write_answer", "raised KeyError: 'legs'")
    failed(out_wrong, "write_answer", "returned an int, expected a dict, a str")


async def test_a_formatter_that_raises_in_a_stream_ends_it(new: Place) -> None:
    async with client(new.host) as http:
        answer = await http.stream({**lmi(ENDLESS.prompt, max_new_tokens=8), "stream": True})
        after = await http.post({"question": ASKED.prompt})
    *sent, told = [line for line in answer.lines if line and "[DONE]" not in line]
    assert "write_answer raised RuntimeError: cut off" in told
    # If all tokens came while the formatter had no thread yet, its first call was its last.
    assert answer.status == (200 if sent else 424)
    assert after.json()["answer"] == ASKED.answer


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("input", {"question": FRANCE, "mode": "slow"}),
        ("output", lmi(FRANCE)),
        ("toy", {"say": FRANCE, "manner": "slow reply"}),
    ],
    ids=["input formatter", "output formatter", "dialect"],
)
async def test_a_slow_function_holds_up_its_own_request_only(new: Place, name: str, slow: dict[str, Any]) -> None:
    if name == "input":
        new.release("output")
    async with client(new.host) as http:
        waiting = asyncio.create_task(http.post(slow))

        async def waits() -> bool:
            return new.waits(name)

        await eventually(waits)
        others = await asyncio.gather(
            http.post({"question": ASKED.prompt}),
            http.post(lmi(question("json").prompt)),
            http.post({"say": ASKED.prompt}),
        )
        assert [answer.status_code for answer in others] == [200] * 3
        assert not waiting.done()
        new.release(name)
        answer = await waiting
    assert "Paris" in answer.text
    assert answer.status_code == 200


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


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raise matches", "dialect toy: matches raised RuntimeError: no idea"),
        ("raise parse", "dialect toy: parse raised RuntimeError: cannot read"),
        ("wrong parse", "dialect toy: parse returned a str, expected a ParsedRequest"),
        ("wrong generation", "dialect toy: parse returned a wrong Generation: Expected"),
        ("wrong reply", "dialect toy: Reply.feed returned a dict, expected a list of bytes"),
        ("raise reply", "dialect toy: Reply.feed raised RuntimeError: lost for words"),
    ],
)
async def test_a_dialect_that_fails_fails_its_request_alone(new: Place, mode: str, said: str) -> None:
    async with client(new.host) as http:
        failing, good = await asyncio.gather(
            http.post({"say": ASKED.prompt, "manner": mode, "stream": mode == "raise reply"}),
            http.post({"say": ASKED.prompt}),
        )
        streamed = await http.stream({"say": ASKED.prompt, "stream": True})
    assert said in failing.text
    assert good.json() == {"said": ASKED.answer}
    assert "".join(document["piece"] for document in streamed.documents) == ASKED.answer


async def test_the_routes_of_an_own_dialect_are_the_local_servers_too(new: Place) -> None:
    if new.kind != "server":
        pytest.skip("DJL has its own routes")
    async with httpx.AsyncClient(base_url=new.host.url, timeout=60) as http:
        assert (await http.post("/toy", json={"say": ASKED.prompt})).json() == {"said": ASKED.answer}
        assert (await http.get("/toy/about")).json() == {"engine": "parrot"}
        broken = await http.get("/toy/about?raise")
        assert broken.status_code >= 400
        assert "page of /toy/about raised RuntimeError: no page" in broken.text
        assert (await http.post("/toy", content=b"{")).status_code == 400


# The content filter.


async def test_a_flagged_prompt_is_refused_in_each_dialect(new: Place) -> None:
    said = "flagged by the content filter: forbidden fruit"
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "apple"}]},
    ]
    tool = {"type": "function", "function": {"name": "f", "description": "peels an apple"}}
    with_tool = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(new.folder / "tokenizer.json"))
    accepted = tokenizer.encode(ASKED.prompt, add_special_tokens=False)
    async with client(new.host) as http:
        by_lmi, by_chat, by_text, by_toy, by_tool, by_ids = await asyncio.gather(
            http.post(lmi("an apple")),
            http.post({"messages": chat}),
            http.post({"prompt": ["a pear", "an apple"]}),
            http.post({"say": "apple"}),
            http.post(with_tool),
            http.post({"prompt": tokenizer.encode("an apple").ids}),
        )
        ids = await http.stream({"prompt": accepted.ids, "stream": True, "max_tokens": 100, "temperature": 0})
    assert by_lmi.status_code == 424
    judged = [(by_lmi, "inputs"), (by_chat, "messages"), (by_text, "prompt[1]"), (by_toy, "")]
    for answer, field in (*judged, (by_tool, "messages"), (by_ids, "prompt")):
        assert f"{field}: {said}" in answer.text if field else said in answer.text
    assert {answer.status_code for answer in (by_chat, by_text, by_toy, by_tool, by_ids)} == {400}
    if new.kind == "server":
        assert by_chat.json()["error"]["code"] == "content_filter"
        assert by_chat.json()["error"]["param"] == "messages"
    chunks = [json.loads(line.removeprefix("data: ")) for line in ids.lines if line and "[DONE]" not in line]
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == ASKED.answer


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


async def test_a_filter_that_fails_fails_its_request_alone(new: Place) -> None:
    async with client(new.host) as http:
        raised, wrong, good = await asyncio.gather(
            http.post(lmi("raise")), http.post(lmi("a number")), http.post({"say": ASKED.prompt})
        )
        waiting = asyncio.create_task(http.post(lmi("slow")))

        async def waits() -> bool:
            return new.waits("prompt")

        await eventually(waits)
        assert (await http.post({"say": ASKED.prompt})).json() == {"said": ASKED.answer}
        assert not waiting.done()
        new.release("prompt")
        assert (await waiting).status_code == 200
    failed(raised, "content filter guard:judge raised LookupError: no list")
    failed(wrong, "content filter guard:judge returned an int, expected None, a reason (str)")
    assert good.json() == {"said": ASKED.answer}


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
    assert (old.folder / "handled").exists() == (old.kind != "server")
    assert executions(old) == (3 if by_djl(old) else 1)


async def test_a_failing_function_of_tokens_fails_its_request_alone(old: Place) -> None:
    async with client(old.host) as http:
        answers = await asyncio.gather(
            *(
                http.post({"question": ASKED.prompt, "mode": mode})
                for mode in ("raise input", "raise", "wrong", None, None)
            )
        )
        streamed = await http.stream({"question": ASKED.prompt, "mode": "raise", "stream": True})
    failed(answers[0], "read_question", "raised ValueError: no such question")
    failed(answers[1], "write_answer", "raised KeyError: 'third'")
    failed(answers[2], "write_answer", "returned a dict, expected a str")
    assert all(ASKED.answer in answer.text for answer in answers[3:])
    assert len(streamed.documents) == 4
    assert "write_answer raised KeyError: 'third'" in streamed.documents[-1]["error"]


async def test_a_slow_function_of_tokens_holds_up_its_own_request_only(old: Place) -> None:
    async with client(old.host) as http:
        slow = asyncio.create_task(http.stream({"question": ASKED.prompt, "mode": "slow", "stream": True}))

        async def waits() -> bool:
            return old.waits("output")

        await eventually(waits)
        others = [Streamed() for _ in range(3)]
        await asyncio.gather(*(http.stream({"question": ASKED.prompt, "stream": True}, other) for other in others))
        assert all(other.documents[-1]["whole"] == ASKED.answer for other in others)
        assert not slow.done()
        old.release("output")
        assert (await slow).documents[-1]["whole"] == ASKED.answer


async def test_the_oldest_form(oldest: Place) -> None:
    body = lmi(ASKED.prompt, details=True, return_full_text=True)
    async with client(oldest.host) as http:
        whole, streamed, failing = await asyncio.gather(
            http.post(body), http.stream({**body, "stream": True}), http.post(lmi(HAMLET))
        )
    lines = [json.loads(line) for line in whole.text.splitlines()]
    shown = [{key: line[key] for key in ("id", "text")} for line in lines]
    assert shown == [{key: line[key] for key in ("id", "text")} for line in streamed.documents]
    assert lines[0]["first"] is True
    last = lines[-1]
    assert last["generated_text"] == ASKED.prompt + ASKED.answer
    assert last["details"]["finish_reason"] == "eos_token"
    assert last["details"]["generated_tokens"] == len(lines)
    assert [token["id"] for token in last["details"]["tokens"]] == [line["id"] for line in lines]
    failed(failing, "write_token", "raised RuntimeError: not him")
    assert executions(oldest) == (3 if by_djl(oldest) else 1)
