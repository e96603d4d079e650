"""What a generation asks of the transformers engine: the prompt's ids, and how each sequence chooses tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError, RequestError, UnsupportedError
from ..generation import Conversation, Generation, Sampling, nth_seed
from ..options import Settings
from ..text.parsers import Splitter
from ..text.prompt_limits import max_new_tokens_for, most_tokens, shortened
from ..text.response_limit import check_size
from .chat import Chat
from .load import Loaded
from .options import Arguments
from .sampler import SamplingState, bad_words, defaulted
from .structured import Guides

if TYPE_CHECKING:
    from .beam import RowsRun

__all__ = ["Prepared", "Requests"]


@dataclass(slots=True)
class Prepared:
    """A generation, ready to be added."""

    number: int
    generation: Generation
    prompt_ids: list[int]
    max_tokens: int
    choosers: list[SamplingState]
    splitters: list[Splitter | None]
    skip_special_tokens: bool
    search: RowsRun | None = None
    """What it is instead of sequences, where a beam search is asked for."""


class Requests:
    """Prepares generations for one model."""

    def __init__(self, loaded: Loaded, settings: Settings, arguments: Arguments) -> None:
        self._loaded = loaded
        self._longest = settings.limits.max_answer_bytes
        self._most = settings.limits.max_prompt_tokens
        self._allowed = most_tokens(loaded.context - 1, self._most)
        self._max_logprobs = arguments.max_logprobs
        self._chat = Chat(loaded.tokenizer, settings)
        self._guides = Guides(
            loaded.tokenizer, loaded.words, sorted(loaded.eos_ids), any_whitespace=arguments.any_whitespace
        )

    def prepare(self, number: int, generation: Generation) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        sampling = generation.sampling
        if generation.adapter is not None:
            raise UnsupportedError("adapter: the transformers engine has no adapters", "adapter")
        conversation = generation.prompt if isinstance(generation.prompt, Conversation) else None
        request = self._chat.request(conversation) if conversation else None
        ids = self._prompt(generation, request)
        max_tokens = max_new_tokens_for(generation, len(ids), self._loaded.context, self._most)
        check_size(generation, len(ids), self._longest)
        self._check(sampling)
        field = conversation.tools_field if conversation else "tools"
        guide = self._guides.compile(sampling.structured_output, getattr(request, "structured_outputs", None), field)
        waits = self._chat.reasoning_end(ids) if guide is not None else None
        choosers = [self._chooser(sampling, index, max_tokens) for index in range(sampling.n)]
        if guide is not None:
            for chooser in choosers:
                chooser.guide = guide(waits)
        splitters = [self._chat.splitter(conversation, request, ids) if conversation else None for _ in choosers]
        # Some parsers need the special tokens in the text that they take apart.
        skip = sampling.skip_special_tokens and (request is None or request.skip_special_tokens)
        return Prepared(number, generation, ids, max_tokens, choosers, splitters, skip)

    def _prompt(self, generation: Generation, request: Any) -> list[int]:
        """The prompt's ids; raises ParameterError."""
        prompt, field, truncate = generation.prompt, generation.prompt_field, generation.sampling.truncate
        if isinstance(prompt, Conversation):
            ids = self._chat.render(prompt, request, field, partial(self._shortened, field, truncate))
        elif isinstance(prompt, str):
            prompt = self._shortened(field, truncate, prompt)
            ids = list(self._loaded.tokenizer(prompt, add_special_tokens=generation.add_special_tokens)["input_ids"])
        else:
            ids = list(prompt if truncate is None else prompt[-truncate:])
            max_new_tokens_for(generation, len(ids), self._loaded.context, self._most)
        # Beyond the vocabulary a device fails for everyone.
        if foreign := [token for token in ids if not 0 <= token < self._loaded.words]:
            raise RequestError.of(field, foreign[0], f"token ids from 0 to {self._loaded.words - 1}")
        return ids if truncate is None else ids[-truncate:]

    def _shortened(self, field: str, keep: int | None, text: str) -> str:
        return shortened(field, text, keep, self._allowed, self._count)

    def _count(self, text: str) -> int:
        return len(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _check(self, sampling: Sampling) -> None:
        """Raises RequestError for what only the model and the options can tell."""
        for name in ("logprobs", "prompt_logprobs"):
            if (wanted := getattr(sampling, name)) is not None and wanted > self._max_logprobs:
                most = f"{self._max_logprobs} (option.max_logprobs)"
                raise ParameterError(f"{name}: expected at most {most}, got {wanted}", name)
        words = self._loaded.words
        for name in ("logit_bias", "stop_token_ids"):
            if foreign := [token for token in getattr(sampling, name) or () if not 0 <= token < words]:
                raise ParameterError(f"{name}: expected token ids from 0 to {words - 1}, got {foreign[0]}", name)

    def _chooser(self, sampling: Sampling, index: int, max_tokens: int) -> SamplingState:
        """Sequence `index`'s way of choosing tokens."""
        import torch

        generator = None
        if sampling.seed is not None:
            generator = torch.Generator(self._loaded.forward.device).manual_seed(nth_seed(sampling.seed, index))
        ends = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._loaded.eos_ids)}
        return SamplingState(
            **defaulted(sampling, self._loaded.defaults),
            typical_p=1.0 if sampling.typical_p is None else sampling.typical_p,
            generator=generator,
            logprobs=sampling.logprobs,
            bias=sampling.logit_bias or {},
            bad_words=bad_words(self._loaded.tokenizer, sampling.bad_words),
            min_tokens=min(sampling.min_tokens, max_tokens),
            ends=sorted(ends),
        )
