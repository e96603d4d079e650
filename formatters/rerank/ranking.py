"""Documents ranked by a query: `{"query", "documents"}` as Jina and Cohere have it, and `{"query", "texts"}` as TEI.

{"id", "model", "usage", "results": [{"index", "relevance_score", "document": {"text"}}], "meta"}    the best first
[{"index", "score", "text"}]                                                                         TEI's
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field

from msgspec import UNSET

from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..common.embedding_reply import EmbeddingEncoder
from .bodies import Document, Meta, RankBody, Ranked, RankResult, Usage, rank_error, tei_error
from .pairs import Pairs
from .parameters import RERANK_ROWS, TEI_ROWS, read_values

__all__ = ["parse", "parse_tei"]

VERSIONS = {"/v1/rerank": "1", "/v2/rerank": "2"}
"""Of Cohere's API, by path."""


@dataclass(slots=True, kw_only=True)
class Ranking(EmbeddingEncoder):
    """Jina's and Cohere's answer."""

    model: str
    pairs: Pairs
    most: int
    """How many results come at most."""
    shows: bool
    """Whether each has its document."""
    version: str | None
    id: str = field(default_factory=lambda: f"rerank-{uuid.uuid4().hex}")

    def body(self, entries: list[bytes]) -> bytes:
        """The best documents."""
        documents = self.pairs.documents
        results = [
            RankResult(index, score, Document(documents[index].text) if self.shows else UNSET)
            for index, score in best(self.pairs.scores(entries))[: self.most]
        ]
        usage = Usage(self.prompt_tokens, self.prompt_tokens)
        meta = UNSET if self.version is None else Meta({"version": self.version}, {"search_units": 1})
        return encode(RankBody(self.id, self.model, usage, results, meta))


@dataclass(slots=True, kw_only=True)
class TeiRanking(EmbeddingEncoder):
    """TEI's answer."""

    pairs: Pairs
    shows: bool
    sigmoid: bool
    """Whether the vectors are logits that are to become scores from 0 to 1."""

    def body(self, entries: list[bytes]) -> bytes:
        """All texts."""
        scores = self.pairs.scores(entries)
        if self.sigmoid:
            scores = [_sigmoid(score) for score in scores]
        texts = self.pairs.documents
        ranked = (Ranked(index, score, texts[index].text if self.shows else UNSET) for index, score in best(scores))
        return encode([*ranked])


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A generation for each document; raises RequestError."""
    values = read_values(payload, RERANK_ROWS, settings)
    pairs = Pairs((values["query"],), values["documents"])
    shows = values["return_documents"]
    generations = pairs.generations(values, request, settings, activation=values["activation"])
    reply = Ranking(
        prompts=len(generations),
        refuse=rank_error,
        model=settings.model_name,
        pairs=pairs,
        most=values["top_n"] or len(pairs),
        # Cohere's newer API has no documents in its answers.
        shows=request.path != "/v2/rerank" if shows is None else shows,
        version=VERSIONS.get(request.path),
    )
    return ParsedRequest(generations, reply, fields=pairs.fields(values, settings))


def parse_tei(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The same. TEI makes scores of a model's logits by sigmoid, whatever the model's config says."""
    values = read_values(payload, TEI_ROWS, settings)
    pairs = Pairs((values["query"],), values["documents"])
    generations = pairs.generations(values, request, settings, activation=False)
    reply = TeiRanking(
        prompts=len(generations),
        refuse=tei_error,
        pairs=pairs,
        shows=values["return_text"],
        sigmoid=not values["raw_scores"] and not settings.embeds,
    )
    return ParsedRequest(generations, reply, fields=pairs.fields(values, settings))


def best(scores: list[float]) -> list[tuple[int, float]]:
    """Index and score, the best first; of equal ones the earlier."""
    return sorted(enumerate(scores), key=lambda one: -one[1])


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    small = math.exp(logit)
    return small / (1 + small)
