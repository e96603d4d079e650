"""Hosts with adapters: what each should answer, how it is asked, and how adapters come and go behind DJL Serving.

What should be answered is what transformers does with the adapter merged into the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ...kit.hosts.host import Host
from ...kit.models.adapted import Adapted
from ...kit.models.merged import Greediest

__all__ = ["MOST", "Served", "completion", "error_of", "lmi", "streamed_text", "text_of"]

MOST = 8
"""Tokens of an answer."""


def lmi(prompt: str, **more: Any) -> dict[str, Any]:
    """A request in LMI's dialect."""
    parameters = {"max_new_tokens": MOST, **more.pop("parameters", {})}
    return {"inputs": prompt, "parameters": parameters, **more}


def completion(prompt: str | list[str], **more: Any) -> dict[str, Any]:
    """One in OpenAI's."""
    return {"prompt": prompt, "max_tokens": MOST, "temperature": 0, **more}


def text_of(answer: httpx.Response) -> str:
    """The text of a whole answer, in any of the dialects."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    if isinstance(told, list):
        (told,) = told
    return str(told["generated_text"] if "generated_text" in told else told["choices"][0]["text"])


def error_of(answer: httpx.Response) -> str:
    """Its message: in rolling batch and async mode Java writes the bodies of refusals."""
    error = answer.json()["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def streamed_text(answer: httpx.Response) -> str:
    """That of a stream."""
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    documents = [json.loads(line) for line in lines if line != "[DONE]"]
    texts = [
        one["outputs"][0] if "outputs" in one else one["token"]["text"] if "token" in one else one["choices"][0]["text"]
        for one in documents
    ]
    return "".join(texts)


@dataclass
class Served:
    """A host, and what its adapters should answer."""

    kind: str
    host: Host
    adapted: Adapted

    @property
    def waits(self) -> bool:
        """Whether the management API answers with the outcome."""
        return self.kind != "async"

    def known(self, name: str) -> Greediest:
        return self.adapted.one(name)

    async def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        async with httpx.AsyncClient(verify=False, timeout=120) as http:
            return await http.request(method, f"{self.host.url}{path}", **sent)

    async def post(
        self, body: object, headers: Mapping[str, str] | None = None, *, path: str = "/invocations"
    ) -> httpx.Response:
        return await self.ask("POST", path, json=body, headers=dict(headers or {}))

    async def text(self, name: str, prompt: str) -> str:
        return text_of(await self.post(lmi(prompt, adapters=name)))

    async def error(self, name: str) -> str:
        answer = await self.post(lmi("x", adapters=name))
        assert answer.status_code == 424, answer.text
        return error_of(answer)

    async def add(self, name: str, source: Path, **options: str) -> httpx.Response:
        return await self.ask("POST", "/adapters", params={"name": name, "src": str(source), **options})

    async def remove(self, name: str) -> httpx.Response:
        return await self.ask("DELETE", f"/models/demo/adapters/{name}")

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
