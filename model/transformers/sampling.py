"""Choosing a sequence's next token, by transformers' own logits processors.

    logits --guide--> --log_softmax--> log-probabilities, as the model has them
                      --processors: bad words, min_tokens, bias, penalties, temperature, top_k ...--> greedy or drawn

What a processor does is the library's matter. The order is vLLM's up to the temperature and transformers' after it. A
sequence's outcome depends on its own logits and its own seed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..generation import Sampling

__all__ = ["LogProb", "Row", "bad_words", "likely", "parameters", "processors"]

GREEDY = 1e-5
"""Temperatures below it are greedy, as in vLLM."""

DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Fields of Sampling whose None means the model's generation_config."""


@dataclass(slots=True)
class LogProb:
    """A word's log-probability at some position, as model/text/outputs.py reads it."""

    logprob: float
    rank: int | None = None
    """Which of all words it is, the most likely being the first; of a prompt's own tokens only."""


@dataclass(slots=True, eq=False)
class Row:
    """A sequence in the making, and how its tokens are chosen."""

    ids: list[int]
    """The prompt's tokens and the generated ones."""
    prompt: int
    """How many of them are the prompt's."""
    max_tokens: int
    ends: frozenset[int] = frozenset()
    """Tokens that end it: ends of sequence, stop tokens."""
    greedy: bool = True
    generator: Any = None
    """A torch.Generator; None: torch's own."""
    logprobs: int | None = None
    guide: Any = None
    """A logits processor that leaves what a grammar allows."""
    processors: list[Any] = field(default_factory=list[Any])

    @property
    def complete(self) -> bool:
        """Whether the newest token is the last one."""
        made = len(self.ids) - self.prompt
        return made >= self.max_tokens or (made > 0 and self.ids[-1] in self.ends)

    @property
    def plain(self) -> bool:
        """Whether the most likely token is taken and nothing else is wanted."""
        return self.greedy and self.logprobs is None and self.guide is None and not self.processors

    def choose(self, logits: Any) -> tuple[int, dict[int, LogProb] | None]:
        """The token after `ids`, which is added to them, and its log-probabilities where they are wanted.

        `logits` [words] are float32; they may be changed.
        """
        import torch

        past, scores = torch.tensor([self.ids], device=logits.device), logits[None]
        if self.guide is not None:
            scores = self.guide(past, scores)
        known = scores.log_softmax(-1) if self.logprobs is not None else None
        for process in self.processors:
            scores = process(past, scores)
        if not self.greedy:
            # As torch.multinomial draws, which ends the whole device where the model has computed no numbers.
            scores = scores.softmax(-1) / torch.empty_like(scores).exponential_(generator=self.generator)
        token = scores.argmax(-1)
        self.ids.append(int(token))
        entry = None if known is None else likely(known, token, self.logprobs or 0)[0]
        return self.ids[-1], entry


class _Penalties:
    """presence_penalty and frequency_penalty, which transformers does not have; they leave the prompt out."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self._prompt, self._presence, self._frequency = prompt, presence, frequency

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        made = input_ids[:, self._prompt :]
        counts = torch.zeros_like(scores).scatter_add_(1, made, torch.ones_like(made, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


def parameters(sampling: Sampling, defaults: dict[str, Any]) -> dict[str, Any]:
    """The fields of `DEFAULTED`: the request's, else the model's, else neutral ones."""
    given = {name: getattr(sampling, name) for name in DEFAULTED}
    values = {name: defaults.get(name) if value is None else value for name, value in given.items()}
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    return {name: neutral.get(name, 0.0) if value is None else value for name, value in values.items()}


def processors(
    sampling: Sampling, values: dict[str, Any], words: list[list[int]], prompt: int, ends: Sequence[int], device: Any
) -> list[Any]:
    """transformers' processors for a sequence after a prompt of so many tokens; raises ValueError for bad values.

    `values` are of `parameters`, `words` of `bad_words`; none of `ends` comes before min_tokens.
    """
    import transformers as library

    penalty, presence, frequency = (
        values[name] for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")
    )
    least = sampling.min_tokens
    found: list[tuple[object, Any]] = [
        (words, lambda: library.NoBadWordsLogitsProcessor(words)),
        (least and ends, lambda: library.MinNewTokensLengthLogitsProcessor(prompt, least, list(ends), device=device)),
        (sampling.logit_bias, lambda: library.SequenceBiasLogitsProcessor(_bias(sampling))),
        (penalty != 1, lambda: library.RepetitionPenaltyLogitsProcessor(float(penalty))),
        (presence or frequency, lambda: _Penalties(prompt, presence, frequency)),
    ]
    if values["temperature"] >= GREEDY:
        typical = 1.0 if sampling.typical_p is None else sampling.typical_p
        found += [
            (values["temperature"] != 1, lambda: library.TemperatureLogitsWarper(float(values["temperature"]))),
            (values["top_k"] > 0, lambda: library.TopKLogitsWarper(values["top_k"])),
            (values["top_p"] < 1, lambda: library.TopPLogitsWarper(float(values["top_p"]))),
            (values["min_p"] > 0, lambda: library.MinPLogitsWarper(float(values["min_p"]))),
            (typical < 1, lambda: library.TypicalLogitsWarper(typical)),
        ]
    return [make() for wanted, make in found if wanted]


def _bias(sampling: Sampling) -> Any:
    """As transformers takes it: sequences of tokens, here of one, with what is added."""
    return [[[token], float(value)] for token, value in (sampling.logit_bias or {}).items()]


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
