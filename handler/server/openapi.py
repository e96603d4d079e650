"""The local server's /openapi.json (OpenAPI 3.1), made of its real routes and of what dialects say of theirs.

    route --_documents--> [OpenApi, ...] --_operation--> parameters, request body, answers, errors
    types of the bodies --msgspec--> components

A path that several dialects share has one operation: its body may be any of theirs. A stream is text to OpenAPI 3.1;
`x-itemSchema` says what each of its records is (a JSON line, or the data of a server-sent event).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from ...formatters import DIALECTS, Dialect, Route
from ...formatters.base import JSON
from ...formatters.common.schemas import STRING, one_of
from ...formatters.detection import documents_by_body
from ...formatters.dialect import UNDESCRIBED, JsonSchema, OpenApi
from ...model import VERSION
from ...model.options import Settings
from .cancel import OPENAPI as CANCEL
from .host_messages import OPENAPI as ADAPTERS
from .paths import BY_BODY

__all__ = ["HOST", "document"]

log = logging.getLogger(__name__)

OPENAPI_VERSION = "3.1.0"
COMPONENTS = "#/components/schemas/"
TEXT = "text/plain"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"

STATUS: JsonSchema = {"type": "object", "properties": {"status": STRING}, "required": ["status"]}
UNHEALTHY: JsonSchema = {
    "type": "object",
    "properties": {"error": STRING, "error_type": STRING},
    "required": ["error", "error_type"],
}

PAGES: Mapping[str, OpenApi] = {
    "/ping": OpenApi("Whether the engine is healthy", answers={JSON: (STATUS,)}, errors={JSON: (STATUS,)}),
    "/health": OpenApi(
        "Whether the engine is healthy, in the form of TGI", answers={JSON: (STATUS,)}, errors={JSON: (UNHEALTHY,)}
    ),
    "/metrics": OpenApi(
        "Prometheus' metrics",
        answers={TEXT: (STRING,), "application/openmetrics-text": (STRING,)},
        errors={TEXT: (STRING,)},
    ),
    "/openapi.json": OpenApi("This document", answers={JSON: ({"type": "object"},)}, errors={TEXT: (STRING,)}),
}
HOST: Mapping[str, Mapping[str, OpenApi]] = {path: {"GET": page} for path, page in PAGES.items()} | {
    **ADAPTERS,
    **CANCEL,
}
"""The host's own routes, by path and method. One that is not in it is described by the first line of its function's
docstring."""
OPEN = ("/ping", "/health")
"""Those that need no key."""


def document(
    routes: Iterable[BaseRoute], user_dialects: Sequence[Dialect], settings: Settings, *, key: bool = False
) -> dict[str, Any]:
    """The document of a server with these routes. `key`: whether an API key is needed."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if not isinstance(route, HttpRoute) or not route.include_in_schema:
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operation = _operation(route, method, user_dialects, settings, schemas)
            if route.path_format in OPEN and key:
                operation["security"] = []
            paths.setdefault(route.path_format, {})[method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas.components()}
    security: dict[str, Any] = {}
    if key:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "api-key"},
        }
        security["security"] = [{"bearer": []}, {"key": []}]
    about = {"title": f"lmi: {settings.model_name}", "version": VERSION}
    return {"openapi": OPENAPI_VERSION, "info": about, "paths": paths, "components": components, **security}


Documented = tuple[OpenApi, Route | None]
"""A document, and the dialect's route that it is of; None: it is found by the body."""


def _documents(route: HttpRoute, method: str, user_dialects: Sequence[Dialect], settings: Settings) -> list[Documented]:
    """The documents of a route, each with its dialect's own route; none for routes of the host that have none.

    `option.dialect` takes precedence over the path, except for pages.
    """
    if route.path_format in HOST:
        return [(HOST[route.path_format][method], None)]
    dialects = (*user_dialects, *DIALECTS)
    path = BY_BODY[0] if route.path_format in BY_BODY else route.path_format
    own_routes = [
        (known, one) for known in dialects for one in known.routes if one.path == path and method in one.methods
    ]
    by_body = route.path_format in BY_BODY
    found: list[Documented] = [(one.described or UNDESCRIBED, one) for _, one in own_routes]
    pages = any(one.page for _, one in own_routes)
    if settings.dialect and (by_body or found) and not pages:
        (dialect,) = (known for known in dialects if settings.dialect == known.name)
        # A path that is its own means what it always does.
        its = [(one.described or UNDESCRIBED, one) for known, one in own_routes if known is dialect]
        return [*its] or [(one, None) for one in dialect.openapi]
    if by_body:
        found += [(one, None) for one in documents_by_body(settings, user_dialects)]
    return found


def _operation(
    route: HttpRoute, method: str, user_dialects: Sequence[Dialect], settings: Settings, schemas: _Schemas
) -> dict[str, Any]:
    documented = _documents(route, method, user_dialects, settings)
    identity = re.sub(r"[^A-Za-z0-9]+", "_", f"{method.lower()}{route.path_format}").strip("_")
    if not documented:
        summary = (route.endpoint.__doc__ or route.path_format).strip().splitlines()[0]
        return {"operationId": identity, "summary": summary, "responses": {"default": {"description": "The response"}}}
    described = list({id(one): one for one, _ in documented}.values())
    operation: dict[str, Any] = {
        "operationId": identity,
        "summary": "; ".join(one.summary for one in described if one.summary) or route.path_format,
        "parameters": _parameters(route, method, documented, settings),
        "responses": _responses(documented, schemas),
    }
    requests = [_request(one, settings) for one in described if one.request is not None]
    if requests and method == "POST":
        required = not any(one.query for one in described)
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": one_of(*requests)}}}
    return operation


def _request(described: OpenApi, settings: Settings) -> JsonSchema:
    """The schema of a body; any object where user code cannot tell."""
    assert described.request is not None
    try:
        schema = described.request(settings)
        json.dumps(schema)
    except Exception:
        log.exception("the schema of a request could not be made: %s", described.summary)
        return {"type": "object"}
    return schema


def _parameters(
    route: HttpRoute, method: str, documented: Sequence[Documented], settings: Settings
) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name in route.param_convertors:
        found["path", name] = {"name": name, "in": "path", "required": True, "schema": STRING}
    for described, one in documented:
        if one is not None and one.query:
            # Where another dialect has the path too, that one is meant without it.
            needed = all(other is not None and other.query == one.query for _, other in documented)
            found["query", one.query] = {"name": one.query, "in": "query", "required": needed, "schema": STRING}
        if method == "GET" and one is not None and one.body and described.request is not None:
            content = {JSON: {"schema": _request(described, settings)}}
            found["query", one.body] = {"name": one.body, "in": "query", "required": True, "content": content}
        for name, schema in described.query.items():
            found["query", name] = {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in described.headers.items():
            found["header", name] = {"name": name, "in": "header", "required": False, "schema": schema}
    if route.path_format in BY_BODY:
        about = "k=v pairs, separated by semicolons; dialect=NAME selects the dialect, route=PATH another path"
        found["header", ATTRIBUTES] = {
            "name": ATTRIBUTES, "in": "header", "required": False, "schema": STRING, "description": about
        }  # fmt: skip
    return list(found.values())


def _responses(documented: Sequence[Documented], schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    answers = _contents((one.answers for one, _ in documented), schemas)
    if answers:
        responses["200"] = {"description": "The response", "content": answers}
    errors = _contents((one.errors for one, _ in documented), schemas)
    if documented and all(one is not None and one.query for _, one in documented):
        # Without the query parameter nobody has the path.
        errors.setdefault(TEXT, {"schema": STRING})
    if errors:
        responses["4XX"] = {"description": "The request is refused; the message is one line", "content": errors}
        responses["5XX"] = {"description": "The engine is unavailable, or failed during the request", "content": errors}
    return responses


def _contents(given: Iterable[Mapping[str, tuple[Any, ...]]], schemas: _Schemas) -> dict[str, Any]:
    """By content type, what may come."""
    kinds: dict[str, list[JsonSchema]] = {}
    for mapping in given:
        for content_type, types in mapping.items():
            listed = kinds.setdefault(content_type, [])
            for kind in types:
                schema = schemas.of(kind)
                if not any(one is schema for one in listed):
                    listed.append(schema)
    return {
        content_type: {"schema": one_of(*listed) if listed else {}}
        if content_type == JSON
        else {"schema": STRING, "x-itemSchema": one_of(*listed) if listed else {}}
        for content_type, listed in kinds.items()
    }


class _Schemas:
    """The schemas of types. They are made together at the end, so that types of one name get names that differ."""

    def __init__(self) -> None:
        self._made: dict[Any, JsonSchema] = {}

    def of(self, kind: Any) -> JsonSchema:
        """A schema as it is; of a type, one that `components` fills."""
        if isinstance(kind, dict):
            return kind
        return self._made.setdefault(kind, {})

    def components(self) -> dict[str, JsonSchema]:
        """What the schemas refer to."""
        kinds = [kind for kind in self._made if _can_be_documented(kind)]
        made, components = msgspec.json.schema_components(kinds, ref_template=COMPONENTS + "{name}")
        for kind, schema in zip(kinds, made, strict=True):
            self._made[kind].update(_renamed(schema))
        return {_name(name): _answered(_renamed(schema)) for name, schema in components.items()}


def _can_be_documented(kind: Any) -> bool:
    try:
        msgspec.json.schema_components([kind])
    except Exception:
        log.exception("no schema can be made of %r", kind)
        return False
    return True


def _name(name: str) -> str:
    return name.removeprefix("lmi.formatters.")


def _renamed(schema: Any) -> Any:
    """The schema with references to the components' own names."""
    if isinstance(schema, dict):
        return {
            key: COMPONENTS + _name(value.removeprefix(COMPONENTS)) if key == "$ref" else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(inner) for inner in schema] if isinstance(schema, list) else schema


def _answered(schema: JsonSchema) -> JsonSchema:
    """The schema of a response: a field with a default is always there. Our docstrings are left out."""
    properties: Mapping[str, JsonSchema] = schema.get("properties", {})
    required = [*schema.get("required", ())]
    required += [name for name, schema in properties.items() if "default" in schema and name not in required]
    kept = {key: value for key, value in schema.items() if key not in {"required", "description"}}
    return {**kept, "required": required} if required else kept
