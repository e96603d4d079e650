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
