"""The list of models that OpenAI's clients ask for (GET /v1/models), and one of them (GET /v1/models/{id}); and the
engine's version, which vLLM's ask for (GET /version).
"""

from __future__ import annotations

import time

import msgspec
from msgspec import UNSET, UnsetType

from ...model.engine import EngineInfo
from ...model.options import Settings
from ..adapters import unknown_model
from ..base import Request, Response, encode
from ..dialect import variable_part
from .reply import error_response

__all__ = ["MODEL_PATH", "Model", "ModelList", "Version", "model", "models", "version"]

MODEL_PATH = "/v1/models/{id}"

_STARTED = int(time.time())


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be named in a request."""

    id: str
    object: str = "model"
    created: int = _STARTED
    owned_by: str = "lmi"
    max_model_len: int
    """The longest prompt plus answer, in tokens, as vLLM's server says it."""
    root: str
    """As vLLM's server says it: where the model is, of an adapter its folder."""
    parent: str | UnsetType = UNSET
    """Of an adapter: the model."""


class ModelList(msgspec.Struct, frozen=True):
    """All of them."""

    data: tuple[Model, ...]
    object: str = "list"


def models(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The model that an endpoint serves, and its adapters."""
    return Response(encode(ModelList(_models(settings, info))))


def model(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The one of them that the path names, or an error where there is none."""
    name = variable_part(MODEL_PATH, request.path)
    found = next((one for one in _models(settings, info) if one.id == name), None)
    if found is None:
        return error_response(unknown_model(name))
    return Response(encode(found))


class Version(msgspec.Struct, frozen=True):
    """The engine's: vLLM's, as its server has it."""

    version: str


def version(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """Which version of the engine answers."""
    return Response(encode(Version(info.version)))


def _models(settings: Settings, info: EngineInfo) -> tuple[Model, ...]:
    name, longest = settings.model_name, info.context
    adapters = (Model(id=one.name, root=one.path, parent=name, max_model_len=longest) for one in info.adapters)
    return (Model(id=name, root=settings.model_id, max_model_len=longest), *adapters)
