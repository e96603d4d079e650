"""A service whose requests a test opens itself, many at once, without a host."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api.handler import Exchange, Service
from ..api.options import make_settings
from ..api.types import Request
from .start import own_process

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

__all__ = ["Answer", "Asked"]

LIMIT_S = 120.0
"""Seconds that a request may take."""


@dataclass(frozen=True)
class Answer:
    """What a request got."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body, or the last line of a stream."""
        return self.lines[-1]

    @property
    def lines(self) -> list[Any]:
        """The JSON of each line or event."""
        texts = [line.removeprefix("data: ") for line in self.body.decode().splitlines()]
        return [json.loads(text) for text in texts if text and text != "[DONE]"]

    @property
    def text(self) -> str:
        """What LMI's dialect gives for the one prompt, whole or streamed."""
        assert self.status == 200, self.body
        if "token" in self.lines[0]:
            return "".join(line["token"]["text"] for line in self.lines)
        return str(self.json["generated_text"])

    @property
    def error(self) -> str:
        """The message of LMI's dialect."""
        return str(self.json["error"])


class Asked:
    """The service of a model directory with an engine in a process of its own; a context manager."""

    def __init__(self, model_dir: Path, **options: str) -> None:
        settings = make_settings(model_dir, **options)
        self.engine = own_process(settings)
        self.service = Service(settings, self.engine)
        self.service.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.service.close()

    def open(self, body: object, *, path: str = "", headers: Mapping[str, str] | None = None) -> Exchange:
        sent = Request(body=json.dumps(body).encode(), path=path, headers=dict(headers or {}))
        return self.service.open(sent)

    def wait(self, opened: Exchange) -> Answer:
        """The answer to a request that has been begun."""
        deadline = time.monotonic() + LIMIT_S
        while not opened.finished:
            assert time.monotonic() < deadline, "the request has not ended"
            time.sleep(0.005)
        return Answer(opened.call.reply.status, opened.take_all())

    def post(self, body: object, *, path: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a request."""
        return self.wait(self.open(body, path=path, headers=headers))

    def posts(self, bodies: Sequence[object]) -> list[Answer]:
        """The answers to requests that run at once."""
        return [self.wait(opened) for opened in [self.open(body) for body in bodies]]

    def named(self, name: str, prompt: str, tokens: int = 12, *, stream: bool = False, **parameters: Any) -> Answer:
        """The answer of an adapter, of the model itself where the name is empty."""
        return self.post(self.body(name, prompt, tokens, stream=stream, **parameters))

    @staticmethod
    def body(name: str, prompt: str, tokens: int = 12, *, stream: bool = False, **parameters: Any) -> dict[str, Any]:
        """The request in LMI's dialect."""
        given = {"inputs": prompt, "parameters": {"max_new_tokens": tokens, **parameters}}
        return {**given, **({"adapters": name} if name else {}), **({"stream": True} if stream else {})}
