"""Ranks, scores and classes: what is asked of the engine, and the answers, with numbers fed by hand."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest

from ...kit.api.dialects import MAX_TEXTS, azure, receive, refusal, tgi
from ...kit.api.errors import ContextError, GenerationError, LmiError, OverloadedError
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    Conversation,
    Delta,
    EngineInfo,
    Event,
    Failed,
    Finish,
    Message,
    ParsedRequest,
    Request,
    Response,
    Scoring,
    Settings,
    Started,
)
from ...kit.rows import each_row

NAME = "rerank"
RANKS = typed_settings(task="rank")
CLASSIFIES = typed_settings(task="classify")
EMBEDS = typed_settings(task="embed")
GENERATES = typed_settings()
HI = [{"role": "user", "content": "Hi"}]
QUERY = "What is a panda?"
DOCUMENTS = ["hi", {"text": "a bear"}, "a car"]
LABELS = ("bad", "good")


def call(body: object, settings: Settings = RANKS, path: str = "/invocations", **attributes: str) -> ParsedRequest:
    request = Request(json.dumps(body).encode(), path=path, attributes=attributes, request_id="7")
    received = receive(request, settings)
    assert isinstance(received, ParsedRequest), received
    assert received.dialect == NAME
    return received


def refused(body: object, settings: Settings = RANKS, path: str = "/invocations") -> Response:
    received = receive(Request(json.dumps(body).encode(), path=path), settings)
    assert isinstance(received, Response)
    return received


def events(*numbers: float, tokens: int = 3, labels: tuple[str, ...] = ()) -> list[Event]:
    vector = struct.pack(f"<{len(numbers)}f", *numbers)
    return [Started(tokens), Delta(0, "", finish=Finish("eos"), vector=vector, labels=labels)]


def answer(asked: ParsedRequest, *each: list[Event]) -> Any:
    """The body, where generations end in another order than they began in."""
    assert len(each) == len(asked.generations)
    records: list[bytes] = []
    for number, given in reversed([*enumerate(each)]):
        for event in given:
            assert not asked.reply.finished
            records += asked.reply.feed(event, number)
    assert asked.reply.finished
    (record,) = records
    assert (asked.reply.status, asked.reply.content_type) == (200, "application/json")
    return json.loads(record)


def failed(asked: ParsedRequest, error: LmiError) -> tuple[int, Any]:
    (record,) = asked.reply.feed(Failed.of(error), 0)
    return asked.reply.status, json.loads(record)


@each_row("path", ["/invocations", "/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked(path: str) -> None:
    asked = call({"query": QUERY, "documents": DOCUMENTS, "model": "any", "return_documents": True}, path=path)
    assert [one.prompt for one in asked.generations] == [QUERY] * 3
    assert [one.scoring for one in asked.generations] == [Scoring(document=text) for text in ["hi", "a bear", "a car"]]
    named = [asked.fields.name(path, 2) for path in ("prompt", "scoring.document")]
    assert named == ["query", "documents[2]"]
    told = answer(asked, events(0.25), events(0.75), events(0.25))
    assert told.pop("id").startswith("rerank-")
    versions = {"/v1/rerank": "1", "/v2/rerank": "2"}
    if path in versions:
        assert told.pop("meta") == {"api_version": {"version": versions[path]}, "billed_units": {"search_units": 1}}
    assert told == {
        "model": RANKS.model_name,
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "results": [
            {"index": 1, "relevance_score": 0.75, "document": {"text": "a bear"}},
            {"index": 0, "relevance_score": 0.25, "document": {"text": "hi"}},
            {"index": 2, "relevance_score": 0.25, "document": {"text": "a car"}},
        ],
    }


@each_row(("top_n", "count"), [(0, 3), (1, 1), (2, 2), (9, 3), (None, 3)])
def test_top_n(top_n: int | None, count: int) -> None:
    asked = call({"query": QUERY, "documents": DOCUMENTS, "top_n": top_n})
    assert len(answer(asked, events(0.1), events(0.3), events(0.2))["results"]) == count


@each_row(
    ("path", "given", "shown"),
    [
        ("/rerank", None, True), ("/v1/rerank", None, True), ("/v2/rerank", None, False), ("/v2/rerank", True, True),
        ("/rerank", False, False),
    ],
)  # fmt: skip
def test_return_documents(path: str, given: bool | None, shown: bool) -> None:
    asked = call({"query": QUERY, "documents": ["a"], "return_documents": given}, path=path)
    (result,) = answer(asked, events(0.5))["results"]
    assert ("document" in result) is shown


def test_what_the_plain_fields_say() -> None:
    fields = {
        "max_tokens_per_doc": 5, "max_tokens_per_query": 4, "truncate_prompt_tokens": 9, "truncation_side": "left",
        "use_activation": False, "instruction": "i", "chat_template_kwargs": {"a": 1}, "rank_fields": ["text"],
    }  # fmt: skip
    (one,) = call({"query": QUERY, "documents": "d", **fields}).generations
    assert one.scoring == Scoring(
        document="d", activation=False, truncate=9, cut="left", query_tokens=4,
        document_tokens=5, template_arguments={"a": 1, "instruction": "i"},
    )  # fmt: skip
    (one,) = call({"query": QUERY, "documents": "d", "truncate_prompt_tokens": -1, "max_tokens_per_doc": 0}).generations
    assert one.scoring == Scoring(document="d", truncate=True)


def test_a_model_that_embeds_ranks_by_the_cosine() -> None:
    asked = call({"query": QUERY, "documents": DOCUMENTS}, EMBEDS)
    assert [one.prompt for one in asked.generations] == [QUERY, "hi", "a bear", "a car"]
    assert all(one.embedding is not None and one.embedding.normalize for one in asked.generations)
    told = answer(asked, events(0.6, 0.8), events(1, 0), events(0.6, 0.8), events(0, 1))
    assert [one["index"] for one in told["results"]] == [1, 2, 0]
    assert [one["relevance_score"] for one in told["results"]] == pytest.approx([1, 0.8, 0.6])
    scored = call({"queries": ["a", "b"], "documents": ["c", "d"]}, EMBEDS)
    told = answer(scored, events(1, 0), events(0, 1), events(0.6, 0.8), events(0.6, 0.8))
    assert [one["score"] for one in told["data"]] == pytest.approx([0.6, 0.8])
    raw = call({"query": "a", "texts": ["c"]}, EMBEDS)
    assert answer(raw, events(1, 0), events(1, 0)) == [{"index": 0, "score": 1}]
    error = json.loads(refused({"query": "a", "documents": ["c"], "max_tokens_per_doc": 3}, EMBEDS).body)
    assert error["message"] == "max_tokens_per_doc: this model makes embeddings, which have none"


@each_row("settings", [RANKS, EMBEDS], ids=["ranks", "embeds"])
def test_as_many_as_there_may_be(settings: Settings) -> None:
    """Whatever the model, a request has at most 2048 generations."""
    most = ["a"] * MAX_TEXTS
    assert len(call({"queries": most, "documents": most}, settings).generations) <= 2048
    error = json.loads(refused({"query": "a", "documents": [*most, "b"]}, settings).body)
    assert error["message"] == f"documents: expected at most {MAX_TEXTS} texts, got {MAX_TEXTS + 1}"


@each_row("names", [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")])
@each_row(
    ("one", "other", "pairs"),
    [("a", "b", [("a", "b")]), ("a", ["b", "c"], [("a", "b"), ("a", "c")]),
     (["a", "x"], ["b", "c"], [("a", "b"), ("x", "c")])],
)  # fmt: skip
@each_row("path", ["/invocations", "/score", "/v1/score"])
def test_pairs_are_scored(path: str, names: tuple[str, str], one: Any, other: Any, pairs: list[Any]) -> None:
    asked = call({names[0]: one, names[1]: other}, path=path)
    found = [(each.prompt, each.scoring.document) for each in asked.generations if each.scoring]
    assert found == pairs
    told = answer(asked, *(events(index / 2, tokens=4) for index in range(len(pairs))))
    assert told.pop("id").startswith("score-")
    assert isinstance(told.pop("created"), int)
    assert told == {
        "object": "list",
        "model": RANKS.model_name,
        "data": [{"index": index, "object": "score", "score": index / 2} for index in range(len(pairs))],
        "usage": {"prompt_tokens": 4 * len(pairs), "total_tokens": 4 * len(pairs)},
    }


@each_row("path", ["/invocations", "/classify"])
@each_row("given", ["a", ["a", "b"], [1, 2], [[1, 2], [3]]], ids=str)
def test_texts_are_classified(path: str, given: Any) -> None:
    asked = call({"input": given}, CLASSIFIES, path)
    assert all(one.scoring == Scoring(classes=True) for one in asked.generations)
    count = len(asked.generations)
    told = answer(asked, *[events(0.25, 0.75, labels=LABELS)] * count)
    assert told["object"] == "list"
    assert told["data"] == [
        {"index": index, "label": "good", "probs": [0.25, 0.75], "num_classes": 2} for index in range(count)
    ]
    assert told["usage"] == {"prompt_tokens": 3 * count, "total_tokens": 3 * count}


@each_row(("path", "settings"), [("/classify", CLASSIFIES), ("/invocations", CLASSIFIES), ("/invocations", RANKS)])
def test_a_conversation_is_classified(path: str, settings: Settings) -> None:
    asked = call({"messages": [{"role": "user", "content": "Hi"}]}, settings, path)
    (one,) = asked.generations
    assert one.prompt == Conversation(messages=(Message("user", "Hi"),), add_generation_prompt=False)
    assert asked.fields.name("prompt") == "messages"


@each_row("path", ["/invocations", "/rerank"])
def test_teis_ranks(path: str) -> None:
    asked = call({"query": QUERY, "texts": ["a", "b"]}, path=path)
    assert all(one.scoring is not None and one.scoring.activation is False for one in asked.generations)
    assert answer(asked, events(-1.0), events(2.0)) == [
        {"index": 1, "score": pytest.approx(1 / (1 + math.exp(-2)))},
        {"index": 0, "score": pytest.approx(1 / (1 + math.exp(1)))},
    ]
    asked = call({"query": QUERY, "texts": ["a", "b"], "raw_scores": True, "return_text": True, "truncate": True})
    assert asked.generations[0].scoring == Scoring(document="a", activation=False, truncate=True)
    assert answer(asked, events(-1.0), events(2.0)) == [
        {"index": 1, "score": 2, "text": "b"},
        {"index": 0, "score": -1, "text": "a"},
    ]


BEST = [{"score": 0.75, "label": "good"}, {"score": 0.25, "label": "bad"}]


@each_row("path", ["/invocations", "/predict"])
@each_row(
    ("inputs", "pairs", "single"),
    [
        ("a", [("a", None)], True),
        (["a"], [("a", None)], True),
        (["a", "b"], [("a", "b")], True),
        ([["a"], ["b", "c"]], [("a", None), ("b", "c")], False),
    ],
    ids=str,
)
def test_teis_predictions(path: str, inputs: Any, pairs: list[Any], single: bool) -> None:
    asked = call({"inputs": inputs}, CLASSIFIES, path)
    assert [(one.prompt, one.scoring.document) for one in asked.generations if one.scoring] == pairs
    told = answer(asked, *[events(0.25, 0.75, labels=LABELS)] * len(pairs))
    assert told == (BEST if single else [BEST] * len(pairs))


def test_teis_fields_may_be_parameters() -> None:
    (one,) = call({"inputs": "a", "parameters": {"raw_scores": True, "truncate": 5}}, CLASSIFIES).generations
    assert one.scoring == Scoring(classes=True, activation=False, truncate=5)


@each_row(
    ("body", "path", "message"),
    [
        ({"query": 5, "documents": ["a"]}, "/rerank", "query: expected a string, or an object with a field text"),
        ({"query": "", "documents": ["a"]}, "/rerank", "query: expected a non-empty string"),
        ({"documents": ["a"]}, "/rerank", "query: expected a text to rank by, but there is no such field"),
        (
            {"query": "a"},
            "/v1/rerank",
            "documents: expected a list of texts, each a string or an object with a field text, but there is no",
        ),
        ({"query": "a", "documents": []}, "/v2/rerank", "documents: expected a list of texts, each a string"),
        ({"query": "a", "documents": ["a", 5]}, "/rerank", "documents[1]: expected a string, or an object"),
        ({"query": "a", "documents": [{"text": 1}]}, "/rerank", "documents[0].text: expected a string, got 1"),
        ({"query": "a", "documents": [{"content": []}]}, "/rerank", "documents[0].content: expected a field text"),
        ({"query": "a", "documents": ["a"], "top_n": -1}, "/rerank", "top_n: expected an integer >= 0, got -1"),
        ({"query": "a", "documents": ["a"], "stream": True}, "/rerank", "stream: expected False, the only value"),
        (
            {"query": "a", "documents": ["a"], "truncate_prompt_tokens": 0},
            "/rerank",
            "truncate_prompt_tokens: ",
        ),
    ],
    ids=str,
)
def test_errors_of_ranks(body: Any, path: str, message: str) -> None:
    """Both forms in one, as vLLM's clients and Cohere's go to the same paths."""
    found = refused(body, path=path)
    told = json.loads(found.body)
    assert found.status == 400
    assert told.keys() == {"error", "message"}
    assert told["error"].keys() == {"message", "type", "param", "code"}
    assert told["error"]["message"] == told["message"]
    assert told["message"].startswith(message)


@each_row(
    ("body", "path", "message"),
    [
        ({"text_1": ["a", "b"], "text_2": ["a"]}, "/score", "text_1: expected one of them, or as many as there are te"),
        ({"text_1": "a"}, "/score", "expected two fields with the texts to compare: queries and documents, queries"),
        ({"input": []}, "/classify", "input: expected a non-empty string, a list of token ids"),
        (
            {"messages": HI, "continue_final_message": True, "add_generation_prompt": True},
            "/classify",
            "continue_final_message: cannot be combined with add_generation_prompt",
        ),
        ({"messages": HI, "input": "a"}, "/classify", "messages: cannot be combined with input"),
        ({}, "/classify", "input: expected a non-empty string, a list of token ids, or a list of either, or a field m"),
        ({"input": "a", "top_n": 5, "truncation_side": "up"}, "/classify", "truncation_side: expected one of left"),
    ],
    ids=str,
)
def test_errors_of_scores_and_classes(body: Any, path: str, message: str) -> None:
    found = refused(body, CLASSIFIES, path)
    told = json.loads(found.body)
    assert found.status == 400
    assert told.keys() == {"error"}
    assert told["error"]["message"].startswith(message)


@each_row(
    ("body", "path", "message"),
    [
        ({"query": "a", "texts": "a", "raw_scores": 1}, "/rerank", "raw_scores: expected true or false"),
        ({"inputs": ["a", "b", "c"]}, "/predict", "inputs: expected a text, a pair of texts, or a list of lists"),
        ({"inputs": [["a"], "b"]}, "/predict", "inputs[1]: expected a list of one or two texts"),
        ({"inputs": ""}, "/invocations", "inputs: expected a text that is not empty"),
        ({}, "/predict", "inputs: expected a text, a pair of texts"),
    ],
    ids=str,
)
def test_errors_of_tei(body: Any, path: str, message: str) -> None:
    found = refused(body, CLASSIFIES, path)
    told = json.loads(found.body)
    assert (found.status, told.keys()) == (422, {"error", "error_type"})
    assert told["error"].startswith(message)
    assert told["error_type"] == "Validation"


def test_what_the_engine_refuses_or_fails() -> None:
    long = ContextError("query: too long", "query")
    status, told = failed(call({"query": "a", "documents": ["b"]}), long)
    assert (status, told["message"]) == (400, "query: too long")
    status, told = failed(call({"text_1": "a", "text_2": "b"}), long)
    assert (status, told["error"]["param"]) == (400, "query")
    assert failed(call({"query": "a", "texts": ["b"]}), long) == (
        422,
        {"error": "query: too long", "error_type": "Validation"},
    )
    broken = failed(call({"query": "a", "texts": ["b"]}), GenerationError("broken"))
    assert broken == (424, {"error": "broken", "error_type": "Backend"})
    full = refusal(OverloadedError("full"), Request(b'{"query": "a", "texts": []}', path="/rerank"), RANKS)
    assert (full.status, json.loads(full.body)["error_type"]) == (429, "Overloaded")
    full = refusal(OverloadedError("full"), Request(b"", path="/v2/rerank"), RANKS)
    assert (full.status, json.loads(full.body)["message"]) == (429, "full")


@each_row(
    ("body", "settings", "message"),
    [
        ({"query": "a", "documents": ["b"]}, GENERATES, "this model generates text and neither ranks nor classifies"),
        ({"prompt": "a"}, CLASSIFIES, "this model ranks or classifies texts and generates none"),
    ],
    ids=["ranks", "text"],
)
def test_a_model_of_another_kind(body: Any, settings: Settings, message: str) -> None:
    assert json.loads(refused(body, settings).body)["error"]["message"].startswith(message)


def test_classes_of_a_model_that_embeds() -> None:
    told = json.loads(refused({"input": "a"}, EMBEDS, "/classify").body)
    assert told["error"]["message"] == "this model makes embeddings and classifies no text"


def test_other_dialects_keep_their_bodies() -> None:
    """`input` where the model embeds, `inputs` where it generates, a chat's documents."""
    bodies: list[tuple[Any, Settings]] = [
        ({"input": "a"}, EMBEDS),
        ({"inputs": "a"}, EMBEDS),
        ({"inputs": "a"}, GENERATES),
        ({"messages": [{"role": "user", "content": "a"}], "documents": [{"a": 1}], "query": "x"}, GENERATES),
        ({"text_1": "a", "text_2": "b", "prompt": "c"}, GENERATES),
    ]
    found = [receive(Request(json.dumps(body).encode()), settings) for body, settings in bodies]
    assert [one.dialect for one in found] == ["openai", "lmi", "lmi", "openai", "openai"]


def test_a_route_or_dialect_that_is_named() -> None:
    body = {"messages": [{"role": "user", "content": "a"}]}
    assert receive(Request(json.dumps(body).encode(), attributes={"dialect": NAME}), CLASSIFIES).dialect == NAME
    assert len(call({"inputs": "a"}, CLASSIFIES, dialect="rerank").generations) == 1


def test_servers_say_their_task() -> None:
    info = EngineInfo(engine="vllm", version="1", context=64)
    expected = {"rank": "text-ranking", "classify": "text-classification", "embed": "feature-extraction"}
    for task, tag in expected.items():
        settings = typed_settings(task=task)
        request = Request(b"", path="/info", method="GET", query={"api-version": "2024-05-01-preview"})
        (page,) = [route.page for route in tgi.ROUTES if route.page]
        assert json.loads(page(request, settings, info).body)["model_pipeline_tag"] == tag
        kind = "embeddings" if task == "embed" else tag.replace("-", "_")
        assert json.loads(azure.model_info(request, settings, info).body)["model_type"] == kind


@each_row(
    ("fields", "truncate"),
    [
        ({}, False),
        ({"truncate": False}, False),
        ({"truncate": True}, True),
        ({"truncate": 3, "parameters": {"truncate": 3}}, 3),
        ({"truncate": None, "parameters": {"truncate": True}}, True),
        ({"truncate": True, "parameters": {"truncate": None}}, True),
    ],
)
def test_whether_teis_inputs_are_cut(fields: dict[str, Any], truncate: int | bool) -> None:
    (one,) = call({"inputs": "a", **fields}, CLASSIFIES, "/predict").generations
    assert one.scoring is not None
    assert one.scoring.truncate == truncate


@each_row(("one", "other"), [(True, False), (True, 1), (1, True)])
def test_two_values_of_one_field(one: Any, other: Any) -> None:
    told = json.loads(refused({"inputs": "a", "truncate": one, "parameters": {"truncate": other}}, CLASSIFIES).body)
    assert told["error"] == (
        "truncate: the same parameter as parameters.truncate, which has another value; set only one of them"
    )
