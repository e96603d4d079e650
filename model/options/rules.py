"""The values of options whose rules a row of the table cannot express."""

from __future__ import annotations

from .row import Option

__all__ = ["value_of"]


def value_of(option: Option, text: str) -> object:
    """The value, with the rules that a row cannot express; raises ValueError with what was expected."""
    if text.lower() in option.unsupported_values:
        raise ValueError(f"{option.expected} (this version does not support {option.unsupported_values[text.lower()]})")
    if option.name == "tensor_parallel_degree":
        if text.lower() == "max":
            return None
        if not text.isdecimal() or int(text) < 1:
            raise ValueError("a number of at least 1, or max")
        return int(text)
    if option.name == "dtype" and text.lower() == "int8":
        raise ValueError(f"{option.expected} (for 8-bit weights set option.quantize instead)")
    if option.name == "model_id" and text.startswith("s3://"):
        raise ValueError("a hub id or a path (only DJL Serving downloads s3://, before the handler starts)")
    return option.value(text)
