"""The answers as vLLM's own types read them, and the requests that vLLM's server takes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from ...kit.api.dialects import receive
from ...kit.api.options import typed_settings
from ...kit.api.types import Delta, Finish, ParsedRequest, Request, Settings, Started

pytestmark = [pytest.mark.once, pytest.mark.engine]

RANKS = typed_settings(task="rank")
CLASSIFIES = typed_settings(task="classify")


def answered(body: dict[str, Any], path: str, settings: Settings, *numbers: float) -> Any:
    asked = receive(Request(json.dumps(body).encode(), path=path), settings)
    assert isinstance(asked, ParsedRequest), asked
    vector = struct.pack(f"<{len(numbers)}f", *numbers)
    records: list[bytes] = []
    for index in range(len(asked.generations)):
        records += asked.reply.feed(Started(4), index)
        records += asked.reply.feed(Delta(0, "", finish=Finish("eos"), vector=vector, labels=("a", "b")), index)
    return json.loads(b"".join(records))


def test_ranks() -> None:
    from vllm.entrypoints.pooling.scoring.protocol import RerankRequest, RerankResponse

    body = {
        "model": "m", "query": "a", "documents": ["b", "c"], "top_n": 1, "max_tokens_per_doc": 9,
        "use_activation": True, "truncate_prompt_tokens": -1,
    }  # fmt: skip
    assert RerankRequest.model_validate(body).top_n == 1
    read = RerankResponse.model_validate(answered(body, "/rerank", RANKS, 0.5))
    assert [(one.index, one.document.text, one.relevance_score) for one in read.results] == [(0, "b", 0.5)]
    assert (read.usage.prompt_tokens, read.usage.total_tokens) == (8, 8)


@pytest.mark.parametrize("names", [("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2")])
def test_scores(names: tuple[str, str]) -> None:
    from vllm.entrypoints.pooling.scoring.protocol import ScoreResponse

    body = {"model": "m", names[0]: "a", names[1]: ["b", "c"]}
    read = ScoreResponse.model_validate(answered(body, "/score", RANKS, 0.5))
    assert [(one.index, one.score, one.object) for one in read.data] == [(0, 0.5, "score"), (1, 0.5, "score")]
    assert (read.object, read.usage.prompt_tokens) == ("list", 8)


def test_classes() -> None:
    from vllm.entrypoints.pooling.classify.protocol import ClassificationResponse

    read = ClassificationResponse.model_validate(answered({"input": ["a", "b"]}, "/classify", CLASSIFIES, 0.75, 0.25))
    assert [(one.index, one.label, one.probs, one.num_classes) for one in read.data] == [
        (index, "a", [0.75, 0.25], 2) for index in range(2)
    ]
    assert read.usage.total_tokens == 8
