"""How many of our files a chat passes from the host's read to the engine's submit, and how long they are."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from ...kit.api.handler import Service, application, djl_worker, started_service
from ...kit.api.types import Delta, Finish, Started, Token
from ...kit.djl.hosting import available, djl_python_path
from ...kit.user_code.engine import ScriptedEngine

CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    "max_tokens": 5,
    "temperature": 0.5,
    "stream": True,
}
BODY = json.dumps(CHAT).encode()
ANSWER = (Started(1), Delta(0, "Hello", (Token(1, "Hello", -0.5),), Finish("eos", generated_tokens=1)))
LIMIT = 20
"""Files."""


class Watched(ScriptedEngine):
    """Notes the files of the product that run until a generation is submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: dict[str, Path] = {}

    def begin(self) -> None:
        self.passed.clear()
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            module, file = frame.f_globals.get("__name__", ""), Path(frame.f_code.co_filename)
            # A dataclass has functions that are in no file.
            if module.startswith("lmi.") and file.suffix == ".py":
                self.passed[module] = file

    def submit(self, generation: Any, sink: Any) -> int:
        sys.setprofile(None)
        self.submit_then = list(ANSWER)
        return super().submit(generation, sink)


Begin = Callable[[], None]
Host = Callable[[Service, Begin], None]
ROUTE = {"X-Amzn-SageMaker-Custom-Attributes": "route=/v1/chat/completions"}


def inputs_of(headers: Mapping[str, str], prefix: str = "") -> Any:
    """What Java hands over; `prefix`: of a request in a batch."""
    from djl_python import Input

    inputs = Input()
    properties = {"Content-Type": "application/json", "request_tracking_id": "1", **headers}
    inputs.properties = {f"{prefix}{name}": text for name, text in properties.items()}
    inputs.content.add(key=f"{prefix}data", value=bytearray(BODY))
    return inputs


def rolling(service: Service, begin: Begin, headers: Mapping[str, str] = ROUTE) -> None:
    made = djl_worker()
    made._service = service
    for _ in range(2):
        batch = inputs_of(headers, "batch_0.")
        batch.properties["batch_size"] = "1"
        begin()
        made.handle(batch)
        # It has ended.
        made._rolling._open.clear()


def rolling_by_the_body(service: Service, begin: Begin) -> None:
    rolling(service, begin, {})


def asynchronous(service: Service, begin: Begin) -> None:
    made = djl_worker()
    made._service = service

    async def main() -> None:
        for _ in range(2):
            begin()
            async for _output in await made.handle(inputs_of(ROUTE)):
                made._async.sent()

    asyncio.run(main())


def server(service: Service, begin: Begin) -> None:
    async def main() -> None:
        app = application(service)
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            for _ in range(2):
                begin()
                assert (await client.post("/v1/chat/completions", content=BODY)).status_code == 200

    asyncio.run(main())


MORE: dict[Host, int] = {rolling_by_the_body: 4, server: 4}
"""How many more, where dialects are asked whether a body is theirs, and where our own server reads and counts HTTP."""


@pytest.mark.parametrize("host", [rolling, asynchronous, rolling_by_the_body, server])
def test_a_chat_passes_few_files_and_none_is_long(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    if host is not server:
        if why := available():
            pytest.skip(why)
        monkeypatch.syspath_prepend(str(djl_python_path()))
    engine = Watched()
    options = {"async_mode": "true", "rolling_batch": "disable"} if host is asynchronous else {}
    service = started_service(engine, **options)
    try:
        host(service, engine.begin)
    finally:
        sys.setprofile(None)
        service.close()
    passed = engine.passed
    assert {"lmi.handler.service", "lmi.formatters.openai.chat"} <= passed.keys()
    assert len(passed) <= LIMIT + MORE.get(host, 0), list(passed)
    assert {name: lines for name, file in passed.items() if (lines := len(file.read_text().splitlines())) > 300} == {}
