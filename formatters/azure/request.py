"""What Azure's requests have that OpenAI's have not (docs/decisions.md: Azure requests).

    query api-version                  check_version
    header azureml-model-deployment    check_deployment
    header extra-parameters            read_payload: which fields are let through
    parts with `content`               PARTS

The headers may come as custom attributes too: SageMaker lets no others through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from ...model.errors import Fault, NotFoundError, PayloadError, one_line
from ...model.options import Settings
from ..base import Payload, Request
from ..common.fields import Table, two_values
from ..common.kinds import Text
from ..conversation.content import Content, PartForm
from ..conversation.media import DETAIL, MediaUrl
from ..openai.messages import PARTS as OPENAI_PARTS
from ..openai.messages import message_form
from ..openai.parameters import chat_rows
from ..openai.subset import TEXT_FIELDS, refuse_others

__all__ = [
    "ACCEPTED_FIELDS",
    "API_VERSION",
    "CHAT_ROWS",
    "DEPLOYMENT",
    "DESCRIBED",
    "EXTRAS",
    "FIELDS",
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
    FIELDS | TEXT_FIELDS | {"n", "logprobs", "top_logprobs", "return_tokens_as_token_ids", "parallel_tool_calls"}
    | {"stream_options.include_usage"}
)  # fmt: skip
"""These and the extra parameters that are let through: what OpenAI's reader knows and these answers show."""


def _text(read: dict[str, Any], content: Content, place: str, settings: Settings) -> None:
    _one(read, "text", place)
    content.text(read["text"] if "text" in read else read["content"])


def _image(read: dict[str, Any], content: Content, place: str, settings: Settings) -> None:
    _one(read, "image_url", place)
    content.media("image", *(read["image_url"] if "image_url" in read else read["content"]))


def _one(read: dict[str, Any], usual: str, place: str) -> None:
    """Raises RequestError unless there is the one or the other name of what a part says, or both with one value."""
    if usual in read and "content" in read and _said(read[usual]) != _said(read["content"]):
        raise two_values(f"{place}.content", usual)
    if usual not in read and "content" not in read:
        raise PayloadError(f"{place}: expected a field {usual} or content", f"{place}.{usual}")


def _said(read: Any) -> Any:
    """A text, or an image's URL without the place that it comes from."""
    return read[0] if isinstance(read, tuple) else read


URL = MediaUrl(base64=True)
IMAGE = PartForm({"image_url": URL, "content": URL, "detail": DETAIL, "uuid": None, "cache_control": None}, add=_image)
PARTS: Mapping[str, PartForm] = {
    "text": PartForm({"text": Text(), "content": Text(), "cache_control": None}, add=_text),
    "image_url": IMAGE,
    "image": IMAGE,
    "audio_url": OPENAI_PARTS["audio_url"],
    "input_audio": OPENAI_PARTS["input_audio"],
    "refusal": OPENAI_PARTS["refusal"],
}
"""A part's text or image may be called `content`, and an image's type `image` (ChatCompletionMessageContentPart)."""
MESSAGES = message_form(("system", "user", "assistant", "tool", "developer"), PARTS)
CHAT_ROWS = chat_rows(MESSAGES)
DESCRIBED = Table((row for row in CHAT_ROWS.values() if row.name in FIELDS), ("messages",))
"""What is not the document's is let through, dropped or refused, as a header says."""

VERSION = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(-preview)?")


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
    served = settings.own_name or settings.model_name
    if given and given != served:
        raise NotFoundError.of(DEPLOYMENT, given, f"the deployment that is served, {served!r}")


def _header(request: Request, name: str) -> str:
    return request.headers.get(name) or request.attributes.get(name) or ""


def read_payload(payload: Payload, request: Request) -> Payload:
    """What is to be read of the body; raises RequestError."""
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
            raise PayloadError.because(Fault(shown, f"an extra parameter, which this API does not have; {how}"))
    return payload
