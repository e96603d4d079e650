"""What Java reads of an async worker's socket."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lmi.handler.djl.modes.async_mode import TRACKING_ID

__all__ = ["Told", "outputs_of"]


class Reader:
    """Reads what Java reads (CodecUtils, OutputDecoder: 16-bit counts, 32-bit lengths, -1 for none; big-endian)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def bytes(self) -> bytes | None:
        length = self.number(">i")
        if length < 0:
            return None
        self.at += length
        assert self.at <= len(self.data)
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        value = self.bytes()
        assert value is not None
        return value.decode()


@dataclass
class Told:
    """One Output: whose it is, its other properties, and its frame."""

    whose: str
    headers: dict[str, str]
    frame: dict[str, str]


def outputs_of(message: bytes) -> list[Told]:
    reader = Reader(message)
    told: list[Told] = []
    while reader.at < len(message):
        assert (reader.number(">h"), reader.text()) == (200, "OK")
        properties = {reader.text(): reader.text() for _ in range(reader.number(">h"))}
        assert (reader.number(">h"), reader.bytes()) == (1, None)
        content = reader.bytes()
        assert content is not None
        inner = Reader(content)
        frame = {inner.text(): inner.text() for _ in range(inner.number(">h"))}
        assert inner.at == len(content)
        told.append(Told(properties.pop(TRACKING_ID), properties, frame))
    return told
