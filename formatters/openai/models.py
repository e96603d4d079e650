"""The list of models that OpenAI's clients ask for (GET /v1/models)."""

from __future__ import annotations

import time

import msgspec
from msgspec import UNSET, UnsetType

from ...model.engine import EngineInfo
from ...model.options import Settings
from ..base import Request, Response, encode

__all__ = ["ModelList", "models"]

_STARTED = int(time.time())


class Model(msgspec.Struct, frozen=True):
    """A model that can be named in a request."""

    id: str
    object: str = "model"
    created: int = _STARTED
    owned_by: str = "lmi"
    root: str | UnsetType = UNSET
    """Of an adapter, as vLLM's server says it: its folder."""
    parent: str | UnsetType = UNSET
    """Of an adapter: the model."""


class ModelList(msgspec.Struct, frozen=True):
    """All of them."""

    data: tuple[Model, ...]
    object: str = "list"


def models(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The model that an endpoint serves, and its adapters."""
    name = settings.model_name
    adapters = (Model(adapter.name, root=adapter.path, parent=name) for adapter in info.adapters)
    return Response(encode(ModelList((Model(name), *adapters))))
