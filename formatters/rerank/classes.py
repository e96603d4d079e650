"""Classes of texts: `{"input"}` or `{"messages"}` as vLLM's server takes them, `{"inputs"}` as TEI's /predict.

{"object": "list", "data": [{"index", "label", "probs", "num_classes"}], "usage"}
[{"score", "label"}, ...], the likeliest first; of several inputs a list of these        TEI's
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from ...model.errors import ParameterError, PayloadError
from ...model.events import Delta
from ...model.generation import Generation, Prompt, Scoring
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..common.fields import two_values
from ..openai.completions import read_prompts
from ..openai.messages import read_unanswered
from ..openai.reply import Identity, error_response
from .bodies import Class, ClassifyBody, Prediction, Usage, tei_error
from .parameters import CLASSIFY_TABLE, PREDICT_TABLE, read_values
from .texts import MAX_TEXTS, PATHS

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
    values = read_values(payload, CLASSIFY_TABLE, settings)
    prompts, own = _prompts(payload, values, settings)
    scoring = Scoring(classes=True, activation=values["activation"], truncate=values["truncate"], cut=values["cut"])
    generations = tuple(
        Generation(
            request_id=request.request_id,
            prompt=prompt,
            add_special_tokens=values["add_special_tokens"] is not False,
            scoring=scoring,
        )
        for prompt, _ in prompts
    )
    identity = Identity.new("classify-", settings.model_name)
    reply = Classes(prompts=len(generations), refuse=error_response, identity=identity)
    return ParsedRequest(
        generations, reply, fields=ClientFields(PATHS, own, [{"prompt": field} for _, field in prompts])
    )


def parse_tei(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """The same for `inputs`: a text, a pair of them, or a list of lists of one or two texts."""
    values = read_values({**payload, **_parameters(payload)}, PREDICT_TABLE, settings)
    inputs, single = _inputs(payload)
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


def _prompts(
    payload: Payload, values: dict[str, Any], settings: Settings
) -> tuple[list[tuple[Prompt, str]], dict[str, str]]:
    """The prompts, and what the client calls them and, other than usually, parts of one."""
    if payload.get("messages") is not None:
        conversation, own = read_unanswered(payload, values, settings)
        return [(conversation, "messages")], own
    if payload.get("input") is None:
        raise PayloadError("input: expected a text or a list of texts, or a field messages, but there is none", "input")
    inputs = read_prompts(payload["input"], "input", limit=MAX_TEXTS)
    return [(one, "input" if len(inputs) == 1 else f"input[{index}]") for index, one in enumerate(inputs)], {}


def _parameters(payload: Payload) -> dict[str, Any]:
    """Hugging Face's clients put the fields there."""
    given = payload.get("parameters")
    if given is not None and not isinstance(given, dict):
        raise PayloadError.of("parameters", given, "an object")
    read = {name: value for name, value in cast("dict[str, Any]", given or {}).items() if value is not None}
    for name, value in read.items():
        if payload.get(name, value) not in (None, value):
            raise two_values(f"parameters.{name}", name)
    return read


Input = tuple[str, str | None, str]
"""A text, the second one of a pair, and what the client calls them."""
EXPECTED = "a text, a pair of texts, or a list of lists of one or two texts"


def _inputs(payload: Payload) -> tuple[list[Input], bool]:
    """What is to be classified, and whether it is a single one; raises RequestError."""
    if "inputs" not in payload:
        raise PayloadError(f"inputs: expected {EXPECTED}, but there is no such field", "inputs")
    given = payload["inputs"]
    if isinstance(given, str):
        return [_input([given], "inputs")], True
    if not isinstance(given, list) or not given:
        raise PayloadError.of("inputs", given, EXPECTED)
    if isinstance(given[0], str):
        return [_input(given, "inputs")], True
    if len(given) > MAX_TEXTS:
        raise ParameterError(f"inputs: expected at most {MAX_TEXTS} of them, got {len(given)}", "inputs")
    return [*_listed(given)], False


def _listed(items: list[Any]) -> Iterator[Input]:
    for index, one in enumerate(items):
        if not isinstance(one, list):
            raise PayloadError.of(f"inputs[{index}]", one, "a list of one or two texts")
        yield _input(one, f"inputs[{index}]")


def _input(texts: list[Any], field: str) -> Input:
    if not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise PayloadError.of(field, texts, EXPECTED if field == "inputs" else "a list of one or two texts")
    if not texts[0]:
        raise ParameterError.of(field, texts[0], "a text that is not empty")
    return texts[0], texts[1] if len(texts) == 2 else None, field
