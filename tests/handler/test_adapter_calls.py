"""What Java says of adapters, as djl_python hands it over: in rolling batch, and in async mode on its event loop.

What is answered to what: tests/handler/djl/test_adapters.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import lmi.handler

from ..kit.adapters import LLAMA, write_adapter
from ..kit.api.errors import AdapterError, NoSlotError, StartError
from ..kit.api.handler import Service, djl_worker, started_service
from ..kit.api.types import Delta, Finish, Started
from ..kit.djl.hosting import available, djl_python_path
from ..kit.djl.outputs import Told, outputs_of
from ..kit.registered import llama_dir
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until_async

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.anyio]

END = Finish("eos", generated_tokens=1)


class Java:
    """One worker of DJL's, with a model that is loaded, unless it is told otherwise."""

    def __init__(self, folder: Path, worker: Any) -> None:
        self.folder = folder
        self.model = llama_dir(folder / "model")
        self.worker = worker
        self.engine = ScriptedEngine()
        self.told = self.engine.adapters
        self.service: Service | None = None

    def load(self, **options: str) -> Java:
        self.service = started_service(self.engine, self.model, **{"enable_lora": "true", **options})
        self.worker._service = self.service
        return self

    def adapter(self, name: str, **how: Any) -> str:
        return str(write_adapter(self.folder / "adapters" / name, LLAMA, **how))

    def inputs(self, function: str, name: str, source: str | None = None, /, **given: str) -> Any:
        """As PyAdapter makes it; `given`: what the management API was told, and the alias."""
        from djl_python import Input

        inputs: Any = Input()
        inputs.properties = {"handler": function, "name": name, "request_tracking_id": f"{function} {name}"}
        if source is not None:
            inputs.properties["src"] = source
        if alias := given.pop("alias", None):
            inputs.properties["alias"] = alias
        for key, value in given.items():
            inputs.content.add(key=key, value=bytearray(value.encode()))
        return inputs

    def call(self, function: str, name: str, source: str | None = None, /, **given: str) -> tuple[int, str]:
        """Code and message that Java reads in rolling batch; an error has them in its body too."""
        output = getattr(lmi.handler, function)(self.inputs(function, name, source, **given))
        if output.code >= 300:
            body = json.loads(output.content.get_values()[0])
            assert body == {"code": output.code, "message": output.message, "error": output.message}
        return output.code, output.message

    async def say(self, function: str, name: str, source: str | None = None, /, **given: str) -> AsyncCall:
        """In async mode: a call that djl_python has awaited, but of which it has not taken an answer yet."""
        return AsyncCall(await getattr(lmi.handler, function)(self.inputs(function, name, source, **given)))

    async def ask(self, body: dict[str, Any], whose: str = "request") -> asyncio.Task[list[Told]]:
        """A request in async mode, read as far as that goes at once."""
        from djl_python import Input

        inputs: Any = Input()
        inputs.properties = {"request_tracking_id": whose}
        inputs.content.add(key="data", value=bytearray(json.dumps(body).encode()))
        messages = await lmi.handler.handle(inputs)

        async def take() -> list[Told]:
            return [told async for message in messages for told in sent(message)]

        task = asyncio.ensure_future(take())
        await asyncio.sleep(0.01)
        return task


class AsyncCall:
    """A call in async mode."""

    def __init__(self, outputs: Any) -> None:
        self._outputs = outputs
        self._task: asyncio.Task[list[Told]] | None = None

    def take(self) -> None:
        """Begins to take its answer."""

        async def take() -> list[Told]:
            return [told async for output in self._outputs for told in sent(output)]

        self._task = self._task or asyncio.ensure_future(take())

    async def answer(self) -> tuple[int, str]:
        """Code and message; and that it is the last that Java hears of it."""
        self.take()
        assert self._task is not None
        (told,) = await asyncio.wait_for(self._task, 30)
        assert told.frame["last"] == "true"
        body = json.loads(told.frame["data"])
        assert told.whose.startswith(("register_adapter", "update_adapter", "unregister_adapter"))
        return body["code"], body["message"]


def sent(output: Any) -> list[Told]:
    """What an Output of async mode writes to Java's socket."""
    written: list[bytes] = []

    class Socket:
        def sendall(self, data: bytes) -> None:
            written.append(bytes(data))

    output.send(Socket())
    return outputs_of(b"".join(written))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Java]:
    monkeypatch.syspath_prepend(str(djl_python_path()))
    java = Java(tmp_path, djl_worker())
    monkeypatch.setattr(lmi.handler, "_worker", java.worker)
    yield java
    if java.service is not None:
        java.service.close()


# In rolling batch and dynamic batch Java waits for the answer.


@pytest.mark.parametrize("options", [{}, {"rolling_batch": "disable", "batch_size": "4"}], ids=["rolling", "dynamic"])
def test_the_life_of_an_adapter(java: Java, options: dict[str, str]) -> None:
    java.load(**options)
    source = java.adapter("a")
    assert java.call("register_adapter", "a", source, name="a", src=source, preload="false") == (
        200,
        "Adapter a registered",
    )
    assert [(one.path, one.preload, one.pin) for one in java.told.added] == [(source, False, False)]
    assert java.call("update_adapter", "a", source, preload="true", pin="true") == (200, "Adapter a updated")
    assert [(one.preload, one.pin) for one in java.told.registered.values()] == [(True, True)]
    assert java.call("unregister_adapter", "a") == (200, "Adapter a unregistered")
    assert java.told.registered == {}


def test_without_a_model_that_is_said(java: Java) -> None:
    assert java.call("register_adapter", "a", java.adapter("a")) == (424, "the model is not loaded yet")
    java.worker._failure = StartError("no memory")
    assert java.call("register_adapter", "a", java.adapter("a")) == (424, "the model did not start: no memory")


def test_a_fault_of_ours_is_an_answer_too(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would wait for one until its own time is up, and end the worker."""
    java.load()

    def fail(*given: object, **more: object) -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(java.worker._service.adapters, "update", fail)
    assert java.call("update_adapter", "a") == (424, "KeyError: 'of ours'")
    monkeypatch.setattr(java.worker._service.adapters, "enter", fail)
    assert java.call("register_adapter", "a", java.adapter("a")) == (424, "KeyError: 'of ours'")


# In async mode Java has said "OK" already; an answer ends its record of the call.


async def test_the_life_of_an_adapter_in_async_mode(java: Java) -> None:
    assert await (await java.say("register_adapter", "a", "/a")).answer() == (424, "the model is not loaded yet")
    java.load(async_mode="true")
    source = java.adapter("a")
    for function, done in (("register", "registered"), ("update", "updated"), ("unregister", "unregistered")):
        call = await java.say(f"{function}_adapter", "a", source, pin="true")
        assert await call.answer() == (200, f"Adapter a {done}")


async def test_what_is_refused_in_async_mode_is_answered_and_logged(
    java: Java, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else will hear of it: Java drops the answer."""
    java.load(async_mode="true")
    java.told.errors = {"full": NoSlotError("no slot is free")}
    assert await (await java.say("register_adapter", "full", java.adapter("full"))).answer() == (507, "no slot is free")
    assert await (await java.say("unregister_adapter", "b")).answer() == (424, "Adapter b not registered.")
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "register_adapter of full failed: no slot is free" in errors
    assert "unregister_adapter of b failed: Adapter b not registered." in errors


async def test_a_request_right_behind_a_registration_waits_for_it_and_others_do_not(java: Java) -> None:
    java.load(async_mode="true")
    java.told.held = Future()
    source = java.adapter("a")
    # djl_python awaits one after the other, in the order of the connection, and what comes of them beside.
    call = await java.say("register_adapter", "a", source)
    waiting = await java.ask({"inputs": "Hi", "adapters": "a"})
    call.take()
    other = await java.ask({"inputs": "other"}, "other")
    await until_async(lambda: java.engine.generations)
    assert [one.prompt for one in java.engine.generations] == ["other"]
    future, java.told.held = java.told.held, None
    future.set_result(None)
    assert await call.answer() == (200, "Adapter a registered")
    await until_async(lambda: len(java.engine.generations) == 2)
    assert java.engine.generations[1].adapter == "a#1"
    for ticket in (0, 1):
        java.engine.say(ticket, Started(1), Delta(0, "Hello", finish=END))
    # One may carry what is for the other.
    answers = [told for task in (waiting, other) for told in await asyncio.wait_for(task, 30)]
    assert {told.whose for told in answers if "Hello" in told.frame["data"]} == {"request", "other"}


async def test_a_request_right_behind_a_broken_registration_is_told_why(java: Java) -> None:
    java.load(async_mode="true")
    java.told.errors["a"] = AdapterError("it does not fit")
    call = await java.say("register_adapter", "a", java.adapter("a"))
    waiting = await java.ask({"inputs": "Hi", "adapters": "a"})
    assert await call.answer() == (424, "it does not fit")
    (told,) = await asyncio.wait_for(waiting, 30)
    assert "adapter a could not be loaded: it does not fit" in json.dumps(told.frame)


async def test_a_request_right_behind_a_removal_is_refused(java: Java) -> None:
    java.load(async_mode="true")
    await (await java.say("register_adapter", "a", java.adapter("a"))).answer()
    call = await java.say("unregister_adapter", "a")
    (told,) = await asyncio.wait_for(await java.ask({"inputs": "Hi", "adapters": "a"}), 30)
    assert "adapter 'a' is not registered" in json.dumps(told.frame)
    assert await call.answer() == (200, "Adapter a unregistered")
