"""Models that make a vector of each prompt.

Which of the tokens' vectors count (the first's, the last's, their mean) is the model's own matter: vLLM reads it from
the model's files as sentence-transformers wrote them, or `option.pooler_config` says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from ...errors import Fault, ParameterError, RequestError, UnsupportedError
from ...generation import Conversation, Embedding, Generation
from ...media.parts import MediaFile
from ...options import Settings
from ...text.prompt_limits import check_text, first, last, max_prompt_tokens
from .backend import PoolingBackend, Prepared

__all__ = ["VllmEmbedding"]

DIMENSIONS = "embedding.dimensions"


class VllmEmbedding(PoolingBackend):
    """An AsyncBackend (model/backend.py) on vLLM's core."""

    task: ClassVar[Literal["embed", "classify"]] = "embed"
    makes = "embeddings"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._size: int = self._model_config.embedding_size
        self._before, self._after = self._around()

    async def begin(self) -> None:
        """As `begin_with`."""
        await self.begin_with(Generation(request_id="start", prompt=(0,), embedding=Embedding()))

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Prepared:
        """Tokenizes, cuts and checks; raises RequestError. Texts have no images."""
        from vllm import PoolingParams

        wanted = generation.embedding
        if wanted is None:
            raise UnsupportedError("this model makes embeddings and generates no text")
        lora = self.adapter_of(generation)
        params = PoolingParams(
            task="embed", dimensions=self._dimensions(wanted.dimensions), use_activation=wanted.normalize
        )
        try:
            given = generation.prompt
            ids: list[int]
            if isinstance(given, str):
                special = generation.add_special_tokens
                prompt = self.render(self._part(given, wanted), special)
                ids = list(prompt["prompt_token_ids"])
                cut = self._cut(ids, wanted, around=special)
                if len(cut) < len(ids):
                    prompt = None
            else:
                if isinstance(given, Conversation):
                    ids = self.conversation(given, wanted.truncate, wanted.cut)
                else:
                    ids = [*given]
                cut = self._cut(ids, wanted, around=False)
                prompt = None
            self.check(cut)
            if prompt is None:
                prompt = self.render(tuple(cut))
            request = self._core.request(prompt, params, lora_request=lora)
        except self._client_errors as error:
            if isinstance(error, RequestError):
                raise
            raise ParameterError.because(Fault("prompt", f"{error}")) from error
        return Prepared(number, request, len(cut), generation.request_id)

    def _part(self, text: str, wanted: Embedding) -> str:
        """What is to be tokenized of a text; raises ContextError for one that is far too long."""
        allowed = max_prompt_tokens(self._info.context, self._most)
        keep = self._info.context if wanted.truncate is True else wanted.truncate
        if wanted.truncate is False or keep > allowed:
            check_text("prompt", text, allowed, self.count, self._info.context)
            return text
        return first(text, keep, self.count) if wanted.cut == "right" else last(text, keep, self.count)

    def _around(self) -> tuple[int, int]:
        """How many special tokens the tokenizer puts before a text and after it, found by trying."""
        tokenizer = self._core.get_tokenizer()
        bare: list[int] = tokenizer.encode("a", add_special_tokens=False)
        whole: list[int] = tokenizer.encode("a")
        for before in range(len(whole) - len(bare) + 1):
            if whole[before : before + len(bare)] == bare:
                return before, len(whole) - len(bare) - before
        return 0, 0

    def _dimensions(self, wanted: int | None) -> int | None:
        """`wanted` where it is not what comes anyway; raises RequestError where the model has no such vectors."""
        config, size = self._model_config, self._size
        if wanted is None or wanted == (config.pooler_config.dimensions or size):
            return None
        if not config.is_matryoshka:
            raise UnsupportedError.of(
                DIMENSIONS, wanted, f"{size}: the model is not trained for others (its config has no is_matryoshka)"
            )
        if known := config.matryoshka_dimensions:
            if wanted not in known:
                raise ParameterError.of(DIMENSIONS, wanted, "one of " + ", ".join(map(str, known)))
        elif not 1 <= wanted <= size:
            raise ParameterError.of(DIMENSIONS, wanted, f"an integer from 1 to {size}")
        return wanted

    def _cut(self, ids: list[int], wanted: Embedding, *, around: bool) -> list[int]:
        """The prompt within the length that it may have; with `around`, the special tokens around it stay."""
        if wanted.truncate is False:
            return ids
        longest = self._info.context if wanted.truncate is True else wanted.truncate
        if len(ids) <= longest:
            return ids
        before, after = (self._before, self._after) if around else (0, 0)
        room = longest - before - after
        if room < 1:
            return ids[:longest] if wanted.cut == "right" else ids[-longest:]
        text = ids[before : len(ids) - after]
        kept = text[:room] if wanted.cut == "right" else text[-room:]
        return [*ids[:before], *kept, *ids[len(ids) - after :]]
