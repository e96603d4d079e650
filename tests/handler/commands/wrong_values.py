"""Wrong values of each option, by its kind, and what goes wrong between options, models and devices."""

from __future__ import annotations

from collections.abc import Iterator

from ...kit.api.options import OPTIONS, Option

__all__ = ["wrong_values"]

OF_KIND = {
    "bool": ("perhaps",), "int": ("many",), "float": ("much",), "str": ("nosuch",), "choice": ("nosuch",),
    "json": ("{", "[0]"), "list": ("[0",), "engine": ("nosuch", "-2"), "reference": ("no such", "nosuch:thing"),
}  # fmt: skip


def wrong_values() -> Iterator[tuple[str, str]]:
    """Names and values."""
    for option in OPTIONS:
        if option.owner in {"handler", "engine"}:
            yield from ((option.name, text) for text in dict.fromkeys(_wrong(option)))


def _wrong(option: Option) -> Iterator[str]:
    yield from OF_KIND[option.kind]
    yield "nosuch"
    yield from option.unsupported_values
    if option.ge is not None:
        yield f"{option.ge - 1:g}"
