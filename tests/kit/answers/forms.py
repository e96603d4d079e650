"""The least that a request of each dialect has, in each of its forms, and where it goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lmi.formatters import ParsedRequest, Request, Response, receive
from lmi.model.options import Settings

__all__ = ["CONVERSATIONS", "FORMS", "USER", "Form"]

USER: dict[str, Any] = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {"messages": [USER]}


@dataclass(frozen=True)
class Form:
    """A request. `attributes` and `headers` are the host's, `settings` those that are not the usual ones."""

    dialect: str
    path: str
    body: Mapping[str, Any]
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inner: str = ""
    """The field that has the parameters of generation, if one does."""

    def with_parameters(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The body with parameters of generation in their place."""
        return {**self.body, **({self.inner: parameters} if self.inner else parameters)}

    def named(self, parameter: str) -> str:
        """What the client calls a parameter of generation."""
        return f"{self.inner}.{parameter}" if self.inner else parameter

    def request(self, **fields: Any) -> Request:
        """The body with these fields, sent."""
        body = json.dumps({**self.body, **fields}).encode()
        return Request(body, self.headers, self.query, self.attributes, self.path, request_id="7")

    def answer(self, settings: Settings, **fields: Any) -> ParsedRequest | Response:
        """What becomes of it."""
        return receive(self.request(**fields), msgspec.structs.replace(settings, **self.settings))

    def asked(self, settings: Settings, **fields: Any) -> ParsedRequest:
        """The same, which must be accepted."""
        found = self.answer(settings, **fields)
        assert isinstance(found, ParsedRequest), found.body
        assert found.dialect == self.dialect
        return found


PASS = {"extra-parameters": "pass-through"}
"""Azure's, for what its API does not have."""
FORMS: dict[str, Form] = {
    "chat": Form("openai", "/v1/chat/completions", CHAT),
    "text": Form("openai", "/v1/completions", {"prompt": "Hi"}),
    "embeddings": Form("openai", "/v1/embeddings", {"input": "Hi"}, settings={"task": "embed"}),
    "responses": Form("responses", "/v1/responses", {"input": [USER]}),
    "anthropic": Form("anthropic", "/v1/messages", {**CHAT, "max_tokens": 8}),
    "azure": Form("azure", "/chat/completions", CHAT, {"api-version": "2024-05-01-preview"}, PASS),
    "minimal": Form("minimal", "/chat/completions", {**CHAT, "model": "m"}),
    "lmi": Form("lmi", "/invocations", {"inputs": "Hi"}, inner="parameters"),
    "vectors": Form("lmi", "/invocations", {"inputs": "Hi"}, settings={"task": "embed"}, inner="parameters"),
    "dynamic": Form("dynamic", "/invocations", {"inputs": "Hi"}, attributes={"dialect": "dynamic"}, inner="parameters"),
    "tgi": Form("tgi", "/generate", {"inputs": "Hi"}, inner="parameters"),
    "tokens": Form("tokens", "/tokenize", CHAT),
    "transcription": Form("transcription", "/v1/audio/transcriptions", {"file": "UklGRg=="}),
    "rerank": Form("rerank", "/rerank", {"query": "Hi", "documents": ["a"]}, settings={"task": "rank"}),
}
CONVERSATIONS = ("chat", "azure", "minimal", "responses", "anthropic", "tokens")
"""Those whose prompt is a conversation."""
