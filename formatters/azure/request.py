"""What Azure's requests have that OpenAI's have not (docs/decisions.md: Azure requests).

    query api-version                  check_version
    header azureml-model-deployment    check_deployment
    header extra-parameters            read_payload: which fields are let through
    parts with `content`               OpenAI's reader takes them too (openai/messages.py, azure)

The headers may come as custom attributes too: SageMaker lets no others through.
"""

from __future__ import annotations

import re
from datetime import date

from ...model.errors import NotFoundError, PayloadError, one_line
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


def read_payload(payload: Payload, request: Request) -> Payload:
    """What is to be read of the body; raises RequestError."""
    kept = _without_extras(payload, request)
    messages = kept.get("messages")
    if isinstance(messages, list):
        check_number(messages)
        for index, one in enumerate(messages):
            # What is no message OpenAI's reader refuses.
            if isinstance(one, dict) and isinstance(role := one.get("role"), str):
                Text(ROLES).read(f"messages[{index}].role", role)
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
