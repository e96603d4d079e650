"""The management API of adapters: DJL Serving's (AdapterManagementRequestHandler), and that of plain vLLM images.

    POST   /adapters                  name, src; preload (true), pin (false)      registers one
    GET    /adapters                  limit (100), next_page_token                lists them
    GET    /adapters/{name}                                                       tells of one
    POST   /adapters/{name}/update    preload, pin                                changes one
    DELETE /adapters/{name}                                                       takes one away from later requests

and the same under /models/{model}. A request that comes once a POST is read waits until the adapter is loaded, or is
told why it could not be. Adapters are listed from then on, too.

    no parameter, or a wrong one; LoRA is not enabled; the adapter is broken  400
    no such model or adapter, src is no folder                               404
    the name is taken                                                        409
    all slots that may be are pinned                                         507
    no engine at the moment                                                  503
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread
import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from ...model.errors import (
    AdapterExistsError,
    AdapterNotFoundError,
    LmiError,
    ModelNotFoundError,
    ParameterError,
    UnavailableError,
    UnsupportedError,
)
from ..adapters.registry import Entry, Registry
from ..service import Service
from .access import Access
from .body_reading import MAX_CALL, Bodies, EarlyResponse, read_call
from .host_messages import PLACES, AdapterList, AdapterShown, Call, failure, json_answer
from .paths import HttpRoute

__all__ = ["AdapterRoutes"]

MAX_LISTED = 100
"""Adapters in one answer (ListPagination)."""
REMOTE = re.compile("(?!file:)[A-Za-z][A-Za-z0-9+.-]*:")
"""A URL of anything but a file (RFC 3986, 3.1)."""

Action = Callable[[Registry, Call], Awaitable[HttpResponse]]


class AdapterRoutes:
    """The routes of one service; they are there without adapters too, to say so."""

    def __init__(self, service: Service, access: Access, bodies: Bodies) -> None:
        self._service = service
        self._access = access
        self._bodies = bodies

    def routes(self) -> list[HttpRoute]:
        """All of them."""
        found: list[HttpRoute] = []
        for place in PLACES:
            found += [
                self._route(place, GET=self._list, POST=self._register),
                # A name may have a slash. These two have no method in common.
                self._route(f"{place}/{{name:rest}}/update", POST=self._update),
                self._route(f"{place}/{{name:rest}}", GET=self._describe, DELETE=self._unregister),
            ]
        return found

    def _route(self, path: str, **actions: Action) -> HttpRoute:
        async def endpoint(http: HttpRequest) -> HttpResponse:
            return await self._respond(http, actions["GET" if http.method == "HEAD" else http.method])

        return HttpRoute(path, endpoint, methods=[*actions])

    async def _respond(self, http: HttpRequest, action: Action) -> HttpResponse:
        try:
            if refused := self._access.refusal(http.headers):
                raise refused
            body = await read_call(http, self._bodies)
        except ClientDisconnect:
            # Nobody reads it.
            return HttpResponse(status_code=400)
        except LmiError as error:
            return EarlyResponse(failure(error), MAX_CALL)
        try:
            call = Call(http, body)
            return await action(self._registry(call), call)
        except LmiError as error:
            return failure(error)

    def _registry(self, call: Call) -> Registry:
        """The adapters of the model that is meant; raises ModelNotFoundError, UnsupportedError."""
        settings = self._service.settings
        if call.model not in {None, settings.model_name, Path(settings.model_dir).name}:
            raise ModelNotFoundError(f"The model {call.model} was not found", "model")
        if self._service.adapters is None:
            raise UnsupportedError("LoRA is not enabled (option.enable_lora)")
        return self._service.adapters

    def _require_running(self) -> None:
        if self._service.stopping:
            raise UnavailableError("the server is shutting down")

    async def _register(self, registry: Registry, call: Call) -> HttpResponse:
        name, source = call.required("name"), call.required("src")
        preload, pin = call.switch("preload"), call.switch("pin")
        if REMOTE.match(source):
            # Java says so before it asks Python (Adapter.newInstance).
            raise ParameterError("URL adapters are not currently supported", "src")
        self._require_running()
        try:
            # On the event loop: no later request finds it unknown.
            entry = registry.enter(
                name, source, alias=call.alias, preload=preload is not False, pin=bool(pin), anew=True
            )
        except AdapterExistsError:
            advice = "If you want to replace it, unregister it before registering a new one with the same name."
            raise AdapterExistsError(f"The adapter {call.shown(name)} already exists. {advice}", "name") from None
        await anyio.to_thread.run_sync(registry.load, entry)
        return call.done(f"Adapter {call.shown(name)} registered")

    async def _list(self, registry: Registry, call: Call) -> HttpResponse:
        limit, begin = call.number("limit", MAX_LISTED), max(0, call.number("next_page_token", 0))
        entries = registry.registered()
        end = begin + (limit if 0 <= limit <= MAX_LISTED else MAX_LISTED)
        following = str(end) if end < len(entries) else msgspec.UNSET
        return json_answer(AdapterList([_shown(entry) for entry in entries[begin:end]], following))

    async def _describe(self, registry: Registry, call: Call) -> HttpResponse:
        return json_answer(_shown(_registered(registry, call)))

    async def _update(self, registry: Registry, call: Call) -> HttpResponse:
        source, preload, pin = call.text("src") or None, call.switch("preload"), call.switch("pin")
        entry = _registered(registry, call)
        self._require_running()
        await anyio.to_thread.run_sync(lambda: registry.update(call.name, source, preload=preload, pin=pin))
        return call.done(f"Adapter {call.shown(entry.shown)} updated")

    async def _unregister(self, registry: Registry, call: Call) -> HttpResponse:
        try:
            # What could not be loaded is there too: until now requests were told why.
            entry = registry.unregister(call.name)
        except AdapterNotFoundError:
            raise _unknown(call) from None
        return call.done(f"Adapter {call.shown(entry.shown)} unregistered")


def _registered(registry: Registry, call: Call) -> Entry:
    """The one that the path names; raises AdapterNotFoundError."""
    for entry in registry.registered():
        if entry.adapter.name == call.name:
            return entry
    raise _unknown(call)


def _unknown(call: Call) -> AdapterNotFoundError:
    return AdapterNotFoundError(f"The adapter {call.shown(call.name)} was not found", "name")


def _shown(entry: Entry) -> AdapterShown:
    adapter = entry.adapter
    return AdapterShown(adapter.name, adapter.path, adapter.preload, adapter.pin)
