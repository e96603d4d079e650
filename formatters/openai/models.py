"""The list of models that OpenAI's clients ask for (GET /v1/models)."""

from __future__ import annotations

import time

import msgspec

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


class ModelList(msgspec.Struct, frozen=True):
    """All of them."""

    data: tuple[Model, ...]
    object: str = "list"


def models(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The one model that an endpoint serves."""
    return Response(encode(ModelList((Model(settings.model_name),))))
