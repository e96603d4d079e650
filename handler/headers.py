"""Request headers that several hosts read."""

from __future__ import annotations

__all__ = ["ATTRIBUTES_HEADER", "attributes_of"]

ATTRIBUTES_HEADER = "x-amzn-sagemaker-custom-attributes"
"""What `invoke_endpoint(CustomAttributes=...)` sends, in lower case."""


def attributes_of(header: str) -> dict[str, str]:
    """The `k=v` pairs of a custom attributes header; what is no pair is left out.

    Commas separate them, as clients write them, or semicolons, at which DJL Serving's newer front end splits.
    """
    pairs = (pair.partition("=") for pair in header.replace(";", ",").split(","))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}
