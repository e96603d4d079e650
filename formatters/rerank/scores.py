"""Scores of pairs as vLLM's server gives them: one with one, one with each of several, several with as many.

{"text_1" or "queries" or "data_1", "text_2" or "documents" or "items" or "data_2"}
-> {"object": "list", "data": [{"index", "object": "score", "score"}], "usage"}
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import Fault, ParameterError, PayloadError
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..common.embedding_reply import EmbeddingEncoder
from ..openai.reply import Identity, error_response
from .bodies import Score, ScoreBody, Usage
from .pairs import Pairs
from .parameters import SCORE_ROWS, SIDES, read_values

__all__ = ["fields_of", "parse"]


@dataclass(slots=True, kw_only=True)
class Scores(EmbeddingEncoder):
    """vLLM's list."""

    identity: Identity
    pairs: Pairs

    def body(self, entries: list[bytes]) -> bytes:
        """The score of each pair, in their order."""
        data = [Score(index, score) for index, score in enumerate(self.pairs.scores(entries))]
        usage = Usage(self.prompt_tokens, self.prompt_tokens)
        identity = self.identity
        return encode(ScoreBody(identity.id, identity.created, identity.model, data, usage))


def fields_of(payload: Payload) -> tuple[str, str] | None:
    """What the body calls the two sides; None where it has neither of SIDES."""
    return next((names for names in SIDES if all(name in payload for name in names)), None)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A generation for each pair; raises RequestError."""
    names = fields_of(payload)
    if names is None:
        expected = ", ".join(f"{one} and {other}" for one, other in SIDES)
        raise PayloadError(f"expected two fields with the texts to compare: {expected}", SIDES[0][0])
    values = read_values(payload, SCORE_ROWS[names], settings)
    queries, documents = values["queries"], values["documents"]
    if len(queries) not in (1, len(documents)):
        expected = f"one of them, or as many as there are {names[1]} ({len(documents)})"
        raise ParameterError.because(Fault(names[0], expected=expected, given=str(len(queries))))
    pairs = Pairs(queries, documents)
    generations = pairs.generations(values, request, settings, activation=values["activation"])
    identity = Identity.new("score-", settings.model_name)
    reply = Scores(prompts=len(generations), refuse=error_response, identity=identity, pairs=pairs)
    return ParsedRequest(generations, reply, fields=pairs.fields(values, settings))
