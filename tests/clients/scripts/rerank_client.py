"""Requests for ranks, scores and classes as the clients of Jina, Cohere, vLLM and Text Embeddings Inference send them,
on a model that ranks.

    python rerank_client.py URL path|route '{"query", "documents", "order": [...], "scores": [...], "logits": [...]}'

`order` has the documents' indexes, the best first; the others are by document, as transformers has them.
"""

from __future__ import annotations

import math
from typing import Any

import httpx
from checks import check, main

Told = dict[str, Any]


class Asked:
    """Posts JSON to paths of a host."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self._url = url
        self._http = http

    def post(self, path: str, body: object) -> httpx.Response:
        return self._http.post(self._url + path, json=body)

    def told(self, path: str, body: object) -> Any:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("application/json")
        return answer.json()


def near(found: float, expected: float) -> bool:
    return math.isclose(found, expected, abs_tol=1e-3)


def check_results(results: list[dict[str, Any]], told: Told, score: str) -> None:
    """All documents, the best first, with their scores."""
    assert [one["index"] for one in results] == told["order"]
    for one in results:
        assert near(one[score], told["scores"][one["index"]]), one


def ranked(asked: Asked, told: Told, path: str, **more: Any) -> Any:
    return asked.told(path, {"model": "any", "query": told["query"], "documents": told["documents"], **more})


@check
def jinas_ranks(asked: Asked, told: Told) -> None:
    answer = ranked(asked, told, "/v1/rerank")
    check_results(answer["results"], told, "relevance_score")
    assert answer["results"][0]["document"] == {"text": told["documents"][told["order"][0]]}
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 0
    assert isinstance(answer["model"], str)


@check
def vllms_path(asked: Asked, told: Told) -> None:
    answer = ranked(asked, told, "/rerank")
    check_results(answer["results"], told, "relevance_score")
    assert answer["id"].startswith("rerank-")


@check
def coheres_version_1(asked: Asked, told: Told) -> None:
    documents = [{"text": text} for text in told["documents"]]
    body = {"model": "m", "query": told["query"], "documents": documents, "top_n": 2, "return_documents": False}
    answer = asked.told("/v1/rerank", body)
    assert answer["meta"]["api_version"]["version"] == "1"
    assert [one["index"] for one in answer["results"]] == told["order"][:2]
    assert all(one.keys() == {"index", "relevance_score"} for one in answer["results"])


@check
def coheres_version_2(asked: Asked, told: Told) -> None:
    answer = ranked(asked, told, "/v2/rerank", max_tokens_per_doc=4096)
    check_results(answer["results"], told, "relevance_score")
    assert answer["meta"]["api_version"]["version"] == "2"
    assert answer["meta"]["billed_units"]["search_units"] == 1


@check
def logits(asked: Asked, told: Told) -> None:
    answer = ranked(asked, told, "/rerank", use_activation=False)
    assert [one["index"] for one in answer["results"]] == told["order"]
    for one in answer["results"]:
        assert near(one["relevance_score"], told["logits"][one["index"]])


@check
def teis_ranks(asked: Asked, told: Told) -> None:
    body = {"query": told["query"], "texts": told["documents"], "raw_scores": False, "return_text": True}
    answer = asked.told("/rerank", body)
    check_results(answer, told, "score")
    assert all(one["text"] == told["documents"][one["index"]] for one in answer)


@check
def teis_raw_scores(asked: Asked, told: Told) -> None:
    answer = asked.told("/rerank", {"query": told["query"], "texts": told["documents"], "raw_scores": True})
    for one in answer:
        assert one.keys() == {"index", "score"}
        assert near(one["score"], told["logits"][one["index"]])


@check
def scores_of_one_with_several(asked: Asked, told: Told) -> None:
    for path, one, other in (
        ("/score", "text_1", "text_2"),
        ("/v1/score", "queries", "documents"),
        ("/score", "queries", "items"),
        ("/score", "data_1", "data_2"),
    ):
        answer = asked.told(path, {"model": "any", one: told["query"], other: told["documents"]})
        assert answer["object"] == "list"
        assert [entry["index"] for entry in answer["data"]] == [*range(len(told["documents"]))]
        assert all(near(entry["score"], told["scores"][entry["index"]]) for entry in answer["data"])
        assert {entry["object"] for entry in answer["data"]} == {"score"}


@check
def scores_of_as_many(asked: Asked, told: Told) -> None:
    queries = [told["query"]] * len(told["documents"])
    answer = asked.told("/score", {"text_1": queries, "text_2": told["documents"]})
    assert all(near(entry["score"], told["scores"][entry["index"]]) for entry in answer["data"])


@check
def classes(asked: Asked, told: Told) -> None:
    answer = asked.told("/classify", {"model": "any", "input": told["documents"]})
    assert [entry["index"] for entry in answer["data"]] == [*range(len(told["documents"]))]
    for entry in answer["data"]:
        assert entry["label"] == "LABEL_0"
        assert entry["num_classes"] == len(entry["probs"]) == 1
    assert answer["usage"]["prompt_tokens"] > 0


@check
def teis_predictions(asked: Asked, told: Told) -> None:
    pairs = [[told["query"], text] for text in told["documents"]]
    answer = asked.told("/predict", {"inputs": pairs})
    for (entry,), score in zip(answer, told["scores"], strict=True):
        assert entry["label"] == "LABEL_0"
        assert near(entry["score"], score)
    (single,) = asked.told("/predict", {"inputs": pairs[0]})
    assert near(single["score"], told["scores"][0])


@check
def a_long_document_is_cut(asked: Asked, told: Told) -> None:
    body = {"model": "any", "query": told["query"], "documents": ["word " * 5000]}
    assert asked.post("/rerank", body).status_code == 400
    answer = asked.told("/rerank", {**body, "truncate_prompt_tokens": -1})
    assert len(answer["results"]) == 1
    assert asked.told("/rerank", {**body, "max_tokens_per_doc": 8})["results"][0]["index"] == 0


if __name__ == "__main__":
    main(Asked)
