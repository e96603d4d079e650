"""What the sequences of one generation share: its prompt, and how long its answer may become."""

from __future__ import annotations

from collections.abc import Iterator

from ...events import EngineEvent, Prefill, Recording, Started, Token
from ...generation import Generation, Sampling
from ...text.prompt_pieces import PIECE
from ...text.response_limit import TOKEN, too_long, weight
from ...text.tokenizer import Tokenizer
from ..core_outputs import Prompt
from ..guides.faults import Guide
from .likeliest import finite, likeliest

__all__ = ["SequenceGroup"]


class SequenceGroup:
    """What the sequences of one generation share, and which of them still run."""

    __slots__ = (
        "_longest",
        "_size",
        "_weight",
        "decoding",
        "ends",
        "generation",
        "guide",
        "held",
        "number",
        "prompt_ids",
        "recording",
        "running",
        "sampling",
        "started",
        "tokenizer",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        generation: Generation,
        sampling: Sampling,
        prompt_ids: list[int],
        tokenizer: Tokenizer,
        ends: frozenset[int],
        longest: int,
        guide: Guide | None = None,
        recording: Recording | None = None,
        decoding: float = 0.0,
    ) -> None:
        """`sampling` is the generation's, with what its chat template asks for; `ends` are the ids with which the model
        ends; an answer that is not streamed may come to `longest` bytes (text/response_limit.py).
        """
        self.number = number
        self.generation = generation
        self.sampling = sampling
        self.prompt_ids = prompt_ids
        self.tokenizer = tokenizer
        self.ends = ends
        self.guide = guide
        """What their texts must match."""
        self.recording = recording
        """Of audio that is written down: its pieces are the sequences."""
        self.decoding = decoding
        """Seconds that decoding the media took."""
        self.running: set[str] = set()
        """By their vLLM requests' names."""
        self.started = False
        self.held: list[EngineEvent] = []
        """What other sequences have brought before the first one, whose outputs alone tell of the prompt."""
        self._longest = longest
        self._weight = 0 if generation.stream else weight(generation)
        self._size = 0

    def weigh_kept(self) -> None:
        """Counts each token as one that is kept, though it is not shown."""
        self._weight = max(self._weight, 0 if self.generation.stream else TOKEN)

    @property
    def shows_prompt(self) -> bool:
        """Whether text or tokens of the prompt are wanted, which takes long to make of a long one."""
        return self.generation.echo or self.sampling.prompt_logprobs is not None

    def begin(self, prompt: Prompt) -> Iterator[Prefill | Started]:
        """The first events, made one by one: the prompt's tokens in pieces, each with its likeliest ones; the first
        token has no log-probability.
        """
        ids, tokenizer = self.prompt_ids, self.tokenizer
        text = tokenizer.joined(ids) if self.generation.echo else ""
        wanted = self.sampling.prompt_logprobs or 0
        decode = tokenizer.stream([], False, True)
        tokens: list[Token] = []
        ranks: list[int | None] = []
        for token_id, entry in zip(ids if prompt.logprobs else (), prompt.logprobs, strict=True):
            if len(tokens) * (1 + wanted) >= PIECE:
                yield Prefill(tuple(tokens), tuple(ranks))
                tokens, ranks = [], []
            logprob = finite(entry[token_id].logprob) if entry else None
            top = likeliest(entry, wanted, tokenizer) if entry else ()
            tokens.append(Token(token_id, decode(token_id), logprob, token_id in tokenizer.special_ids, top))
            ranks.append(entry[token_id].rank if entry else None)
        shown = tuple(ids) if self.generation.prompt_ids else ()
        yield Started(
            len(ids), prompt.cached_tokens, tuple(tokens), text, tuple(ranks), prompt_ids=shown,
            recording=self.recording, decoding=self.decoding,
        )  # fmt: skip

    def count(self, tokens: int) -> None:
        """Counts new tokens of an answer that is not streamed; raises ParameterError where it becomes too long."""
        self._size += self._weight * tokens
        if self._size > self._longest:
            raise too_long(self._size, self._longest)
