"""Which adapter a request names, in any dialect.

    header, query, body's `adapters` --take_names--> names;   `model` --> a name, if it is an adapter's

The first of these that says something decides (djl_python, lmi_vllm; DJL Serving, PyEngine; TGI's `adapter_id`):

    X-Amzn-SageMaker-Adapter-Identifier     a header, or a custom attribute
    ?adapter=                               a query parameter
    adapters, adapter                       a name, or a list with one for each input; "" is the model itself
    parameters.adapter_id                   a name
    model                                   of OpenAI's bodies: an adapter's name; any other is the model itself
    option.default_mm_loras                 of prompts with images
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, cast

import msgspec

from ..model.errors import Fault, ModelNotFoundError, PayloadError, UnsupportedError
from ..model.generation import Conversation, Generation
from ..model.media.parts import media_parts
from ..model.options import Settings
from .base import ParsedRequest, Payload, Request

__all__ = [
    "ADAPTER_HEADER",
    "NAMING",
    "NO_ADAPTERS",
    "AdapterNames",
    "NotReadyError",
    "named_by_request",
    "select",
    "take_names",
    "unknown_model",
    "with_adapters",
    "with_name",
]

ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
QUERY = "adapter"
BODY_FIELDS = ("adapters", "adapter")
PARAMETER = "adapter_id"
NAMING = frozenset((ADAPTER_HEADER.lower(), *BODY_FIELDS, "parameters"))
"""Headers and fields of the body that may name one."""


class NotReadyError(Exception):
    """What the request names is on its way, as an adapter that is being loaded, or a session: the request is to be read
    again when `ready` is done.
    """

    def __init__(self, ready: Future[Any]) -> None:
        self.ready = ready
        super().__init__("what the request names is on its way")


class AdapterNames(Protocol):
    """The adapters that requests may name."""

    @property
    def for_images(self) -> str:
        """The name of the one that prompts with images have which name none; empty: there is none."""
        ...

    def knows(self, name: str) -> bool:
        """Whether there is one of this name or alias."""
        ...

    def key(self, name: str) -> str:
        """What the engine calls it; raises ModelNotFoundError, AdapterError, NotReadyError."""
        ...


class _None:
    for_images = ""

    def knows(self, name: str) -> bool:
        return False

    def key(self, name: str) -> str:
        raise UnsupportedError.because(Fault("adapters", "this endpoint has none (option.enable_lora)"))


NO_ADAPTERS: AdapterNames = _None()


def named_by_request(request: Request) -> str:
    """The name beside the body, or empty."""
    named = request.attributes.get(ADAPTER_HEADER.lower()) or request.headers.get(ADAPTER_HEADER.lower())
    return named or request.query.get(QUERY, "")


def take_names(payload: Payload) -> tuple[str | Sequence[str] | None, Payload]:
    """What the body names, and the body without it; raises PayloadError."""
    given: object = None
    for field in BODY_FIELDS:
        if field in payload:
            given = given or payload[field]
            payload = {name: value for name, value in payload.items() if name != field}
    parameters = payload.get("parameters")
    if isinstance(parameters, dict) and PARAMETER in parameters:
        read = dict(cast("dict[str, Any]", parameters))
        named = read.pop(PARAMETER)
        if not given and named is not None:
            if not isinstance(named, str):
                raise PayloadError.of(f"parameters.{PARAMETER}", named, "an adapter's name")
            given = named
        payload = {name: value for name, value in payload.items() if name != "parameters"}
        if read:
            payload["parameters"] = read
    if given is None or isinstance(given, str):
        return given, payload
    if isinstance(given, list) and all(isinstance(name, str) for name in cast("list[object]", given)):
        return cast("list[str]", given), payload
    raise PayloadError.of("adapters", given, "an adapter's name, or a list of names")


def select(
    named: str | Sequence[str] | None, model: object, request: Request, settings: Settings, adapters: AdapterNames
) -> str | Sequence[str]:
    """The name that counts, or one for each input; empty: the model itself. Raises ModelNotFoundError.

    `named`: what the body names; `model`: its field of that name, where it may name an adapter.
    """
    if beside := named_by_request(request):
        return beside
    if named and (isinstance(named, str) or any(named)):
        return named
    if isinstance(model, str) and model:
        if adapters.knows(model):
            return model
        if settings.unknown_models == "error" and model != settings.model_name:
            raise unknown_model(model)
    return ""


def unknown_model(name: str) -> ModelNotFoundError:
    """The error of a name that is neither the model's nor an adapter's."""
    return ModelNotFoundError(f"model: there is no model {name[:MAX_NAME]!r}", "model")


def with_name(settings: Settings, selected: str | Sequence[str]) -> Settings:
    """The settings by which an answer says what it is from: vLLM's server too gives an adapter's name as `model`."""
    if not isinstance(selected, str) or not selected:
        return settings
    return msgspec.structs.replace(settings, model_name=selected, own_name=settings.model_name)


def with_adapters(call: ParsedRequest, selected: str | Sequence[str], adapters: AdapterNames) -> ParsedRequest:
    """The call whose generations have the adapters that are selected, by the engine's names for them.

    A user's dialect may have named them itself. Raises PayloadError, ModelNotFoundError, AdapterError, NotReadyError.
    """
    generations = call.generations
    unnamed = adapters.for_images
    if not selected and not unnamed and not any(generation.adapter for generation in generations):
        return call
    if isinstance(selected, str):
        names = [selected or generation.adapter or _of_images(generation, unnamed) for generation in generations]
    elif len(selected) == len(generations):
        names = list(selected)
    else:
        expected = f"a name for each of the {len(generations)} inputs"
        raise PayloadError.because(Fault("adapters", expected=expected, given=f"{len(selected)} names"))
    keys = {name: adapters.key(name) for name in dict.fromkeys(names) if name}
    return replace(
        call,
        generations=tuple(
            msgspec.structs.replace(generation, adapter=keys.get(name))
            for generation, name in zip(generations, names, strict=True)
        ),
    )


def _of_images(generation: Generation, name: str) -> str:
    """`name`, if there is one, where there are images in the prompt."""
    prompt = generation.prompt
    if not (name and isinstance(prompt, Conversation)):
        return ""
    return name if any(part.kind == "image" for part in media_parts(prompt)) else ""


MAX_NAME = 256
"""Characters of a name that a message repeats."""
