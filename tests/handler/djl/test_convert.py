"""What is written to Java's socket: what djl_python writes of the same frames."""

from __future__ import annotations

from typing import Any

import pytest

from ...kit.api.errors import UnavailableError
from ...kit.api.handler import NO_FRAME, Frame
from ...kit.djl.hosting import available, djl_python_path

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


def input_of(properties: dict[str, str], contents: list[tuple[str | None, bytes]]) -> Any:
    from djl_python import Input

    made = Input()
    made.properties = dict(properties)
    for key, value in contents:
        made.content.add(key=key, value=value)
    return made


# What Java sends of a request by itself (djl-serving 0.36, RequestParser and InferenceRequestHandler): each header
# and attribute under its own name, `requestId`, query parameters and fields of a form as content, a body as `data`.
ALONE = {
    "nothing special": ({"Content-Type": "application/json"}, [("data", b"{}")]),
    "a header": ({"batch_size": "300000"}, [("data", b"{}")]),
    "a header, and a query": ({"batch_size": "300000"}, [("batch_000.data", b"{}"), ("data", b"{}")]),
    "a header, and a form": ({"batch_size": "300000"}, [("batch_000.data", b"{}"), ("batch_001.data", b"{}")]),
    "headers of all kinds, and a form": (
        {"batch_size": "2", "handler": "handle", "batch_000.Accept": "a", "batch_001.requestId": "b"},
        [("batch_000.data", b"{}"), ("batch_001.data", b"{}")],
    ),
    "a form without fields": ({"batch_size": "2"}, []),
    "content without a name": ({"batch_size": "2"}, [(None, b"{}")]),
}


@pytest.mark.parametrize(("properties", "contents"), ALONE.values(), ids=[*ALONE])
def test_no_client_makes_a_batch_of_its_request(
    convert: Any, properties: dict[str, str], contents: list[tuple[str | None, bytes]]
) -> None:
    inputs = input_of({**properties, "requestId": "an-id"}, contents)
    assert not convert.is_dynamic_batch(inputs)
    assert not convert.initialises(inputs)
    request = convert.request_of(inputs)
    assert request.request_id == "an-id"
    assert request.body == (b"{}" if contents else b"")


@pytest.mark.parametrize("size", [2, 11, 101, 999])
def test_a_batch_is_one(convert: Any, size: int) -> None:
    """As PyPredictor.batchPredict of djl-serving 0.36 writes it, a client's names among them."""
    properties, contents = {"batch_size": str(size), "handler": "handle"}, []
    for index in range(size):
        prefix = f"batch_{index:03}."
        own = {"requestId": f"id-{index}", "batch_size": "300000", "batch_000.requestId": "another"}
        properties |= {prefix + name: value for name, value in own.items()}
        contents += [(f"{prefix}q", b"1"), (f"{prefix}data", str(index).encode())]
    inputs = input_of(properties, contents)
    assert convert.is_dynamic_batch(inputs)
    requests = convert.requests_of_dynamic_batch(inputs)
    assert [request.request_id for request in requests] == [f"id-{index}" for index in range(size)]
    assert [request.body for request in requests] == [str(index).encode() for index in range(size)]
    assert {request.query["q"] for request in requests} == {"1"}


def test_what_starts_the_engine(convert: Any) -> None:
    """Its properties are the options."""
    assert convert.initialises(input_of({"model_dir": "/opt/ml/model", "handler": "handle"}, []))
