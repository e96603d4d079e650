"""A user's own dialect in one file: `{"say", "stream"}` to `{"said"}`, or a line for each piece of text."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmi.formatters import ParsedRequest, Request, Response, Route
from lmi.model.errors import LmiError, PayloadError
from lmi.model.events import Delta, Event, Failed
from lmi.model.generation import Generation, Sampling

HERE = Path(__file__).parent


def page(request: Request, settings: Any, info: Any) -> Response:
    if "raise" in request.query:
        raise RuntimeError("no page")
    return Response(json.dumps({"engine": info.engine}).encode())


def loud(payload: dict[str, Any], request: Request, settings: Any) -> ParsedRequest:
    if "raise" in payload:
        raise RuntimeError("hoarse")
    return Toy().parse({**payload, "say": payload["say"].upper()}, request, settings)


@dataclass
class Reply:
    """The answer in the making."""

    stream: bool
    mode: str | None = None
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=lambda: {"x-toy": "yes"})
    failure: LmiError | None = None
    finished: bool = False
    text: str = ""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Failed):
            self.finished, self.failure, self.status = True, event.error, event.error.status
            return [json.dumps({"sorry": event.error.message}).encode() + b"\n"]
        if not isinstance(event, Delta):
            return []
        if self.mode == "raise reply" and (self.text or event.finish):
            raise RuntimeError("lost for words")
        if self.mode == "wrong reply":
            return {"said": event.text}  # type: ignore[return-value]
        if self.mode == "slow reply":
            (HERE / "toy.waiting").touch()
            while not (HERE / "toy.release").exists():
                time.sleep(0.01)
        self.text += event.text
        self.finished = event.finish is not None
        if self.stream:
            reason = event.finish.reason if event.finish else None
            return [json.dumps({"piece": event.text, "reason": reason}).encode() + b"\n"]
        return [json.dumps({"said": self.text}).encode()] if self.finished else []


class Toy:
    NAME = "toy"
    BODY_FIELD = "say"
    ROUTES = (Route("/toy"), Route("/toy/about", ("GET",), page=page), Route("/toy/loud", parse=loud))

    def matches(self, payload: dict[str, Any], request: Request, settings: Any) -> bool:
        if payload.get("manner") == "raise matches":
            raise RuntimeError("no idea")
        return "say" in payload

    def parse(self, payload: dict[str, Any], request: Request, settings: Any) -> ParsedRequest:
        mode = payload.get("manner")
        if mode == "raise parse":
            raise RuntimeError("cannot read")
        if mode == "wrong parse":
            return "a call"  # type: ignore[return-value]
        if not isinstance(payload.get("say"), str):
            raise PayloadError.of("say", payload.get("say"), "a string")
        prompt: Any = 5 if mode == "wrong generation" else payload["say"]
        sampling = Sampling(temperature=0.0, max_tokens=payload.get("most", 100))
        stream = payload.get("stream", False)
        generation = Generation(request_id=request.request_id, prompt=prompt, sampling=sampling, stream=stream)
        return ParsedRequest((generation,), Reply(stream, mode))

    def refuse(self, error: LmiError, payload: dict[str, Any] | None, request: Request, settings: Any) -> Response:
        return Response(json.dumps({"sorry": error.message}).encode(), error.status, failure=error)
