"""What is written to Java's socket: what djl_python writes of the same frames. What comes from there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.errors import StartError, UnavailableError
from ...kit.api.handler import NO_FRAME, Frame, djl_worker, input_of, started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.djl.hosting import available, djl_python_path
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


class Socket:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.writes.append(bytes(data))


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module."""
    monkeypatch.syspath_prepend(str(djl_python_path()))
    from lmi.handler.djl import convert as module

    return module


def test_a_batch_is_written_as_djl_python_writes_it(convert: Any) -> None:
    """In one write, whatever its frames have: text, nothing, an end, headers, an error."""
    from djl_python import Output

    headers = {"Content-Type": "application/jsonlines", "x-ü": "é"}
    frames = [
        Frame("Grüße 🦊\n".encode(), headers=headers),
        NO_FRAME,
        Frame(b"", last=True),
        Frame(b"x" * 100_000, last=True),
        NO_FRAME,
        Frame(b"", last=True, headers={"a": "b"}, failure=UnavailableError("gone, äußerst"), code=503),
    ]
    expected = Output()
    for index, frame in enumerate(frames):
        fields = {"data": frame.data.decode(), "last": str(frame.last).lower()}
        if frame.failure is not None:
            fields |= {"code": str(frame.code), "error": frame.failure.message}
        expected.content.add(value=Output.binary_encode(fields))
        expected.properties |= {f"batch_{index}_{name}": value for name, value in frame.headers.items()}
    ours, theirs = Socket(), Socket()
    convert.BatchOutput(frames).send(ours)
    expected.send(theirs)
    assert ours.writes == theirs.writes


def test_a_batch_of_none_is_written_too(convert: Any) -> None:
    from djl_python import Output

    ours, theirs = Socket(), Socket()
    convert.BatchOutput([]).send(ours)
    Output().send(theirs)
    assert ours.writes == theirs.writes


# --- What a client names as Java does ---

HEADERS = {"Host": "h", "requestId": "client-1", "handler": "handle", "model_dir": "/opt/ml/model", "device_id": -1}
FORM = {**HEADERS, "Content-Type": "multipart/form-data; boundary=x"}
JSON_HEADERS = {**HEADERS, "content-type": "application/json"}
ALONE: dict[str, tuple[dict[str, Any], list[tuple[str | None, bytes]], bytes]] = {
    "a header batch_size": ({**JSON_HEADERS, "batch_size": "300000"}, [("data", b"{}")], b"{}"),
    "a query parameter of a batch": (
        {**JSON_HEADERS, "batch_size": "1"},
        [("batch_000.data", b"1"), ("data", b"{}")],
        b"{}",
    ),
    "a form of a batch": (
        {**FORM, "batch_size": "300000"},
        [("batch_000.data", b"{}"), ("batch_001.data", b"{}")],
        b"",
    ),
    "a form of a batch whose size is right": (
        {**FORM, "batch_size": "2", "batch_000.requestId": "a", "batch_001.requestId": "b"},
        [("batch_000.data", b"{}"), ("batch_001.data", b"{}")],
        b"",
    ),
    "a size without the items, with no type": ({**HEADERS, "batch_size": "300000"}, [("batch_000.data", b"{}")], b"{}"),
    "items that are not the first ones": ({**HEADERS, "batch_size": "1"}, [("batch_007.data", b"{}")], b"{}"),
    "a size that is no number": ({**HEADERS, "batch_size": "9" * 5000}, [("batch_000.data", b"{}")], b"{}"),
    "a query parameter named data": (JSON_HEADERS, [("data", b"x"), ("data", b"{}")], b"{}"),
    "a form without fields": ({**HEADERS, "Content-Type": "application/x-www-form-urlencoded"}, [], b""),
    "no key": ({**JSON_HEADERS, "batch_size": "1"}, [(None, b"{}")], b"{}"),
}
"""What a client may send: properties and content, as Java's RequestParser makes them; and the body."""


def received(properties: dict[str, Any], content: list[tuple[str | None, bytes]]) -> Any:
    """djl_python's Input of it."""
    from djl_python import Input

    inputs = Input()
    inputs.properties = dict(properties)
    for key, value in content:
        inputs.content.add(key=key, value=bytearray(value))
    return inputs


@each_row("case", ALONE)
def test_a_request_is_one_whatever_its_client_calls_things(convert: Any, case: str) -> None:
    properties, content, body = ALONE[case]
    inputs = received(properties, content)
    assert convert.requests_of_dynamic_batch(inputs) is None
    request = convert.request_of(inputs)
    assert request.body == body
    assert request.form == (tuple(content) if "multipart/form-data; boundary=x" in properties.values() else None)
    assert request.request_id == "client-1"
    assert all(isinstance(text, str) for text in (*request.headers.values(), *request.attributes.values()))


@pytest.mark.parametrize("case", ["a form of a batch", "a form of a batch whose size is right"])
@pytest.mark.usefixtures("convert")
def test_a_form_has_one_answer(case: str, tmp_path: Path) -> None:
    properties, _, _ = ALONE[case]
    engine = ScriptedEngine()
    engine.submit_then = [Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))]
    made = djl_worker()
    made._service = started_service(engine, tmp_path, rolling_batch="disable")
    body = b'{"inputs": "Hi"}'
    output = made.handle(received(properties, [("batch_000.data", body), ("batch_001.data", body)]))
    assert not engine.generations
    assert (output.code, output.content.size()) == (415, 1)
    assert b"multipart/form-data" in output.content.value_at(0)


@each_row("size", [1, 2, 1001])
def test_a_batch_of_javas_is_one(convert: Any, size: int) -> None:
    """Whatever the clients in it call things; 1001: its last item has a name of four digits."""
    names = [f"batch_{index:03}" for index in range(size)]
    properties: dict[str, Any] = {"batch_size": str(size), "handler": "handle", "device_id": -1, "model_dir": "m"}
    content: list[tuple[str | None, bytes]] = []
    for index, name in enumerate(names):
        own = {"requestid": f"id-{index}", "Content-Type": "text/plain", "batch_size": "7", "batch_009.data": "x"}
        properties |= {f"{name}.{header}": value for header, value in own.items()}
        content += [(f"{name}.batch_001.data", b"q"), (f"{name}.data", b"%d" % index)]
    requests = convert.requests_of_dynamic_batch(received(properties, content))
    assert [request.body for request in requests] == [b"%d" % index for index in range(size)]
    assert [request.request_id for request in requests] == [f"id-{index}" for index in range(size)]
    assert {request.headers["batch_size"] for request in requests} == {"7"}
    assert {tuple(request.query.items()) for request in requests} == {(("batch_001.data", "q"),)}


def test_an_item_of_a_batch_may_have_no_content(convert: Any) -> None:
    """As of a form without fields."""
    properties = {"batch_size": "2", "batch_000.Host": "h", "batch_001.Host": "h"}
    first, second = convert.requests_of_dynamic_batch(received(properties, [("batch_001.data", b"{}")]))
    assert (first.body, second.body) == (b"", b"{}")


def test_of_a_rolling_batch_requests_that_run_have_nothing_more_to_say(convert: Any) -> None:
    """A new one has properties at least, whatever its body is."""
    content: list[tuple[str | None, bytes]] = [(f"batch_{index:03d}.data", b"") for index in range(3)]
    assert convert.requests_of_batch(received({"batch_size": "3"}, content)) == [None] * 3
    properties = {"batch_size": "4", "batch_003.requestId": "a"}
    *running, new = convert.requests_of_batch(received(properties, [*content, ("batch_003.data", b"")]))
    assert running == [None] * 3
    assert (new.body, new.request_id) == (b"", "a")


def test_of_a_rolling_batch_the_names_of_clients_are_theirs(convert: Any) -> None:
    properties = {"batch_size": "2", "batch_001.reset_rollingbatch": "true", "batch_001.batch_000.data": "x"}
    content: list[tuple[str | None, bytes]] = [
        ("batch_000.data", b""),
        ("batch_001.data", b"{}"),
        ("batch_001.seed", b"7"),
    ]
    running, new = convert.requests_of_batch(received(properties, content))
    assert running is None
    assert new.body == b"{}"
    assert new.headers == {"reset_rollingbatch": "true", "batch_000.data": "x"}


@pytest.mark.parametrize("mode", ["rolling", "async"])
def test_only_javas_first_call_starts_the_engine(convert: Any, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """A form without fields has no content either: its headers must not become options, though the start has failed."""
    made = djl_worker()
    started: list[str] = []

    def load(inputs: Any) -> StartError:
        started.append(inputs.get_property("model_id"))
        return StartError("there is no such model")

    monkeypatch.setattr(made, "_load", load)
    for name in ("configure", "end_with_parent", "end_host"):
        monkeypatch.setattr(f"lmi.handler.djl.worker.{name}", lambda *_, **__: None)
    monkeypatch.setattr("lmi.handler.djl.worker.listens", lambda _: True)
    monkeypatch.setattr(made, "_start_again", lambda _: None)

    async def on_loop(inputs: Any) -> list[Any]:
        outputs = await made.handle(inputs)
        return [] if outputs is None else [output async for output in outputs]

    empty = {**HEADERS, "Content-Type": "application/x-www-form-urlencoded", "model_id": "theirs"}
    if mode == "async":
        asyncio.run(on_loop(received({"model_id": "ours"}, [])))
        (answer,) = asyncio.run(on_loop(received({**empty, "request_tracking_id": "1"}, [])))
        assert b"there is no such model" in answer._message
    else:
        assert made.handle(received({"model_id": "ours"}, [])).code >= 300
        with pytest.raises(StartError, match="not been initialized"):
            made.handle(received(empty, []))
    assert started == ["ours"]


def test_what_user_code_is_given_is_no_batch(convert: Any) -> None:
    """`get_batches` of djl_python would make as many Inputs as the header says."""
    request = Request(b"{}", {"batch_size": "300000"}, attributes={"Batch_Size": "300000", "batch_size": "300000"})
    inputs = input_of(request)
    assert inputs.get_batches() == [inputs]
