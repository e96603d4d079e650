"""Adapters registered while requests run, behind the real DJL engine in each of its modes, as DJL Serving does it.

In rolling batch and dynamic batch DJL Serving waits for the worker's answer; in async mode it says OK at once, and the
requests are told what became of it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...kit.djl import hosting
from ...kit.djl.hosting import HostError
from ...kit.faults.kills import end
from ...kit.hosts.host import Host, djl_host, engine_process, eventually, start
from ...kit.models.adapted import Adapted, adapted, adapted_directory
from ...kit.models.merged import Greediest

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

MOST = 8
THERE, FIRST, SECOND = "wide", "all", "stable"
"""The adapter in the folder `adapters`, and two that lie elsewhere."""
PROPERTIES = {
    "option.max_loras": "2",
    "option.max_cpu_loras": "3",
    "option.max_lora_rank": "16",
    # Prompts are longer than a block.
    "option.block_size": "32",
}


@dataclass
class Served:
    """A host, and adapters that may be registered."""

    kind: str
    host: Host
    adapted: Adapted

    @property
    def waits(self) -> bool:
        """Whether the management API answers with the outcome."""
        return self.kind != "async"

    def known(self, name: str) -> Greediest:
        return self.adapted.one(name)

    async def _ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        async with httpx.AsyncClient(verify=False, timeout=120) as http:
            return await http.request(method, f"{self.host.url}{path}", **sent)

    async def add(self, name: str, source: Path, **options: str) -> httpx.Response:
        return await self._ask("POST", "/adapters", params={"name": name, "src": str(source), **options})

    async def remove(self, name: str) -> httpx.Response:
        return await self._ask("DELETE", f"/models/demo/adapters/{name}")

    async def post(self, name: str, prompt: str, most: int = MOST, **more: Any) -> httpx.Response:
        body = {"inputs": prompt, "adapters": name, "parameters": {"max_new_tokens": most, **more}}
        return await self._ask("POST", "/invocations", json=body)

    async def text(self, name: str, prompt: str, most: int = MOST) -> str:
        answer = await self.post(name, prompt, most)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        return str((told[0] if isinstance(told, list) else told)["generated_text"])

    async def error(self, name: str) -> str:
        answer = await self.post(name, "x")
        assert answer.status_code == 424, answer.text
        return str(answer.json()["error"])

    def agreed(self, answer: httpx.Response, said: str) -> None:
        """A call of the management API went well, as far as DJL Serving knows."""
        told = answer.json()
        assert (answer.status_code, told) == (200, {"status": said if self.waits else "OK"}), told

    def refused(self, answer: httpx.Response, status: int, said: str) -> None:
        """It did not; in async mode nobody learns of it here."""
        if not self.waits:
            self.agreed(answer, "")
            return
        assert answer.status_code == status, answer.text
        assert said in answer.json()["message"]


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted(demo_model, tmp_path_factory.mktemp("adapters"), (THERE, FIRST, SECOND), most=MOST, count=1)


def directory_with(adapters: Adapted, demo_model: Path, folder: Path) -> Path:
    directory = adapted_directory(demo_model, folder / "model", PROPERTIES)
    shutil.copytree(adapters.folders[THERE], directory / "adapters" / THERE)
    return directory


@pytest.fixture(scope="module", params=["rolling", "async", "dynamic"])
def served(
    request: pytest.FixtureRequest, demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if missing := hosting.available():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(request.param)
    host = start(request.param, directory_with(adapters, demo_model, folder), folder / "log")
    yield Served(request.param, host, adapters)
    host.stop()


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
    # Mended, it is registered by the same name.
    shutil.rmtree(broken)
    shutil.copytree(served.adapted.folders[FIRST], broken)
    if not served.waits:
        # DJL Serving takes it for registered.
        served.agreed(await served.remove("broken"), "")
    served.agreed(await served.add("broken", broken), "Adapter broken registered")
    assert await served.text("broken", served.known(FIRST).prompt) == served.known(FIRST).text
    served.agreed(await served.remove("broken"), "Adapter broken unregistered")


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


async def test_as_many_are_pinned_as_leave_a_slot(served: Served) -> None:
    first, second = served.adapted.folders[FIRST], served.adapted.folders[SECOND]
    served.agreed(await served.add(FIRST, first, pin="true"), f"Adapter {FIRST} registered")
    served.refused(await served.add(SECOND, second, pin="true"), 507, "1 adapters are pinned, expected at most 1")
    if served.waits:
        error = await served.error(SECOND)
        assert "could not be loaded: 1 adapters are pinned" in error
    for name in (FIRST, THERE, FIRST):
        assert await served.text(name, served.known(name).prompt) == served.known(name).text
    await served.remove(FIRST)
    await served.remove(SECOND)


async def test_the_engine_is_killed_in_between(served: Served) -> None:
    """What was in the folder and what was registered is there again."""
    served.agreed(await served.add(FIRST, served.adapted.folders[FIRST]), f"Adapter {FIRST} registered")
    served.agreed(await served.add(SECOND, served.adapted.folders[SECOND]), f"Adapter {SECOND} registered")
    served.agreed(await served.remove(SECOND), f"Adapter {SECOND} unregistered")
    worker, engine = served.host.worker_pid, engine_process(served.host)
    end(engine, signal.SIGKILL)

    async def back() -> bool:
        await asyncio.sleep(0.2)
        return (await served.post("", "x", 1)).status_code == 200

    await eventually(back, 120)
    for name in (FIRST, THERE):
        assert await served.text(name, served.known(name).prompt) == served.known(name).text
    assert "is not registered" in await served.error(SECOND)
    assert (served.host.worker_pid, engine_process(served.host).pid != engine.pid) == (worker, True)
    served.agreed(await served.remove(FIRST), f"Adapter {FIRST} unregistered")


@pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))
def test_a_broken_one_in_the_folder_fails_the_start(demo_model: Path, adapters: Adapted, tmp_path: Path) -> None:
    """Each of them is named."""
    directory = directory_with(adapters, demo_model, tmp_path)
    for name in ("one", "two"):
        (directory / "adapters" / name).mkdir()
    with pytest.raises(HostError) as caught:
        djl_host(directory, tmp_path / "log", mode="rolling").stop()
    first = str(caught.value).splitlines()[0]
    assert "adapters/one" in first
    assert "adapters/two" in first
