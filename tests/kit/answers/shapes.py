"""The shape of a JSON value: its keys in their order, and the types of what is in it."""

from __future__ import annotations

from typing import Any

__all__ = ["shape_of"]


def shape_of(value: Any) -> Any:
    """Objects as lists of (key, shape), lists as the list of shapes that they have, all else as the type's name."""
    if isinstance(value, dict):
        return [(key, shape_of(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        shapes: list[Any] = []
        for inner in value:
            if (shape := shape_of(inner)) not in shapes:
                shapes.append(shape)
        return shapes
    return type(value).__name__
