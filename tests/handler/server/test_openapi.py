"""/openapi.json against the routes that there are, the tables that requests are read by, and what dialects answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import msgspec
import pytest
from starlette.routing import Route as HttpRoute

from lmi.handler.server.openapi import HOST, document

from ...fuzz.samples import REFUSED, SAMPLES, Sample
from ...kit.api.dialects import CHAT_TABLE, DIALECTS, TEXT_TABLE, receive
from ...kit.api.errors import LmiError
from ...kit.api.handler import Access, Service, Workers, application, dialect_of
from ...kit.api.options import typed_settings
from ...kit.api.types import JSON, Dialect, OpenApi, ParsedRequest, Payload, Request, Response, Route, Settings
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

SETTINGS = typed_settings()


def server_of(settings: Settings, own: tuple[Any, ...] = (), key: str | None = None) -> Any:
    """The application without an engine: the document needs none."""
    service = SimpleNamespace(settings=settings, dialects=own, engine=ScriptedEngine())
    return application(cast(Service, service), Access(key))


USUAL: dict[str, dict[str, Any]] = {}


def usual(settings: Settings) -> dict[str, Any]:
    """Of the dialects that there are, as it is sent."""
    if repr(settings) not in USUAL:
        USUAL[repr(settings)] = json.loads(json.dumps(document(server_of(settings).routes, (), settings)))
    return USUAL[repr(settings)]


def document_of(settings: Settings = SETTINGS, own: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    if not own and not more:
        return usual(settings)
    made = document(server_of(settings, own).routes, own, settings, **more)
    # As it is sent.
    read: dict[str, Any] = json.loads(json.dumps(made))
    return read


def operations(made: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


VARIANTS = [
    SETTINGS,
    msgspec.structs.replace(SETTINGS, tgi_compat=True),
    msgspec.structs.replace(SETTINGS, rolling_batch="disable"),
    msgspec.structs.replace(SETTINGS, task="embed"),
    msgspec.structs.replace(SETTINGS, dialect="minimal"),
    msgspec.structs.replace(SETTINGS, parameter_schema="trtllm"),
]
NAMES = ["usual", "tgi_compat", "dynamic", "embed", "dialect", "trtllm"]


@each_row("settings", VARIANTS, ids=NAMES)
def test_every_route_is_told_of_and_no_other(settings: Settings) -> None:
    there = {
        (route.path_format, method.lower())
        for route in server_of(settings).routes
        # The playground's are for the page itself.
        if isinstance(route, HttpRoute) and route.include_in_schema
        for method in (route.methods or set()) - {"HEAD"}
    }
    told = {(path, method) for path, method, _ in operations(document_of(settings))}
    assert told == there
    assert {("/invocations", "post"), ("/chat/sse", "get"), ("/openapi.json", "get"), ("/ping", "get")} <= told


def test_every_route_of_ours_is_described() -> None:
    """One that is not would be told of as anything at all."""
    for known in DIALECTS:
        assert all(isinstance(one, OpenApi) for one in known.openapi)
        assert [route.path for route in known.routes if route.described is None] == []
    dialects = {route.path for known in DIALECTS for route in known.routes}
    paths = {
        route.path_format
        for route in server_of(SETTINGS).routes
        if isinstance(route, HttpRoute) and route.include_in_schema
    }
    assert paths - dialects - set(HOST) == {"/predictions/{name}"}


@cache
def check_schema(text: str) -> None:
    """Each part once for all documents, as most are the same: around it, one that is a schema is as good as `true`."""
    schema = json.loads(text)
    for key, inner in schema.items() if isinstance(schema, dict) else ():
        match key, inner:
            case "properties" | "$defs", dict():
                schema[key] = {name: checked(one) for name, one in inner.items()}
            case "anyOf" | "oneOf" | "allOf" | "prefixItems", list():
                schema[key] = [checked(one) for one in inner]
            case "items" | "additionalProperties" | "not", dict():
                schema[key] = checked(inner)
            case _:
                pass
    jsonschema.Draft202012Validator.check_schema(schema)


def checked(schema: Any) -> bool:
    check_schema(json.dumps(schema))
    return True


def test_a_part_that_is_no_schema_is_found() -> None:
    for inner in ({"type": "strange"}, {"minimum": "1"}, 5):
        for outer in (
            {"properties": {"a": inner}},
            {"anyOf": [{}, {"items": inner}]},
            {"not": {"$defs": {"a": inner}}},
        ):
            with pytest.raises(jsonschema.SchemaError):
                check_schema(json.dumps(outer))


@each_row("settings", VARIANTS, ids=NAMES)
def test_the_schemas_are_schemas_and_what_they_refer_to_is_there(settings: Settings) -> None:
    made = document_of(settings)

    def visit(value: Any, schema: bool = False) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].removeprefix("#/components/schemas/") in made["components"]["schemas"]
            if "schema" in value and isinstance(value["schema"], dict):
                check_schema(json.dumps(value["schema"]))
            for inner in value.values():
                visit(inner)
        elif isinstance(value, list):
            for inner in value:
                visit(inner)

    visit(made)
    for schema in made["components"]["schemas"].values():
        check_schema(json.dumps(schema))
    identities = [operation["operationId"] for _, _, operation in operations(made)]
    assert len(identities) == len(set(identities))


def test_every_parameter_of_the_tables_is_told_of() -> None:
    made = document_of()["paths"]
    chat = made["/v1/chat/completions"]["post"]["requestBody"]["content"][JSON]["schema"]["properties"]
    assert set(chat) == {row.name for row in CHAT_TABLE}
    text = made["/v1/completions"]["post"]["requestBody"]["content"][JSON]["schema"]["properties"]
    assert set(text) == {row.name for row in TEXT_TABLE}
    assert chat["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
    assert chat["guided_regex"] == {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}
    generate = made["/generate"]["post"]["requestBody"]["content"][JSON]["schema"]["properties"]
    grammar = generate["parameters"]["anyOf"][0]["properties"]["grammar"]["anyOf"][0]
    assert grammar["anyOf"][0]["required"] == ["type", "value"]


def resolved(made: dict[str, Any], schema: dict[str, Any]) -> Any:
    """A validator of a schema of the document, in which an object has no other keys than those that are told."""

    def closed(value: Any) -> Any:
        if isinstance(value, dict):
            inner = {key: closed(one) for key, one in value.items()}
            if "properties" in value and "additionalProperties" not in value:
                inner["additionalProperties"] = False
            return inner
        return [closed(one) for one in value] if isinstance(value, list) else value

    return jsonschema.Draft202012Validator({**closed(schema), "components": closed(made["components"])})


def request_schema(made: dict[str, Any], sample: Sample) -> Any:
    operation = made["paths"][sample.path]["post"]
    return jsonschema.Draft202012Validator(operation["requestBody"]["content"][JSON]["schema"])


@each_row("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_documented_sample_fits_the_requests_schema(sample: Sample) -> None:
    settings = msgspec.convert({**msgspec.structs.asdict(SETTINGS), **sample.settings}, Settings)
    received = receive(Request(json.dumps(sample.body).encode(), path=sample.path, query=sample.query), settings)
    assert isinstance(received, ParsedRequest), received
    request_schema(document_of(settings), sample).validate(sample.body)


@each_row("sample", REFUSED, ids=lambda sample: sample.name)
def test_what_the_schema_refuses_is_refused_in_the_form_that_is_told(sample: Sample) -> None:
    settings = msgspec.convert({**msgspec.structs.asdict(SETTINGS), **sample.settings}, Settings)
    made = document_of(settings)
    assert not request_schema(made, sample).is_valid(sample.body)
    answer = receive(Request(json.dumps(sample.body).encode(), path=sample.path, query=sample.query), settings)
    assert isinstance(answer, Response)
    responses = made["paths"][sample.path]["post"]["responses"]
    told = responses["200" if answer.status == 200 else "4XX"]["content"]
    assert answer.content_type in told
    schema = told[answer.content_type].get("x-itemSchema", told[answer.content_type]["schema"])
    body = answer.body.decode()
    (data,) = [line for line in body.replace("data: [END]", "").splitlines() if line.startswith(("{", "data: "))]
    resolved(made, schema).validate(json.loads(data.removeprefix("data: ")))


# --- Users' dialects ---


class Told(msgspec.Struct):
    """An answer of a user's dialect."""

    said: str


class Own:
    """A dialect of a user's."""

    NAME = "own"
    BODY_FIELD = "ask"
    OPENAPI: tuple[Any, ...] = (
        OpenApi("Asks", lambda _: {"type": "object", "required": ["ask"]}, {JSON: (Told,)}, {JSON: (Told,)}),
    )
    ROUTES: tuple[Route, ...] = (Route("/ask", described=OPENAPI[0]), Route("/bare"))

    def matches(self, payload: Payload, request: Request, settings: Settings) -> bool:
        return False

    def parse(self, payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
        raise NotImplementedError

    def refuse(self, error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
        raise NotImplementedError


def own(shape: type[Own]) -> Dialect:
    return dialect_of(shape, "mine", Workers(1))


def test_a_users_dialect_is_told_of() -> None:
    made = document_of(own=(own(Own),))
    asked = made["paths"]["/ask"]["post"]
    assert asked["requestBody"]["content"][JSON]["schema"] == {"type": "object", "required": ["ask"]}
    assert made["components"]["schemas"]["Told"]["required"] == ["said"]
    by_body = made["paths"]["/invocations"]["post"]["requestBody"]["content"][JSON]["schema"]["anyOf"]
    assert {"type": "object", "required": ["ask"]} in by_body
    assert made["paths"]["/bare"]["post"]["requestBody"]["content"][JSON]["schema"] == {"type": "object"}


def broken(settings: Settings) -> dict[str, Any]:
    raise ValueError("broken")


@pytest.mark.parametrize(
    "described",
    [
        OpenApi("Broken", broken, {JSON: (object(),)}, {}),
        OpenApi("Broken", lambda _: {"type": {1}}, {JSON: (complex,)}, {}),
        "no description",
    ],
    ids=["raises", "no JSON", "no description"],
)
def test_a_users_dialect_that_tells_nonsense_harms_nobody(described: Any) -> None:
    class Wrong(Own):
        OPENAPI = (described,)
        ROUTES = (Route("/ask", described=described if isinstance(described, OpenApi) else None),)

    made = document_of(own=(own(Wrong),))
    assert made["paths"]["/ask"]["post"]["requestBody"]["content"][JSON]["schema"] == {"type": "object"}
    assert set(made["paths"]) > set(document_of()["paths"])


def test_the_key() -> None:
    assert "security" not in document_of()
    made = document_of(key=True)
    assert made["security"] == [{"bearer": []}, {"key": []}]
    free = {path for path, _, operation in operations(made) if operation.get("security") == []}
    assert free == {"/ping", "/health"}
