"""What the page is told: the model, and a request for each route of a dialect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lmi.handler.server.playground.facts import setup

from ....kit.api.dialects import DIALECTS, named, receive, routed
from ....kit.api.options import make_settings
from ....kit.api.types import Dialect, EngineInfo, ParsedRequest, Request, Route
from ....kit.rows import each_row

INFO = EngineInfo(engine="scripted", version="1", context=2048, images=2)
HEARS = EngineInfo(engine="scripted", version="1", context=448, audio=1, transcribes=True, answers=False)


def told(**options: str) -> dict[str, Any]:
    return setup(make_settings(**options), INFO)


def requests_of_mine(dialect: Dialect) -> list[dict[str, Any]]:
    told = setup(make_settings(), INFO, (dialect,))
    return [one for one in told["requests"] if one["dialect"] == "mine"]


def requests_of(**options: str) -> dict[str, dict[str, Any]]:
    return {one["title"]: one for one in told(**options)["requests"]}


def test_the_model() -> None:
    model = told(tool_call_parser="hermes", enable_stateful_sessions="true")["model"]
    assert (model["context"], model["engine"]) == (2048, "scripted 1")
    assert model["media"] == {"image": 2, "audio": 0, "video": 0}
    assert (model["tools"], model["reasoning"], model["sessions"], model["lora"]) == ("hermes", None, True, False)


def test_the_limits_have_the_names_of_options() -> None:
    options = {f"max_{what}_bytes": str(at) for at, what in enumerate(("body", "image", "audio", "video"), start=99)}
    assert told(**options)["model"]["limits"] == {name: int(value) for name, value in options.items()}


def test_every_dialect_is_there() -> None:
    """A dialect that joins has an entry, or is here with an empty body."""
    tasks = ("text-generation", "embed", "text-ranking", "text-classification")
    named = {one["dialect"] for task in tasks for one in told(task=task)["requests"]}
    named |= {one["dialect"] for one in setup(make_settings(), HEARS)["requests"]}
    assert named >= {dialect.name for dialect in DIALECTS if any("POST" in one.methods for one in dialect.routes)} | {
        "lmi"
    }


def test_a_model_that_only_hears_is_asked_nothing_else() -> None:
    assert {one["dialect"] for one in setup(make_settings(), HEARS)["requests"]} == {"transcription", "tokens"}
    assert "transcription" not in {one["dialect"] for one in told()["requests"]}


OPTIONS = [
    {"tool_call_parser": "hermes"}, {"tgi_compat": "true"}, {"dialect": "openai"}, {"task": "embed"},
    {"task": "text-ranking"}, {"task": "text-classification"},
]  # fmt: skip


@each_row("options", OPTIONS, ids=str)
def test_every_example_is_understood_here_and_on_an_endpoint(options: dict[str, str]) -> None:
    """By its path on the local server, and by the attributes on /invocations; streamed and whole."""
    settings = make_settings(**options)
    for one in setup(settings, INFO)["requests"]:
        if not one["body"]:
            continue
        sent: list[tuple[str, str, dict[str, Any]]] = [(one["path"], one["attributes"], {})]
        if one["stream"]:
            sent.append((one["path"], one["attributes"], one["stream"]))
        sent += [(one["path"], one["attributes"], switch["set"]) for switch in one["switches"]]
        if one["stream_path"]:
            sent.append((one["stream_path"], one["stream_attributes"], {}))
        for path, attributes, more in sent:
            body = encoded(merged(one["body"], more))
            query = dict(pair.split("=") for pair in filter(None, [one["query"]]))
            here = Request(body, path=path, query=query, attributes=pairs(one["here"]))
            there = Request(body, attributes=pairs(attributes))
            dialects = []
            for request in (here, there):
                made = receive(routed(request), settings)
                assert isinstance(made, ParsedRequest), (one["title"], made)
                assert made.streamed is (more.get("stream") is True or path == one["stream_path"])
                dialects.append(made.dialect)
            assert dialects == [one["dialect"]] * 2


def merged(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    inner = {name: merged(body[name], value) for name, value in more.items() if isinstance(body.get(name), dict)}
    return {**body, **more, **inner}


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()


def pairs(attributes: str) -> dict[str, str]:
    return dict([attributes.split("=", 1)]) if attributes else {}


def test_an_endpoint_is_told_no_more_than_it_needs() -> None:
    requests = requests_of()
    assert requests["Chat completions"]["attributes"] == requests["LMI"]["attributes"] == ""
    assert requests["Azure AI Model Inference"]["attributes"].startswith("route=/chat/completions?api-version=")
    compat = requests_of(tgi_compat="true")
    assert compat["LMI"]["attributes"] == "dialect=lmi"


def test_tools_are_offered_where_calls_are_found() -> None:
    def titles(**options: str) -> list[str]:
        return [one["title"] for one in requests_of(**options)["Chat completions"]["switches"]]

    assert titles() == ["Log-probabilities"]
    assert titles(tool_call_parser="hermes") == ["Log-probabilities", "Offer a tool"]


def test_a_model_that_embeds() -> None:
    offered = {*requests_of(task="embed")}
    assert {"Embeddings", "LMI embeddings"} <= offered
    assert not offered & {"Chat completions", "LMI", "Text Generation Inference", "Minimal chat"}


def test_a_dialect_of_the_users() -> None:
    """With a route, and with none; without an entry of ours."""
    mine = replace(named("minimal"), name="mine", routes=(Route("/mine"),))
    assert [(one["path"], one["attributes"], one["body"]) for one in requests_of_mine(mine)] == [
        ("/mine", "route=/mine", {})
    ]
    mine = replace(mine, routes=())
    assert [(one["path"], one["attributes"]) for one in requests_of_mine(mine)] == [("/invocations", "dialect=mine")]
