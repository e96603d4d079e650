"""Each way to name an adapter, on every host: the local server, and the real DJL engine in each of its modes.

What each should answer is what transformers does with the adapter merged into the weights.
"""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...kit.djl import hosting
from ...kit.hosts.host import Host, start
from ...kit.models.adapted import ADAPTERS, BASE, Adapted, adapted, adapted_directory
from ...kit.models.merged import Greediest

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

KINDS = ("server", "rolling", "async", "dynamic")
MOST = 8
"""Tokens of an answer."""
SPEAKER = "wide"
"""The adapter with a formatter of its own."""
NAMES = tuple(ADAPTERS)
FORMATTER = """
    def write(token, first_token, last_token, details, generated_text, request_id):
        return ("<" if first_token else "") + f"[{token.text}]" + (">\\n" if last_token else "")


    write.is_output_formatter = True
"""
HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


@dataclass
class Served:
    """A host, and what its adapters should answer."""

    kind: str
    host: Host
    adapted: Adapted

    def known(self, name: str) -> Greediest:
        return self.adapted.one(name)


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    made = adapted(demo_model, tmp_path_factory.mktemp("adapters"), NAMES, most=MOST, count=2)
    (made.folders[SPEAKER] / "model.py").write_text(textwrap.dedent(FORMATTER))
    return made


@pytest.fixture(scope="module", params=KINDS)
def served(
    request: pytest.FixtureRequest, demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    kind = request.param
    if missing := hosting.available():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    properties = {"option.max_loras": "2", "option.max_cpu_loras": "2", "option.served_model_name": "demo"}
    directory = adapted_directory(demo_model, folder / "model", properties)
    (directory / "adapters").symlink_to(adapters.folders[SPEAKER].parent)
    with pytest.MonkeyPatch.context() as patch:
        # In the container djl_python is on the path; `lmi serve` takes it from there as well.
        patch.setenv("PYTHONPATH", str(hosting.djl_python_path()), prepend=os.pathsep)
        host = start(kind, directory, folder / "log")
    yield Served(kind, host, adapters)
    host.stop()


def lmi(prompt: str, **more: Any) -> dict[str, Any]:
    """A request in LMI's dialect."""
    parameters = {"max_new_tokens": MOST, **more.pop("parameters", {})}
    return {"inputs": prompt, "parameters": parameters, **more}


def completion(prompt: str | list[str], **more: Any) -> dict[str, Any]:
    """One in OpenAI's."""
    return {"prompt": prompt, "max_tokens": MOST, "temperature": 0, **more}


async def post(
    served: Served, body: object, headers: Mapping[str, str] | None = None, *, path: str = "/invocations"
) -> httpx.Response:
    async with httpx.AsyncClient(verify=False, timeout=120) as http:
        return await http.post(f"{served.host.url}{path}", json=body, headers=dict(headers or {}))


def text_of(answer: httpx.Response) -> str:
    """The text of a whole answer, in any of the dialects."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    if isinstance(told, list):
        (told,) = told
    return str(told["generated_text"] if "generated_text" in told else told["choices"][0]["text"])


def error_of(answer: httpx.Response) -> str:
    """Its message: in rolling batch and async mode Java writes the bodies of refusals."""
    error = answer.json()["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def streamed_text(answer: httpx.Response) -> str:
    """That of a stream."""
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    documents = [json.loads(line) for line in lines if line != "[DONE]"]
    texts = [
        one["outputs"][0] if "outputs" in one else one["token"]["text"] if "token" in one else one["choices"][0]["text"]
        for one in documents
    ]
    return "".join(texts)


Ways = Mapping[str, tuple[Any, Mapping[str, str], str]]


def ways(kind: str, prompt: str, name: str) -> Ways:
    """Body, headers and query of each way to name it."""
    plain = lmi(prompt)
    found = {
        "header": (plain, {HEADER: name}, ""),
        "header in capitals": (plain, {HEADER.upper(): name}, ""),
        "header before the body": (lmi(prompt, adapters="nobody"), {HEADER: name}, ""),
        "custom attribute": (plain, {ATTRIBUTES: f"{HEADER}={name}"}, ""),
        "one of two attributes": (plain, {ATTRIBUTES: f"trace=1;{HEADER.lower()}={name}"}, ""),
        "query": (plain, {}, f"?adapter={name}"),
        "adapters": (lmi(prompt, adapters=name), {}, ""),
        "a list of one": (lmi(prompt, adapters=[name]), {}, ""),
        "adapter_id": (lmi(prompt, parameters={"adapter_id": name}), {}, ""),
        "model": (completion(prompt, model=name), {}, ""),
        "adapters before model": (completion(prompt, model="all", adapters=name), {}, ""),
        "header on a completion": (completion(prompt, model="demo"), {HEADER: name}, ""),
    }
    if kind == "rolling":
        # Java hands a rolling batch nothing but bodies and headers (RollingBatch).
        del found["query"]
    return found


async def test_each_way_names_it(served: Served) -> None:
    """Twice as many at once as there are ways, of two adapters and of the model itself beside them."""
    tasks = {}
    for name in ("all", "stable"):
        for way, (body, headers, query) in ways(served.kind, served.known(name).prompt, name).items():
            tasks[name, way] = asyncio.create_task(post(served, body, headers, path=f"/invocations{query}"))
    prompt = served.known(BASE).prompt
    for way, body in {"none": lmi(prompt), "of any model": completion(prompt, model="anything")}.items():
        tasks[BASE, way] = asyncio.create_task(post(served, body))
    for (name, way), task in tasks.items():
        assert text_of(await task) == served.known(name).text, (name, way)


async def test_streams(served: Served) -> None:
    bodies = [lmi(served.known(name).prompt, adapters=name, stream=True) for name in ("all", "stable")]
    bodies += [completion(served.known(name).prompt, model=name, stream=True) for name in ("all", "stable")]
    if served.kind == "dynamic":
        # Only what is alone in its batch is streamed.
        answers = [await post(served, body) for body in bodies]
    else:
        answers = await asyncio.gather(*(post(served, body) for body in bodies))
    assert [streamed_text(answer) for answer in answers] == [served.known(name).text for name in ("all", "stable")] * 2


async def test_one_for_each_input(served: Served) -> None:
    """The empty name is the model itself."""
    names = ["stable", BASE, "all"]
    known = [served.known(name) for name in names]
    prompts = [one.prompt for one in known]
    answer = await post(served, completion(prompts, adapters=names))
    assert [choice["text"] for choice in answer.json()["choices"]] == [one.text for one in known]
    if served.kind == "dynamic":
        answer = await post(served, {**lmi("", adapters=names), "inputs": prompts})
        assert [one["generated_text"] for one in answer.json()] == [one.text for one in known]
    short = await post(served, completion(prompts, adapters=names[:2]))
    assert short.status_code == 400
    assert error_of(short) == "adapters: expected a name for each of the 3 inputs, got 2 names"


async def test_each_dialect_on_its_own_path(served: Served) -> None:
    known = served.known("all")
    chat = {"messages": [{"role": "user", "content": known.prompt}], "temperature": 0, "max_tokens": MOST}
    asked = [
        await post(served, {**chat, "model": name}, path="/v1/chat/completions") for name in ("all", "stable", "x")
    ]
    contents = [answer.json()["choices"][0]["message"]["content"] for answer in asked]
    assert len(set(contents)) == 3
    assert [answer.json()["model"] for answer in asked] == ["all", "stable", "demo"]
    if served.kind != "server":
        return
    assert text_of(await post(served, completion(known.prompt, model="all"), path="/v1/completions")) == known.text
    generate = lmi(known.prompt, parameters={"adapter_id": "all"})
    assert text_of(await post(served, generate, path="/generate")) == known.text
    answer = await post(served, generate, path="/generate_stream")
    lines = [line.removeprefix("data:") for line in answer.text.splitlines() if line]
    assert "".join(json.loads(line)["token"]["text"] for line in lines) == known.text
    async with httpx.AsyncClient() as http:
        listed = (await http.get(f"{served.host.url}/v1/models")).json()["data"]
    assert [one["id"] for one in listed] == ["demo", *sorted(NAMES)]
    assert {one["parent"] for one in listed[1:]} == {"demo"}
    assert [Path(one["root"]).name for one in listed[1:]] == sorted(NAMES)


async def test_an_unknown_name_is_refused_without_telling_others(served: Served) -> None:
    prompt = served.known("all").prompt
    refused = {
        way: await post(served, body, headers, path=f"/invocations{query}")
        for way, (body, headers, query) in ways(served.kind, prompt, "nobody").items()
    }
    # Any model is the model itself.
    assert refused.pop("model").status_code == 200
    for way, answer in refused.items():
        completed = way in ("adapters before model", "header on a completion")
        assert answer.status_code == (404 if completed else 424), (way, answer.text)
        told = error_of(answer)
        assert told == "adapters: adapter 'nobody' is not registered", way
        if completed and served.kind in ("server", "dynamic"):
            assert answer.json()["error"]["code"] == "model_not_found"
        assert not any(name in answer.text for name in NAMES)
    assert text_of(await post(served, lmi(prompt, adapters="all"))) == served.known("all").text


async def test_an_adapters_own_formatter(served: Served) -> None:
    """For requests that name it, whole and streamed, but not by `model`; beside others."""
    known, other = served.known(SPEAKER), served.known("all")
    bodies = [
        lmi(known.prompt, adapters=SPEAKER),
        lmi(known.prompt, adapters=SPEAKER, stream=True),
        completion(known.prompt, model=SPEAKER),
        lmi(other.prompt, adapters="all"),
    ]
    answers = [await post(served, body) for body in bodies]
    assert {answer.status_code for answer in answers} == {200}
    for answer in answers[:2]:
        text = answer.text
        assert (text[:2], text[-3:]) == ("<[", "]>\n"), text
        assert text[2:-3].replace("][", "") == known.text
    assert [text_of(answer) for answer in answers[2:]] == [known.text, other.text]


async def test_each_alone(served: Served) -> None:
    """All eight and the model itself, whole and streamed."""
    for name, (known, _) in served.adapted.answers.items():
        whole = await post(served, completion(known.prompt, model=name))
        assert text_of(whole) == known.text, name
        stream = await post(served, completion(known.prompt, model=name, stream=True))
        assert streamed_text(stream) == known.text, name


async def test_sixty_four_at_once(served: Served) -> None:
    """Of nine, where two have a slot; every other one is streamed, where a batch of several can be."""
    names = ([*served.adapted.answers] * 8)[:64]
    known = [served.adapted.answers[name][number % 2] for number, name in enumerate(names)]
    streams = [number % 2 == 1 and served.kind != "dynamic" for number in range(64)]
    bodies = [
        completion(one.prompt, model=name, stream=stream)
        for name, one, stream in zip(names, known, streams, strict=True)
    ]
    answers = await asyncio.gather(*(post(served, body) for body in bodies))
    texts = [
        streamed_text(answer) if stream else text_of(answer) for answer, stream in zip(answers, streams, strict=True)
    ]
    assert texts == [one.text for one in known]
