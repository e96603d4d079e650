"""Choosing the next token of each of many sequences, each by parameters of its own.

    logits [rows, words] --guide--> --log_softmax--> log-probabilities, as the model has them
                                    --bad words, min_tokens, logit_bias, penalties--> --> the most likely
                                    --temperature, min_p, top_k, top_p, typical_p--> --> drawn

The order is vLLM's, and so is what each parameter does (vllm/v1/sample/sampler.py); typical_p, which vLLM does not
have, comes last as in transformers. A row's outcome depends on its own logits and its own seed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..generation import Sampling

__all__ = ["Guided", "LogProb", "SamplingState", "bad_words", "choose", "defaulted", "likeliest", "likely"]

GREEDY = 1e-5
"""Temperatures below it are greedy, as in vLLM."""
COLDEST = 1e-2
"""What vLLM raises lower temperatures to, for they would overflow."""


class Guided(Protocol):
    """What says which tokens may come next (model/transformers/structured.py)."""

    @property
    def complete(self) -> bool:
        """Whether nothing more may come."""
        ...

    def mask(self, logits: Any) -> None:
        """Sets the logits [words] of tokens that may not come to minus infinity."""
        ...

    def accept(self, token: int) -> None:
        """Takes note of the token that was chosen."""
        ...


@dataclass(slots=True)
class LogProb:
    """A word's log-probability at some position, as model/text/outputs.py reads it."""

    logprob: float
    rank: int | None = None
    """Which of all words it is, the most likely being the first; of a prompt's own tokens only."""


@dataclass(slots=True)
class SamplingState:
    """One sequence's parameters, resolved, and what of its past they need."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    generator: Any = None
    """A torch.Generator; None: torch's own."""
    logprobs: int | None = None
    bias: dict[int, float] = field(default_factory=dict[int, float])
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    ends: Sequence[int] = ()
    """The tokens that may not come before `min_tokens`."""
    guide: Guided | None = None
    counts: Any = None
    """How often each word has been generated [words], while a penalty needs it."""
    seen: Any = None
    """Whether each word has occurred, in the prompt or since [words]."""

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY

    @property
    def plain(self) -> bool:
        """Whether the logits are taken as they are."""
        return not (self.bias or self.bad_words or self.min_tokens or self.penalized)

    @property
    def penalized(self) -> bool:
        return bool(self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty)

    def adjust(self, logits: Any, ids: Sequence[int], prompt: int) -> None:
        """Changes the row's logits [words], in place; `ids` are all tokens so far, the first `prompt` the prompt's."""
        import torch

        never = float("-inf")
        generated = len(ids) - prompt
        for word in self.bad_words:
            before = len(word) - 1
            if before <= generated and list(ids[len(ids) - before :]) == list(word[:-1]):
                logits[word[-1]] = never
        if generated < self.min_tokens and self.ends:
            logits[torch.tensor(self.ends, device=logits.device)] = never
        if self.bias:
            words = torch.tensor([*self.bias], device=logits.device)
            logits[words] += torch.tensor([*self.bias.values()], dtype=logits.dtype, device=logits.device)
        if self.penalized:
            self._penalize(logits, ids, prompt)

    def _penalize(self, logits: Any, ids: Sequence[int], prompt: int) -> None:
        import torch

        if self.counts is None:
            self.counts = torch.zeros_like(logits)
            self.seen = torch.zeros_like(logits, dtype=torch.bool)
            self.seen[torch.tensor(ids[:prompt], device=logits.device)] = True
            self._count(ids[prompt:])
        factor = torch.where(logits > 0, 1 / self.repetition_penalty, self.repetition_penalty)
        logits.mul_(torch.where(self.seen, factor, 1.0))
        logits.sub_(self.frequency_penalty * self.counts)
        logits.sub_(self.presence_penalty * (self.counts > 0))

    def _count(self, ids: Sequence[int]) -> None:
        for token in ids:
            self.counts[token] += 1
            self.seen[token] = True

    def chosen(self, token: int) -> None:
        """Takes note of the token that was chosen."""
        if self.counts is not None:
            self._count([token])
        if self.guide is not None:
            self.guide.accept(token)


DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Fields of Sampling whose None means the model's generation_config."""


def defaulted(sampling: Sampling, defaults: dict[str, Any]) -> dict[str, Any]:
    """The fields of `DEFAULTED` that are set, by the request or by the model."""
    given = {name: getattr(sampling, name) for name in DEFAULTED}
    values = {name: defaults.get(name) if value is None else value for name, value in given.items()}
    return {"temperature": 1.0, **{name: value for name, value in values.items() if value is not None}}


def bad_words(tokenizer: Any, words: Sequence[str]) -> list[list[int]]:
    """The ids of words that may not come, at a text's beginning and after a space, as vLLM takes them."""
    found: list[list[int]] = []
    for word in words:
        first, spaced = (
            list(tokenizer(prefix + word.lstrip(), add_special_tokens=False)["input_ids"]) for prefix in ("", " ")
        )
        found.append(first)
        if spaced and first and spaced[0] != first[0] and len(spaced) == len(first):
            found.append(spaced)
    return [ids for ids in found if ids]


def choose(
    logits: Any, rows: Sequence[SamplingState], pasts: Sequence[tuple[Sequence[int], int]]
) -> tuple[list[int], list[dict[int, LogProb] | None]]:
    """A token for each row, and its log-probabilities where the row wants them; `logits` [rows, words] are changed.

    `pasts` has each row's tokens so far and how many of them are the prompt's.
    """
    logits = logits.float()
    for row, chooser in enumerate(rows):
        if chooser.guide is not None:
            chooser.guide.mask(logits[row])
    wanted = [row for row, chooser in enumerate(rows) if chooser.logprobs is not None]
    known = logits[wanted].log_softmax(-1) if wanted else None
    for row, (chooser, (ids, prompt)) in enumerate(zip(rows, pasts, strict=True)):
        if not chooser.plain:
            chooser.adjust(logits[row], ids, prompt)
    best = logits.argmax(-1)
    drawn = [row for row, chooser in enumerate(rows) if not chooser.greedy]
    if drawn:
        best[drawn] = _draw(logits[drawn], [rows[row] for row in drawn])
    tokens: list[int] = best.tolist()
    entries: list[dict[int, LogProb] | None] = [None] * len(rows)
    if wanted:
        top = max(rows[row].logprobs or 0 for row in wanted)
        for row, entry in zip(wanted, likely(known, best[wanted], top), strict=True):
            entries[row] = entry
    for chooser, token in zip(rows, tokens, strict=True):
        chooser.chosen(token)
    return tokens, entries


def likely(logprobs: Any, tokens: Any, top: int) -> list[dict[int, LogProb]]:
    """Of log-probabilities [positions, words] those of `tokens` [positions] and the `top` most likely ones."""
    import torch

    values = logprobs.gather(-1, tokens[:, None])
    words = tokens[:, None]
    if top:
        best = logprobs.topk(min(top, logprobs.shape[-1]), dim=-1)
        values, words = torch.cat([values, best.values], -1), torch.cat([words, best.indices], -1)
    return [
        dict(zip(row, map(LogProb, numbers), strict=True))
        for row, numbers in zip(words.tolist(), values.tolist(), strict=True)
    ]


def likeliest(logits: Any, counts: Sequence[int]) -> list[dict[int, LogProb]]:
    """So many words of each row of `logits` [rows, words] with their log-probabilities, the most likely first."""
    best = logits.float().log_softmax(-1).topk(min(max(counts), logits.shape[-1]), dim=-1)
    return [
        dict(zip(words[:count], map(LogProb, values[:count]), strict=True))
        for words, values, count in zip(best.indices.tolist(), best.values.tolist(), counts, strict=True)
    ]


def _draw(logits: Any, rows: Sequence[SamplingState]) -> Any:
    """A word for each row, at random."""
    import torch

    def column(name: str) -> Any:
        return torch.tensor([[getattr(row, name)] for row in rows], dtype=torch.float32, device=logits.device)

    logits = logits / column("temperature").clamp(min=COLDEST)
    if any(row.min_p > 0 for row in rows):
        least = logits.max(-1, keepdim=True).values + column("min_p").log()
        logits = logits.masked_fill(logits < least, float("-inf"))
    # The noise belongs to the words, not to their places in an order that depends on the other rows.
    noise = torch.empty_like(logits).exponential_()
    for row, chooser in enumerate(rows):
        if chooser.generator is not None:
            noise[row].exponential_(generator=chooser.generator)
    narrowed = any(row.top_p < 1 or row.typical_p < 1 or 0 < row.top_k < logits.shape[-1] for row in rows)
    if not narrowed:
        return (logits.softmax(-1) / noise).argmax(-1)
    ordered, words = _ordered(logits, rows)
    places = torch.arange(ordered.shape[-1], device=logits.device)
    top_k = column("top_k")
    ordered = ordered.masked_fill((top_k > 0) & (places >= top_k), float("-inf"))
    if any(row.top_p < 1 for row in rows):
        shares = ordered.softmax(-1)
        # What lies before a word decides, so that the most likely one always stays.
        ordered = ordered.masked_fill((shares.cumsum(-1) - shares >= column("top_p")) & (places > 0), float("-inf"))
    if any(row.typical_p < 1 for row in rows):
        ordered = _typical(ordered, column("typical_p"))
    place = (ordered.softmax(-1) / noise.gather(-1, words)).argmax(-1, keepdim=True)
    return words.gather(-1, place)[:, 0]


def _ordered(logits: Any, rows: Sequence[SamplingState]) -> tuple[Any, Any]:
    """Logits and words, the most likely first; only as many as any row may take."""
    most = max(row.top_k if row.top_k > 0 else logits.shape[-1] for row in rows)
    if most < logits.shape[-1]:
        best = logits.topk(most, dim=-1)
        return best.values, best.indices
    ordered = logits.sort(dim=-1, descending=True)
    return ordered.values, ordered.indices


def _typical(logits: Any, typical_p: Any) -> Any:
    """Keeps the words whose surprise is nearest to what is expected, until they have `typical_p` of the probability.

    As transformers' TypicalLogitsWarper does; rows with 1 stay as they are.
    """
    known = logits.log_softmax(-1)
    shares = known.exp()
    expected = -(known.where(shares > 0, 0.0) * shares).sum(-1, keepdim=True)
    distance = (-known - expected).abs()
    order = distance.argsort(-1)
    sums = shares.gather(-1, order).cumsum(-1)
    last = (sums < typical_p).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    limit = distance.gather(-1, order).gather(-1, last)
    return logits.masked_fill((distance > limit) & (typical_p < 1), float("-inf"))
