"""What Azure's requests have that OpenAI's have not (specs 004; wire-decisions: Azure).

    query api-version                  check_version
    header azureml-model-deployment    check_deployment
    header extra-parameters            read_payload: which fields are let through
    parts with `content`               read_payload: in OpenAI's form, for its reader

The headers may come as custom attributes too: SageMaker lets no others through.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import date
from typing import Any

from ...model.errors import NotFoundError, ParameterError, PayloadError, one_line
from ...model.options import Settings
from ..base import Payload, Request
from ..common.kinds import Text
from ..openai.messages import check_number
from ..openai.subset import TEXT_FIELDS, refuse_others

__all__ = [
    "ACCEPTED_FIELDS",
    "API_VERSION",
    "DEPLOYMENT",
    "EXTRAS",
    "FIELDS",
    "ROLES",
    "check_deployment",
    "check_version",
    "read_payload",
]

API_VERSION = "api-version"
EXTRAS = "extra-parameters"
DEPLOYMENT = "azureml-model-deployment"

FIELDS = frozenset(
    {
        "messages", "frequency_penalty", "max_tokens", "presence_penalty", "response_format", "seed", "stop", "stream",
        "temperature", "tool_choice", "tools", "top_p",
        # Not the document's, but Azure's client sends it for endpoints of several models.
        "model",
    }
)  # fmt: skip
"""What is no extra parameter."""

ACCEPTED_FIELDS = (
    FIELDS | TEXT_FIELDS | {"n", "logprobs", "top_logprobs", "parallel_tool_calls", "stream_options.include_usage"}
)
"""These and the extra parameters that are let through: what OpenAI's reader knows and these answers show."""

ROLES = ("system", "user", "assistant", "tool", "developer")
DETAILS = ("auto", "low", "high")

VERSION = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(-preview)?")

IMAGES: Mapping[bytes, str] = {
    rb"\x89PNG": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8": "image/gif",
    rb"RIFF....WEBP": "image/webp",
}
"""Types of images by what their first bytes match."""


def check_version(request: Request) -> None:
    """Raises PayloadError for what is not a version. None is needed where something else selects the dialect."""
    given = request.query.get(API_VERSION)
    if given is None:
        return
    found = VERSION.fullmatch(given)
    try:
        date.fromisoformat(found[1] if found else "")
    except ValueError:
        expected = "a version of the form YYYY-MM-DD or YYYY-MM-DD-preview"
        raise PayloadError.of(API_VERSION, given, expected) from None


def check_deployment(request: Request, settings: Settings) -> None:
    """Raises NotFoundError for a deployment that is not the one that is served."""
    given = _header(request, DEPLOYMENT)
    if given and given != settings.model_name:
        raise NotFoundError.of(DEPLOYMENT, given, f"the deployment that is served, {settings.model_name!r}")


def read_payload(payload: Payload, request: Request) -> Payload:
    """The body as OpenAI's reader takes it; raises RequestError."""
    kept = _without_extras(payload, request)
    messages = kept.get("messages")
    if isinstance(messages, list):
        check_number(messages)
        kept = {**kept, "messages": [_message(one, f"messages[{index}]") for index, one in enumerate(messages)]}
    return kept


def _header(request: Request, name: str) -> str:
    return request.headers.get(name) or request.attributes.get(name) or ""


def _without_extras(payload: Payload, request: Request) -> Payload:
    mode = _header(request, EXTRAS).strip().lower() or "error"
    if mode == "pass-through":
        refuse_others(payload, ACCEPTED_FIELDS)
        return payload
    if mode in ("ignore", "drop"):
        # `drop` is what Azure's client calls it.
        return {name: value for name, value in payload.items() if name in FIELDS}
    if mode != "error":
        raise PayloadError.of(EXTRAS, mode, "pass-through, ignore or error")
    for name, value in payload.items():
        if value is not None and name not in FIELDS:
            shown = one_line(name[:256])[:64]
            how = f"the header {EXTRAS}: pass-through lets it through, ignore drops it"
            raise PayloadError(f"{shown}: an extra parameter, which this API does not have; {how}", shown)
    return payload


def _message(given: Any, place: str) -> Any:
    """The message with its parts in OpenAI's form; what is no message its reader refuses."""
    if not isinstance(given, dict):
        return given
    message: dict[str, Any] = given
    if isinstance(message.get("role"), str):
        Text(ROLES).read(f"{place}.role", message["role"])
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, f"{place}.content[{index}]") for index, part in enumerate(content)]}


def _part(given: Any, place: str) -> Any:
    """`{"type", "content", "detail"}`, the document's form, as `{"type", "text"}` or `{"type", "image_url"}`."""
    if not isinstance(given, dict) or given.get("type") not in ("text", "image", "image_url"):
        return given
    part: dict[str, Any] = given
    kind = part["type"]
    own = "text" if kind == "text" else "image_url"
    if part.get("content") is None:
        return {**part, "type": own}
    if part.get(own) is not None:
        raise ParameterError(f"{place}.content: cannot be combined with {own}", f"{place}.content")
    content = Text().read(f"{place}.content", part["content"])
    rest = {name: value for name, value in part.items() if name not in ("type", "content", "detail")}
    if kind == "text":
        return {**rest, "type": "text", "text": content}
    image = {"url": _url(content, f"{place}.content")}
    if part.get("detail") is not None:
        image["detail"] = Text(DETAILS).read(f"{place}.detail", part["detail"])
    return {**rest, "type": "image_url", "image_url": image}


def _url(content: str, place: str) -> str:
    """A URL as it is; base64 as a URL that holds it."""
    if re.match("[A-Za-z][A-Za-z0-9+.-]*:", content):
        return content
    packed = "".join(content.split())
    try:
        data = b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    kind = next((kind for mark, kind in IMAGES.items() if re.match(mark, data, re.DOTALL)), None)
    if kind is None:
        raise ParameterError.of(place, content, "a URL, or a PNG, JPEG, GIF or WebP image in base64")
    return f"data:{kind};base64,{packed}"
