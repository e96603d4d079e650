"""Which adapter a request names, in each dialect: how it may say so, what goes first, what is refused."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from lmi.formatters import NO_ADAPTERS, NotReadyError, ParsedRequest, Request, Response, Route, receive

from ..kit.answers.events import end, feed
from ..kit.answers.forms import FORMS
from ..kit.api.dialects import DIALECTS, named
from ..kit.api.errors import AdapterError, LmiError, ModelNotFoundError
from ..kit.api.handler import Workers, attributes_of, dialect_of
from ..kit.api.options import typed_settings
from ..kit.api.types import Delta, Encoder, Event, Generation, Payload, Settings, Started
from ..kit.rows import each_row

HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


@dataclass
class Names:
    """An AdapterNames with `a` and `b`, one that is being loaded and one that is broken."""

    asked: list[str] = field(default_factory=list[str])
    for_images: str = ""

    def knows(self, name: str) -> bool:
        return name in {"a", "b", "loading", "broken", "alias"}

    def key(self, name: str) -> str:
        self.asked.append(name)
        match name:
            case "a" | "b":
                return f"{name}#1"
            case "alias":
                return "a#1"
            case "loading":
                raise NotReadyError(Future())
            case "broken":
                raise AdapterError("adapter broken could not be loaded: no weights", "adapters")
            case _:
                raise ModelNotFoundError(f"adapters: adapter {name!r} is not registered", "adapters")


every_form = each_row("form", FORMS)
IN_LMIS_FORM = ("lmi", "vectors", "dynamic")


def ask(
    form: str,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
    names: Any = None,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> ParsedRequest | Response:
    """What comes of the form's body with these fields and headers."""
    shape = FORMS[form]
    request = replace(
        shape.request(**fields),
        headers={**shape.headers, **{name.lower(): value for name, value in (headers or {}).items()}},
        query={**shape.query, **(query or {})},
        attributes={**attributes_of((headers or {}).items()), **shape.attributes},
    )
    # What nobody reads of a body would be refused.
    given = {"model_name": "served", "unknown_parameters": "error", **shape.settings, **(options or {})}
    return receive(request, typed_settings(**given), adapters=Names() if names is None else names)


def keys(found: ParsedRequest | Response) -> list[str | None]:
    assert isinstance(found, ParsedRequest), found.body
    return [generation.adapter for generation in found.generations]


def refused(found: ParsedRequest | Response) -> tuple[int, LmiError]:
    assert isinstance(found, Response)
    assert found.failure is not None
    return found.status, found.failure


WITH_MODEL = [name for name, form in FORMS.items() if named(form.dialect).names_model]


def test_every_dialect_has_a_form() -> None:
    assert {form.dialect for form in FORMS.values()} == {known.name for known in DIALECTS}


@every_form
def test_a_request_that_names_none_has_none(form: str) -> None:
    assert keys(ask(form)) == [None]
    nothings: list[Any] = [None, "", []]
    for nothing in nothings:
        assert keys(ask(form, {HEADER: ""}, {"adapter": ""}, adapters=nothing, adapter=nothing)) == [None]


@every_form
@each_row(
    "way",
    [
        {"headers": {HEADER: "a"}},
        {"headers": {HEADER.upper(): "a"}},
        {"headers": {HEADER.lower(): "a"}},
        {"headers": {ATTRIBUTES: f"trace=1;{HEADER}=a"}},
        {"headers": {ATTRIBUTES: f"{HEADER.lower()}=a"}},
        {"query": {"adapter": "a"}},
        {"adapters": "a"},
        {"adapters": ["a"]},
        {"adapter": "a"},
        {"adapters": "", "adapter": "a"},
        {"parameters": {"adapter_id": "a"}},
        {"adapters": None, "parameters": {"adapter_id": "a"}},
    ],
    ids=str,
)
def test_each_way_to_name_one(form: str, way: dict[str, Any]) -> None:
    assert keys(ask(form, **way)) == ["a#1"]


@each_row("form", WITH_MODEL)
def test_a_model_that_is_an_adapter_is_that(form: str) -> None:
    assert keys(ask(form, model="a")) == ["a#1"]
    assert keys(ask(form, model="alias")) == ["a#1"]
    for other in ("", "served", "lmi", "gpt-4o"):
        assert keys(ask(form, model=other)) == [None]


def test_a_list_of_empty_names_says_nothing() -> None:
    assert keys(ask("chat", adapters=[""], model="a")) == ["a#1"]
    assert keys(ask("lmi", adapters=["", ""])) == [None]


@each_row("form", [form for form in FORMS if form not in WITH_MODEL])
def test_other_dialects_have_no_model(form: str) -> None:
    assert keys(ask(form, model="a", options={"unknown_parameters": "ignore"})) == [None]


def test_what_is_nearer_to_the_host_goes_first() -> None:
    ways: list[dict[str, Any]] = [
        {"headers": {ATTRIBUTES: f"{HEADER}=a"}},
        {"headers": {HEADER: "a"}},
        {"query": {"adapter": "a"}},
        {"adapters": "a"},
        {"adapter": "a"},
        {"parameters": {"adapter_id": "a"}},
        {"model": "a"},
    ]
    for at, first in enumerate(ways):
        for second in ways[at + 1 :]:
            other = {name: _with_b(value) for name, value in second.items()}
            if first.keys() != other.keys():
                assert keys(ask("chat", **first, **other)) == ["a#1"], (first, other)


def _with_b(value: Any) -> Any:
    if not isinstance(value, dict):
        return "b"
    return {name: text.replace("=a", "=b") if "=" in text else "b" for name, text in value.items()}


def test_the_header_goes_for_all_inputs_whatever_the_body_says() -> None:
    prompts: dict[str, Any] = {"prompt": ["x", "y", "z"]}
    assert keys(ask("text", {HEADER: "a"}, **prompts, adapters=["b", "", "b"])) == ["a#1"] * 3
    # Not even of the wrong length: nobody looks at it.
    assert keys(ask("text", {HEADER: "a"}, **prompts, adapters=["b"])) == ["a#1"] * 3


def test_a_list_names_one_for_each_input_and_a_name_is_for_all() -> None:
    prompts: dict[str, Any] = {"prompt": ["x", "y", "z"]}
    assert keys(ask("text", **prompts, adapters=["a", "", "b"])) == ["a#1", None, "b#1"]
    assert keys(ask("text", **prompts, adapters="a")) == ["a#1"] * 3
    assert keys(ask("embeddings", input=["x", "y"], adapters=["b", "a"])) == ["b#1", "a#1"]
    assert keys(ask("vectors", inputs=["x", "y"], adapters=["b", ""])) == ["b#1", None]


SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@each_row("form", ["chat", "azure"])
def test_a_prompt_with_images_that_names_none_has_that_of_images(form: str) -> None:
    pictured: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, PICTURE]}]}
    assert keys(ask(form, names=Names(for_images="b"), **pictured)) == ["b#1"]
    heard: dict[str, Any] = {"messages": [{"role": "user", "content": [SOUND]}]}
    assert keys(ask(form, names=Names(for_images="b"), **heard)) == [None]
    assert keys(ask(form, names=Names(for_images="b"))) == [None]
    assert keys(ask(form, names=Names(), **pictured)) == [None]
    for way in ({"headers": {HEADER: "a"}}, {"adapters": "a"}, {"model": "a"}):
        assert keys(ask(form, names=Names(for_images="b"), **pictured, **cast("dict[str, Any]", way))) == ["a#1"]


def test_each_name_is_looked_up_once() -> None:
    names = Names()
    ask("text", names=names, prompt=["x", "y", "z"], adapters=["a", "a", "b"])
    assert names.asked == ["a", "b"]


@every_form
def test_a_list_of_the_wrong_length_is_refused(form: str) -> None:
    status, failure = refused(ask(form, adapters=["a", "b"]))
    assert failure.message == "adapters: expected a name for each of the 1 inputs, got 2 names"
    assert failure.param == "adapters"
    assert status == (424 if form in IN_LMIS_FORM else 422 if form == "tgi" else 400)


@every_form
@each_row(
    ("fields", "field_name"),
    [
        ({"adapters": 1}, "adapters"),
        ({"adapters": 0}, "adapters"),
        ({"adapters": False}, "adapters"),
        ({"adapters": {"name": "a"}}, "adapters"),
        ({"adapters": ["a", 1]}, "adapters"),
        ({"adapters": [None]}, "adapters"),
        ({"adapter": ["a", ["b"]]}, "adapters"),
        ({"parameters": {"adapter_id": 1}}, "parameters.adapter_id"),
        ({"parameters": {"adapter_id": ["a"]}}, "parameters.adapter_id"),
    ],
)
def test_what_is_no_name_is_refused(form: str, fields: dict[str, Any], field_name: str) -> None:
    _, failure = refused(ask(form, **fields))
    assert failure.message.startswith(f"{field_name}: expected an adapter's name")
    assert failure.param == field_name


def test_an_unknown_one_is_refused_without_a_word_about_others() -> None:
    """In LMI's dialect as everything else is; in OpenAI's as an unknown model, whatever the way it was named."""
    ways: list[dict[str, Any]] = [
        {"headers": {HEADER: "c"}}, {"query": {"adapter": "c"}}, {"adapters": "c"}, {"adapters": ["c"]},
    ]  # fmt: skip
    for way in ways:
        status, failure = refused(ask("lmi", **way))
        assert (status, failure.message) == (424, "adapters: adapter 'c' is not registered")
        found = ask("chat", **way)
        assert isinstance(found, Response)
        assert found.status == 404
        error = json.loads(found.body)["error"]
        assert error.pop("message") == "adapters: adapter 'c' is not registered"
        assert error["code"] == "model_not_found"
    statuses = {form: refused(ask(form, adapters="c"))[0] for form in FORMS}
    assert statuses == {form: 424 if form in IN_LMIS_FORM else 404 for form in FORMS}


@every_form
def test_a_broken_one_is_refused_with_its_cause(form: str) -> None:
    status, failure = refused(ask(form, adapters="broken"))
    assert (status, failure.message) == (424, "adapter broken could not be loaded: no weights")


@every_form
@each_row("way", [{"headers": {HEADER: "loading"}}, {"adapters": "loading"}])
def test_one_that_is_being_loaded_is_waited_for(form: str, way: dict[str, Any]) -> None:
    with pytest.raises(NotReadyError):
        ask(form, **way)


def test_what_is_wrong_with_the_body_is_told_at_once() -> None:
    status, failure = refused(ask("lmi", adapters="loading", parameters={"temperature": "hot"}))
    assert status == 424
    assert failure.param == "parameters.temperature"


@each_row("form", WITH_MODEL)
def test_an_unknown_model_is_refused_where_the_option_says_so(form: str) -> None:
    options = {"unknown_models": "error"}
    status, failure = refused(ask(form, options=options, model="gpt-4o"))
    assert (status, failure.code, failure.message) == (404, "model_not_found", "model: there is no model 'gpt-4o'")
    for known, key in (("served", None), ("", None), ("a", "a#1")):
        assert keys(ask(form, options=options, model=known)) == [key]
    # Who names an adapter is not asked what the model is.
    assert keys(ask(form, {HEADER: "a"}, options=options, model="gpt-4o")) == ["a#1"]


@every_form
@each_row(
    "way",
    [
        {"headers": {HEADER: "a"}},
        {"headers": {ATTRIBUTES: f"{HEADER}=a"}},
        {"query": {"adapter": "a"}},
        {"adapters": "a"},
        {"adapters": ["a"]},
        {"parameters": {"adapter_id": "a"}},
    ],
    ids=str,
)
def test_without_adapters_a_request_that_names_one_is_refused(form: str, way: dict[str, Any]) -> None:
    """To answer from the model itself would be wrong."""
    _, failure = refused(ask(form, names=NO_ADAPTERS, **way))
    assert failure.message == "adapters: this endpoint has none (option.enable_lora)"
    assert failure.kind == "UnsupportedError"


@each_row("form", ["chat", "text", "azure"])
def test_an_answer_is_from_the_adapter_by_name(form: str) -> None:
    def model_of(found: ParsedRequest | Response) -> object:
        assert isinstance(found, ParsedRequest)
        (record,) = feed(found.reply, Started(1), Delta(0, "Hello", finish=end()))
        return json.loads(record)["model"]

    assert model_of(ask(form)) == "served"
    assert model_of(ask(form, {HEADER: "a"})) == "a"
    assert model_of(ask(form, model="alias")) == "alias"
    assert model_of(ask(form, model="gpt-4o")) == "served"


def test_azures_deployment_is_the_endpoint_whatever_the_adapter() -> None:
    header = "azureml-model-deployment"
    assert keys(ask("azure", {header: "served"}, model="a")) == ["a#1"]
    _, failure = refused(ask("azure", {header: "other"}, model="a"))
    assert failure.message == f"{header}: expected the deployment that is served, 'served', got 'other'"


def test_a_dialect_of_the_users_names_them_itself() -> None:
    """Its bodies may mean anything by `adapters`; the header goes first all the same."""

    class Never(Encoder):
        """It is never fed."""

        def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
            raise AssertionError(event)

    class Users:
        NAME: str = "users"
        BODY_FIELD: str = ""
        ROUTES: tuple[Route, ...] = ()
        OPENAPI = ()

        def matches(self, payload: Payload, request: Request, settings: Settings) -> bool:
            return True

        def parse(self, payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
            generation = Generation(request_id="r", prompt=(1,), adapter=payload.get("adapter_of_mine"))
            return ParsedRequest((generation, generation), Never())

        def refuse(self, error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
            return Response(error.message.encode(), error.status, failure=error)

    def read(body: dict[str, Any], headers: dict[str, str] | None = None) -> ParsedRequest | Response:
        request = Request(json.dumps(body).encode(), attributes=attributes_of((headers or {}).items()))
        return receive(request, typed_settings(), [dialect_of(Users(), "it", Workers(1))], adapters=Names())

    assert keys(read({"adapters": [1, 2, 3]})) == [None, None]
    assert keys(read({"adapter_of_mine": "b"})) == ["b#1", "b#1"]
    assert keys(read({"adapter_of_mine": "b"}, {HEADER: "a"})) == ["a#1", "a#1"]
    assert refused(read({"adapter_of_mine": "c"}))[0] == 404


def test_the_parameters_beside_it_stay() -> None:
    found = ask("lmi", parameters={"adapter_id": "a", "max_new_tokens": 7})
    assert isinstance(found, ParsedRequest)
    assert found.generations[0].sampling.max_tokens == 7
