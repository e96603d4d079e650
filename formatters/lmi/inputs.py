"""`inputs` where it may be several texts: in dynamic batches, and on models that embed."""

from __future__ import annotations

from typing import cast

from ...model.errors import ParameterError, PayloadError
from ..base import Payload

__all__ = ["INPUTS", "texts_of"]

INPUTS = 1024
"""Texts in one body."""


def texts_of(payload: Payload) -> list[str]:
    """At least one text, none of them empty; raises PayloadError and ParameterError."""
    expected = "a non-empty string or a list of them"
    if "inputs" not in payload:
        raise PayloadError(f"inputs: expected {expected}, but there is no such field", "inputs")
    given = payload["inputs"]
    if isinstance(given, str) and given:
        return [given]
    if not isinstance(given, list) or not given:
        raise PayloadError.of("inputs", given, expected)
    if len(given) > INPUTS:
        raise ParameterError(f"inputs: expected at most {INPUTS} texts, got {len(given)}", "inputs")
    for index, text in enumerate(given):
        if not isinstance(text, str) or not text:
            raise PayloadError.of(f"inputs[{index}]", text, "a non-empty string")
    return cast("list[str]", given)
