"""Headers that several hosts read or send."""

from __future__ import annotations

from ..formatters import Answer
from ..formatters.base import Reply

__all__ = ["ATTRIBUTES_HEADER", "attributes_of", "headers_of"]

ATTRIBUTES_HEADER = "x-amzn-sagemaker-custom-attributes"
"""What `invoke_endpoint(CustomAttributes=...)` sends, in lower case."""


def attributes_of(header: str) -> dict[str, str]:
    """The `k=v` pairs of a custom attributes header; what is no pair is left out.

    Commas separate them, as clients write them, or semicolons, at which DJL Serving's newer front end splits.
    """
    pairs = (pair.partition("=") for pair in header.replace(";", ",").split(","))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}


def headers_of(reply: Reply | Answer) -> dict[str, str]:
    """The headers of an answer but those of its length, with Retry-After where the same request may succeed later."""
    headers = {"Content-Type": reply.content_type, **reply.headers}
    if reply.status >= 400 and reply.failure is not None and reply.failure.retry_after is not None:
        headers["Retry-After"] = str(reply.failure.retry_after)
    return headers
