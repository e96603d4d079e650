"""Adapters on every host: each way to name one, and those that come and go while requests run.

The local server has its own routes for that (tests/handler/server/test_adapters.py). In rolling batch and dynamic batch
DJL Serving waits for the answer of the worker; in async mode it says OK at once, and requests learn what became of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...kit.djl import hosting
from ...kit.hosts.host import running
from ...kit.models.adapted import BASE, Adapted, adapted, adapted_directory
from .served import MOST, Served, completion, lmi, streamed_text, text_of

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

SPEAKER = "wide"
"""The adapter with a formatter of its own."""
NAMES = ("all", "stable", SPEAKER)
"""Those of the folder `adapters`; the first two have a slot in the engine beside each other."""
FIRST, SECOND = "inner", "out"
"""Two that lie elsewhere."""
PROPERTIES = {
    "option.max_loras": "2",
    "option.max_cpu_loras": "3",
    "option.max_lora_rank": "16",
    # Prompts are longer than a block.
    "option.block_size": "32",
    "option.served_model_name": "demo",
}
FORMATTER = """
    def write(token, first_token, last_token, details, generated_text, request_id):
        return ("<" if first_token else "") + f"[{token.text}]" + (">\\n" if last_token else "")


    write.is_output_formatter = True
"""
HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    names = (*NAMES, FIRST, SECOND)
    made = adapted(demo_model, tmp_path_factory.mktemp("adapters"), names, most=MOST, count=1)
    (made.folders[SPEAKER] / "model.py").write_text(textwrap.dedent(FORMATTER))
    return made


def directory_with(adapters: Adapted, demo_model: Path, folder: Path) -> Path:
    directory = adapted_directory(demo_model, folder / "model", PROPERTIES)
    for name in NAMES:
        shutil.copytree(adapters.folders[name], directory / "adapters" / name)
    return directory


@pytest.fixture(scope="module", params=["rolling", "async", "dynamic", "server"])
def served(
    request: pytest.FixtureRequest, demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if missing := hosting.available():
        pytest.skip(missing)
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    with pytest.MonkeyPatch.context() as patch:
        # In the container djl_python is on the path; `lmi serve` takes it from there as well.
        patch.setenv("PYTHONPATH", str(hosting.djl_python_path()), prepend=os.pathsep)
        with running(kind, directory_with(adapters, demo_model, folder), folder / "log") as host:
            yield Served(kind, host, adapters)


# In the order of the fixture: pytest puts tests together by the place of a parameter, not by its value.
behind_djl = pytest.mark.parametrize("served", ["rolling", "async", "dynamic"], indirect=True)

# --- Names ---


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
            tasks[name, way] = asyncio.create_task(served.post(body, headers, path=f"/invocations{query}"))
    prompt = served.known(BASE).prompt
    for way, body in {"none": lmi(prompt), "of any model": completion(prompt, model="anything")}.items():
        tasks[BASE, way] = asyncio.create_task(served.post(body))
    for (name, way), task in tasks.items():
        assert text_of(await task) == served.known(name).text, (name, way)


async def test_streams(served: Served) -> None:
    bodies = [lmi(served.known(name).prompt, adapters=name, stream=True) for name in ("all", "stable")]
    bodies += [completion(served.known(name).prompt, model=name, stream=True) for name in ("all", "stable")]
    if served.kind == "dynamic":
        # Only what is alone in its batch is streamed.
        answers = [await served.post(body) for body in bodies]
    else:
        answers = await asyncio.gather(*(served.post(body) for body in bodies))
    assert [streamed_text(answer) for answer in answers] == [served.known(name).text for name in ("all", "stable")] * 2


async def test_one_for_each_input(served: Served) -> None:
    """The empty name is the model itself."""
    names = ["stable", BASE, "all"]
    known = [served.known(name) for name in names]
    prompts = [one.prompt for one in known]
    answer = await served.post(completion(prompts, adapters=names))
    assert [choice["text"] for choice in answer.json()["choices"]] == [one.text for one in known]
    if served.kind == "dynamic":
        answer = await served.post({**lmi("", adapters=names), "inputs": prompts})
        assert [one["generated_text"] for one in answer.json()] == [one.text for one in known]


async def test_each_dialect_on_its_own_path(served: Served) -> None:
    known = served.known("all")
    chat = {"messages": [{"role": "user", "content": known.prompt}], "temperature": 0, "max_tokens": MOST}
    asked = [await served.post({**chat, "model": name}, path="/v1/chat/completions") for name in ("all", "stable", "x")]
    contents = [answer.json()["choices"][0]["message"]["content"] for answer in asked]
    assert len(set(contents)) == 3
    assert [answer.json()["model"] for answer in asked] == ["all", "stable", "demo"]
    if served.kind != "server":
        return
    assert text_of(await served.post(completion(known.prompt, model="all"), path="/v1/completions")) == known.text
    generate = lmi(known.prompt, parameters={"adapter_id": "all"})
    assert text_of(await served.post(generate, path="/generate")) == known.text
    answer = await served.post(generate, path="/generate_stream")
    lines = [line.removeprefix("data:") for line in answer.text.splitlines() if line]
    assert "".join(json.loads(line)["token"]["text"] for line in lines) == known.text


async def test_an_adapters_own_formatter(served: Served) -> None:
    """For requests that name it, whole and streamed, but not by `model`; beside others."""
    known, other = served.known(SPEAKER), served.known("all")
    bodies = [
        lmi(known.prompt, adapters=SPEAKER),
        lmi(known.prompt, adapters=SPEAKER, stream=True),
        completion(known.prompt, model=SPEAKER),
        lmi(other.prompt, adapters="all"),
    ]
    answers = [await served.post(body) for body in bodies]
    assert {answer.status_code for answer in answers} == {200}
    for answer in answers[:2]:
        text = answer.text
        assert (text[:2], text[-3:]) == ("<[", "]>\n"), text
        assert text[2:-3].replace("][", "") == known.text
    assert [text_of(answer) for answer in answers[2:]] == [known.text, other.text]


async def test_sixty_four_at_once(served: Served) -> None:
    """Of three and the model itself, where two have a slot; every other one is streamed, where that can be."""
    names = (BASE, *NAMES) * 16
    known = [served.known(name) for name in names]
    streams = [number % 2 == 1 and served.kind != "dynamic" for number in range(64)]
    bodies = [
        completion(one.prompt, model=name, stream=stream)
        for name, one, stream in zip(names, known, streams, strict=True)
    ]
    answers = await asyncio.gather(*(served.post(body) for body in bodies))
    texts = [
        streamed_text(answer) if stream else text_of(answer) for answer, stream in zip(answers, streams, strict=True)
    ]
    assert texts == [one.text for one in known]


# --- Registration ---


@behind_djl
async def test_requests_right_behind_a_registration(served: Served) -> None:
    """In async mode they come before it is loaded, and wait."""
    known = served.known(FIRST)
    served.agreed(await served.add(FIRST, served.adapted.folders[FIRST]), f"Adapter {FIRST} registered")
    texts = await asyncio.gather(*(served.text(FIRST, known.prompt) for _ in range(8)))
    assert texts == [known.text] * 8
    again = await served.add(FIRST, served.adapted.folders[FIRST])
    assert again.status_code == 409
    served.agreed(await served.remove(FIRST), f"Adapter {FIRST} unregistered")
    assert await served.error(FIRST) == f"adapters: adapter '{FIRST}' is not registered"
    assert (await served.remove(FIRST)).status_code == 404


@behind_djl
async def test_a_broken_one(served: Served, tmp_path: Path) -> None:
    broken = shutil.copytree(served.adapted.folders[FIRST], tmp_path / "broken")
    said = json.loads((broken / "adapter_config.json").read_text())
    (broken / "adapter_config.json").write_text(json.dumps({**said, "use_dora": True}))
    cause = "adapter_config.json: use_dora"
    served.refused(await served.add("broken", broken), 424, cause)
    error = await served.error("broken")
    assert error.startswith("adapter broken could not be loaded: adapter_config.json: use_dora"), error
    served.refused(await served.add("gone", tmp_path / "gone"), 424, "Only local LoRA models are supported.")
    assert await served.error("gone") == "adapters: adapter 'gone' is not registered"
    if not served.waits:
        # DJL Serving takes it for registered.
        served.agreed(await served.remove("broken"), "")


@behind_djl
async def test_removed_while_a_stream_runs(served: Served) -> None:
    """The stream ends as if nothing had been, the next request is refused."""
    if served.kind == "rolling":
        pytest.skip("DJL Serving takes the answers to such a call and to a step for each other (PyProcess, Connection)")
    served.agreed(await served.add(FIRST, served.adapted.folders[FIRST]), f"Adapter {FIRST} registered")
    prompt = served.known(FIRST).prompt
    sampling = {"max_new_tokens": 300, "ignore_eos_token": True}
    body = {"inputs": prompt, "adapters": FIRST, "parameters": sampling, "stream": True}
    tokens = 0
    async with (
        httpx.AsyncClient(verify=False, timeout=120) as http,
        http.stream("POST", f"{served.host.url}/invocations", json=body) as response,
    ):
        removing: asyncio.Task[httpx.Response] | None = None
        async for line in response.aiter_lines():
            assert "error" not in json.loads(line)
            tokens += 1
            if tokens == 3:
                removing = asyncio.create_task(served.remove(FIRST))
            if tokens == 100 and served.kind != "dynamic":
                # In a dynamic batch the worker takes nothing else before the stream has ended.
                assert removing is not None
                served.agreed(await removing, f"Adapter {FIRST} unregistered")
                assert "is not registered" in await served.error(FIRST)
    assert tokens == 300
    assert removing is not None
    served.agreed(await removing, f"Adapter {FIRST} unregistered")
    assert "is not registered" in await served.error(FIRST)


@pytest.mark.parametrize("served", ["rolling"], indirect=True)
async def test_other_weights_by_the_same_name(served: Served) -> None:
    """Nothing that is cached of the old one is used: the prompt fills more than a block."""
    prompt = "I do not know the first capital of many neural networks. " * 4
    texts: dict[str, str] = {}
    for source in (FIRST, SECOND, FIRST):
        served.agreed(await served.add("name", served.adapted.folders[source]), "Adapter name registered")
        given = [await served.text("name", prompt) for _ in range(2)]
        assert given == [texts.setdefault(source, given[0])] * 2
        served.agreed(await served.remove("name"), "Adapter name unregistered")
    assert texts[FIRST] != texts[SECOND]
    assert await served.text("", prompt) not in texts.values()
