"""Classes of texts: `{"input"}` or `{"messages"}` as vLLM's server takes them, `{"inputs"}` as TEI's /predict.

{"object": "list", "data": [{"index", "label", "probs", "num_classes"}], "usage"}
[{"score", "label"}, ...], the likeliest first; of several inputs a list of these        TEI's
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.events import Delta
from ...model.generation import Generation, Scoring
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..openai.embeddings import inputs_of
from ..openai.reply import Identity, error_response
from .bodies import Class, ClassifyBody, Prediction, Usage, tei_error
from .pairs import PATHS
from .parameters import CLASSIFY_ROWS, PREDICT_ROWS, read_values

__all__ = ["parse", "parse_tei"]


@dataclass(slots=True, kw_only=True)
class Labelled(EmbeddingEncoder):
    """An answer with the model's labels, which come with each vector and are the same in all."""

    labels: tuple[str, ...] = ()

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        self.labels = delta.labels or self.labels
        return EmbeddingEncoder._take(self, delta, prompt)


@dataclass(slots=True, kw_only=True)
class Classes(Labelled):
    """vLLM's list."""

    identity: Identity

    def body(self, entries: list[bytes]) -> bytes:
        """Each input's likeliest class, and what all are."""
        data: list[Class] = []
        for index, vector in enumerate(entries):
            probabilities = [*numbers(vector)]
            likeliest = max(range(len(probabilities)), key=probabilities.__getitem__)
            data.append(Class(index, self.labels[likeliest], probabilities, len(probabilities)))
        usage = Usage(self.prompt_tokens, self.prompt_tokens)
        identity = self.identity
        return encode(ClassifyBody(identity.id, identity.created, identity.model, data, usage))


@dataclass(slots=True, kw_only=True)
class Predictions(Labelled):
    """TEI's answer."""

    single: bool

    def body(self, entries: list[bytes]) -> bytes:
        """Each input's classes."""
        each = [sorted(map(Prediction, numbers(vector), self.labels), key=lambda one: -one.score) for vector in entries]
        return encode(each[0] if self.single else each)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A generation for each input, or for the conversation; raises RequestError."""
    values = read_values(payload, CLASSIFY_ROWS, settings)
    prompts, own, each = inputs_of(values, settings)
    scoring = Scoring(classes=True, activation=values["activation"], truncate=values["truncate"], cut=values["cut"])
    generations = tuple(
        Generation(
            request_id=request.request_id,
            prompt=prompt,
            add_special_tokens=values["add_special_tokens"] is not False,
            scoring=scoring,
        )
        for prompt in prompts
    )
    identity = Identity.new("classify-", settings.model_name)
    reply = Classes(prompts=len(generations), refuse=error_response, identity=identity)
    return ParsedRequest(generations, reply, fields=ClientFields(PATHS, own, each))


def parse_tei(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The same for `inputs`: a text, a pair of them, or a list of lists of one or two texts."""
    values = read_values(payload, PREDICT_ROWS, settings)
    inputs, single = values["inputs"]
    generations = tuple(
        Generation(
            request_id=request.request_id,
            prompt=text,
            scoring=Scoring(
                document=document,
                classes=True,
                activation=False if values["raw_scores"] else None,
                truncate=values["truncate"],
                cut=values["cut"],
            ),
        )
        for text, document, _ in inputs
    )
    each = [{"prompt": field, "scoring.document": field} for _, _, field in inputs]
    reply = Predictions(prompts=len(generations), refuse=tei_error, single=single)
    return ParsedRequest(generations, reply, fields=ClientFields(PATHS, each=each))
