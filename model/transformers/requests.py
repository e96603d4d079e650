"""What a generation asks of the transformers engine: the prompt's ids, and how each sequence chooses tokens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ..errors import GenerationError, ParameterError, UnsupportedError
from ..generation import Conversation, Generation, Sampling, nth_seed
from ..options import Settings
from ..text.prompt_limits import check_ids, max_new_tokens_for, max_prompt_tokens, shortened, with_truncation
from ..text.response_limit import check_size
from .chat import render, template_of
from .load import Loaded
from .options import Arguments
from .sampling import GREEDY, LogProb, Row, bad_words, likely, parameters, processors
from .structured import Grammars

__all__ = ["Prepared", "Requests"]

POSITIONS = 256
"""Of how many of a prompt's tokens the log-probabilities are computed at once."""


@dataclass(slots=True)
class Prepared:
    """A generation, ready to be added."""

    number: int
    generation: Generation
    prompt_ids: list[int]
    text: str
    """What these were tokenized of; empty where the prompt is token ids."""
    rows: list[Row]
    prefill: list[dict[int, LogProb] | None]
    """The prompt's log-probabilities, where they were asked for; the first token has none."""


class Requests:
    """Prepares generations for one model."""

    def __init__(self, loaded: Loaded, settings: Settings, arguments: Arguments) -> None:
        self._loaded = loaded
        self._longest = settings.limits.max_answer_bytes
        self._most = settings.limits.max_prompt_tokens
        self._allowed = max_prompt_tokens(loaded.context - 1, self._most)
        self._max_logprobs = arguments.max_logprobs
        self._template = template_of(loaded.tokenizer, settings)
        eos_ids, spaces = sorted(loaded.eos_ids), arguments.any_whitespace
        self._grammars = Grammars(loaded.tokenizer, loaded.words, eos_ids, any_whitespace=spaces)

    def prepare(
        self, number: int, generation: Generation, alone: Callable[[], AbstractContextManager[None]]
    ) -> Prepared:
        """Tokenizes and checks, `alone` with the model where the prompt is computed; raises RequestError."""
        generation = with_truncation(generation, self._loaded.context, self._most)
        sampling = generation.sampling
        if generation.adapter is not None:
            raise UnsupportedError("adapter: the transformers engine has no adapters", "adapter")
        ids, text = self._prompt(generation)
        max_tokens = max_new_tokens_for(generation, len(ids), self._loaded.context, self._most)
        check_size(generation, len(ids), self._longest)
        self._check(generation)
        rows = self._rows(sampling, ids, max_tokens)
        prefill: list[dict[int, LogProb] | None] = []
        if sampling.prompt_logprobs is not None:
            with alone():
                prefill = self._prefill(ids, sampling.prompt_logprobs)
        return Prepared(number, generation, ids, text, rows, prefill)

    def prompt_ids(self, generation: Generation) -> list[int]:
        """The prompt's token ids; raises RequestError."""
        return self._prompt(generation)[0]

    def _prompt(self, generation: Generation) -> tuple[list[int], str]:
        """The prompt's ids, and the text that they were made of; raises RequestError."""
        prompt, field, truncate = generation.prompt, generation.prompt_field, generation.sampling.truncate
        tokenizer = self._loaded.tokenizer
        if isinstance(prompt, tuple):
            text, ids = "", list(prompt if truncate is None else prompt[-truncate:])
            max_new_tokens_for(generation, len(ids), self._loaded.context, self._most)
        else:
            if isinstance(prompt, Conversation):
                text, special = render(tokenizer, self._template, prompt, field), prompt.add_special_tokens
            else:
                text, special = prompt, generation.add_special_tokens
            text = shortened(field, text, truncate, self._allowed, self._count, self._loaded.context)
            ids = list(tokenizer(text, add_special_tokens=special)["input_ids"])
        # Beyond the vocabulary a device fails for everyone.
        check_ids(field, ids, self._loaded.words)
        return ids if truncate is None else ids[-truncate:], text

    def _count(self, text: str) -> int:
        return len(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _check(self, generation: Generation) -> None:
        """Raises RequestError for what only the model and the options can tell."""
        sampling = generation.sampling
        for name in ("logprobs", "prompt_logprobs"):
            if (wanted := getattr(sampling, name)) is not None and wanted > self._max_logprobs:
                most = f"{self._max_logprobs} (option.max_logprobs)"
                raise ParameterError.of(generation.field(name), wanted, f"at most {most}")
        if sampling.beams is not None:
            field = sampling.beams.field
            raise UnsupportedError(f"{field}: the transformers engine does not support beam search, vLLM does", field)
        for name in ("logit_bias", "stop_token_ids"):
            check_ids(generation.field(name), [*(getattr(sampling, name) or ())], self._loaded.words)

    def _rows(self, sampling: Sampling, ids: list[int], max_tokens: int) -> list[Row]:
        """The n sequences, each with its own way of choosing tokens."""
        import torch

        loaded, device = self._loaded, self._loaded.device
        guide = None if sampling.structured_output is None else self._grammars.processor(sampling.structured_output)
        # Where a grammar is complete, nothing but an end of sequence may come.
        eos_ids = loaded.eos_ids if guide is not None or not sampling.ignore_eos else frozenset[int]()
        ends = eos_ids.union(sampling.stop_token_ids)
        values, words = parameters(sampling, loaded.defaults), bad_words(loaded.tokenizer, sampling.bad_words)
        rows: list[Row] = []
        for index in range(sampling.n):
            generator = None
            if sampling.seed is not None:
                generator = torch.Generator(device).manual_seed(nth_seed(sampling.seed, index))
            row = Row(
                [*ids], len(ids), max_tokens, ends, values["temperature"] < GREEDY, generator, sampling.logprobs,
                guide() if guide is not None else None,
                processors(sampling, values, words, len(ids), sorted(ends), device),
            )  # fmt: skip
            rows.append(row)
        return rows

    def _prefill(self, ids: list[int], wanted: int) -> list[dict[int, LogProb] | None]:
        """The log-probabilities that the model gives to the prompt's tokens, by a pass of their own."""
        import torch

        found: list[dict[int, LogProb] | None] = [None]
        try:
            with torch.inference_mode():
                given = torch.tensor([ids], device=self._loaded.device)
                logits = self._loaded.model(input_ids=given).logits[0, :-1]
                for start in range(0, len(ids) - 1, POSITIONS):
                    known = logits[start : start + POSITIONS].float().log_softmax(-1)
                    tokens = given[0, start + 1 : start + 1 + len(known)].to(known.device)
                    ranks = (known >= known.gather(-1, tokens[:, None])).sum(-1)
                    entries = likely(known, tokens, wanted)
                    for entry, token, rank in zip(entries, tokens.tolist(), ranks.tolist(), strict=True):
                        entry[token].rank = rank
                    found += entries
        except Exception as error:
            raise GenerationError(f"the prompt could not be computed: {error}") from error
        return found
