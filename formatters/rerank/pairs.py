"""Queries and their documents, and the generations that score them.

a model that scores     a generation for each pair
a model that embeds     a generation for each text; a pair's score is the cosine of its two vectors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, UnsupportedError
from ...model.generation import Embedding, Generation, Scoring
from ...model.options import Settings
from ..base import Request
from ..client_fields import ClientFields, Paths
from ..common.fields import paths_of
from .parameters import CLASSIFY_TABLE, RERANK_TABLE, TEI_TABLE
from .texts import Text

__all__ = ["PATHS", "Pairs"]

PATHS: Paths = paths_of((*RERANK_TABLE, *CLASSIFY_TABLE, *TEI_TABLE), "scoring", Scoring)
"""What the fields are called."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is to be scored together: each query with the document in its place, one query with every document."""

    queries: tuple[Text, ...]
    documents: tuple[Text, ...]

    def __len__(self) -> int:
        return len(self.documents)

    def generations(
        self, values: Mapping[str, Any], request: Request, settings: Settings, *, activation: bool | None
    ) -> tuple[Generation, ...]:
        """Those that `scores` reads; `values` are those of a table (parameters.py). Raises UnsupportedError."""
        if settings.embeds:
            return self._embedded(values, request)
        return tuple(
            Generation(
                request_id=request.request_id,
                prompt=query.text,
                scoring=Scoring(document=document.text, activation=activation, **_scoring(values)),
            )
            for query, document in self._each
        )

    @property
    def _each(self) -> Sequence[tuple[Text, Text]]:
        """The pairs."""
        queries = self.queries if len(self.queries) > 1 else self.queries * len(self.documents)
        return [*zip(queries, self.documents, strict=True)]

    def fields(self, values: Mapping[str, Any], settings: Settings) -> ClientFields:
        """What the client calls what `generations` has made of it."""
        each: list[Paths]
        if settings.embeds:
            each = [{"prompt": one.field} for one in (*self.queries, *self.documents)]
        else:
            each = [{"prompt": query.field, "scoring.document": document.field} for query, document in self._each]
        instruction = {"scoring.template_arguments.instruction": "instruction"}
        return ClientFields(PATHS, instruction if values.get("instruction") is not None else {}, each)

    def scores(self, vectors: Sequence[bytes]) -> list[float]:
        """Of each pair, from the generations' vectors in their order."""
        # Here, as only such requests need it.
        import numpy as np

        if len(vectors) == len(self):
            found: list[float] = np.frombuffer(b"".join(vector[:4] for vector in vectors), "<f4").tolist()
            return found
        each = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
        count = len(self.queries)
        return [float(score) for score in (each[:count] * each[count:]).sum(1)]

    def _embedded(self, values: Mapping[str, Any], request: Request) -> tuple[Generation, ...]:
        for key, field in ONLY_SCORING.items():
            if values.get(key):
                raise UnsupportedError.because(Fault(field, "this model makes embeddings, which have none"))
        embedding = Embedding(normalize=True, truncate=values["truncate"], cut=values["cut"])
        return tuple(
            Generation(request_id=request.request_id, prompt=one.text, embedding=embedding)
            for one in (*self.queries, *self.documents)
        )


ONLY_SCORING = {
    "query_tokens": "max_tokens_per_query",
    "document_tokens": "max_tokens_per_doc",
    "instruction": "instruction",
    "template_arguments": "chat_template_kwargs",
}
"""Keys of the tables, and fields, that mean nothing where texts are embedded."""


def _scoring(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Scoring that are the same for all pairs."""
    arguments = dict(values.get("template_arguments") or {})
    if values.get("instruction") is not None:
        arguments.setdefault("instruction", values["instruction"])
    return {
        "truncate": values["truncate"],
        "cut": values["cut"],
        "query_tokens": values.get("query_tokens"),
        "document_tokens": values.get("document_tokens"),
        "template_arguments": arguments,
    }
