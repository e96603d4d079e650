"""vLLM's pooling models as a backend that makes a vector of each prompt, on vLLM 0.23.0 and later.

    Generation --prepare--> prompt ids, PoolingParams --add--> one vLLM request
    EngineCoreOutput --receive--> Started, Delta(vector)

Which of the tokens' vectors count (the first's, the last's, their mean) is the model's own matter: vLLM reads it from
the model's files as sentence-transformers wrote them, or `option.pooler_config` says it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..engine import EngineInfo, EngineStats
from ..errors import (
    ContextError,
    GenerationError,
    LmiError,
    OptionError,
    ParameterError,
    RequestError,
    UnsupportedError,
)
from ..events import Delta, Event, Failed, Finish, Started
from ..generation import Conversation, Embedding, Generation
from ..media.images import Image
from ..options import Settings
from ..text.prompt_limits import check_ids, check_prompt, check_text, first, last, max_prompt_tokens
from ..text.prompt_tokens import told_tokens
from ..text.tokenizer import Tokenizer
from .adapters import VllmAdapters, no_adapter
from .core_outputs import told
from .internals import part, tokenize_params
from .start import client_errors, make_core, start
from .trial import try_out

__all__ = ["VllmEmbedding", "vector_of"]

log = logging.getLogger(__name__)

TASK = "embed"


@dataclass(slots=True)
class _Prepared:
    """A generation, ready to be added."""

    number: int
    request: Any
    """An EngineCoreRequest, without its name."""
    tokens: int
    request_id: str


class VllmEmbedding:
    """An AsyncBackend (model/engine.py) on vLLM's core."""

    def __init__(self, settings: Settings) -> None:
        self._core = make_core(settings)
        start(self._core, settings)
        import vllm

        config = self._core.model_config
        self._model_config = config
        self._size: int = config.embedding_size
        self._vocabulary: int = config.get_vocab_size()
        self._tokenizer = Tokenizer(self._core.get_tokenizer())
        self._client_errors = client_errors()
        self._lower_case = bool((config.encoder_config or {}).get("do_lower_case", False))
        self._before, self._after = self._around()
        self._most = settings.limits.max_prompt_tokens
        self.adapters = VllmAdapters(self._core) if settings.adapters.enable_lora else None
        self._running: dict[str, _Prepared] = {}
        """By the name that vLLM knows it by."""
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=config.max_model_len)

    async def begin(self) -> None:
        """Asks what the model can do, and tries a token; raises OptionError, StartError."""
        await self._core.begin()
        if TASK not in (tasks := self._core.tasks):
            raise OptionError(
                f"option.task: vLLM makes no embeddings with this model "
                f"({', '.join(self._model_config.architectures)}), it can do {', '.join(tasks) or 'nothing'}",
                "task",
            )
        await try_out(self, embedding=Embedding())

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._running)

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> _Prepared:
        """Tokenizes, cuts and checks; raises RequestError. Texts have no images."""
        from vllm import PoolingParams

        field = generation.prompt_field
        wanted = generation.embedding
        if wanted is None:
            raise UnsupportedError("this model makes embeddings and generates no text")
        lora = None
        if generation.adapter is not None:
            lora = (no_adapter if self.adapters is None else self.adapters.request)(generation.adapter)
        params = PoolingParams(
            task=TASK, dimensions=self._dimensions(wanted.dimensions), use_activation=wanted.normalize
        )
        try:
            given = generation.prompt
            if isinstance(given, str):
                special = generation.add_special_tokens
                prompt = self._render(self._part(given, wanted, field), special)
                ids: list[int] = list(prompt["prompt_token_ids"])
                cut = self._cut(ids, wanted, around=special)
                if len(cut) < len(ids):
                    prompt = None
            else:
                cut = self._cut([*cast("tuple[int, ...]", given)], wanted, around=False)
                prompt = None
            self._check(cut, field)
            if prompt is None:
                prompt = self._render(tuple(cut))
            request = self._core.request(prompt, params, lora_request=lora)
        except self._client_errors as error:
            if isinstance(error, RequestError):
                raise
            raise ParameterError(f"{field}: {error}", field) from error
        return _Prepared(number, request, len(cut), generation.request_id)

    def tokenize(self, generation: Generation, images: Sequence[Image] = ()) -> Started:
        """The text's tokens; raises RequestError. Texts have no images."""
        given, field = generation.prompt, generation.prompt_field
        if isinstance(given, Conversation):
            raise UnsupportedError(f"{field}: this model makes embeddings and takes no chat, expected a text", field)
        if isinstance(given, tuple):
            check_ids(field, given, self._vocabulary)
            ids = [*given]
        else:
            rendered = self._render(self._part(given, Embedding(), field), generation.add_special_tokens)
            ids = [*rendered["prompt_token_ids"]]
        return told_tokens(generation, ids, self._tokenizer, self._info.context)

    def tokens(self, prepared: _Prepared) -> int:
        """The text's."""
        return prepared.tokens

    def prompt_text(self, prepared: _Prepared) -> str:
        """What the token ids stand for."""
        return str(self._core.get_tokenizer().decode(prepared.request.prompt_token_ids))

    def add(self, number: int, prepared: _Prepared) -> None:
        """Starts the request."""
        name = str(number)
        prepared.request.request_id = name
        self._core.add(prepared.request)
        self._running[name] = prepared

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        names = [name for name in map(str, numbers) if name in self._running]
        for name in names:
            del self._running[name]
        if names:
            self._core.abort(names)

    async def receive(self) -> list[tuple[int, Event]]:
        """What a step of the core brought; raises when it has ended."""
        events: list[tuple[int, Event]] = []
        for output in await self._core.receive():
            name = output.request_id
            if name not in self._running or output.finish_reason is None:
                continue
            prepared, number = self._running.pop(name), int(name)
            try:
                vector = vector_of(output.pooling_output)
                started = Started(prepared.tokens, told(output, 0).cached_tokens)
            except SystemExit:
                raise
            except BaseException as error:  # libraries in Rust panic with one
                if not isinstance(error, LmiError):
                    log.exception("request %s: generation %d failed", prepared.request_id, number)
                    error = GenerationError(f"the vector could not be read: {error}")
                events.append((number, Failed.of(error)))
                continue
            events += [(number, started), (number, Delta(0, "", finish=Finish("eos"), vector=vector))]
        return events

    def stats(self) -> EngineStats:
        """How busy vLLM's scheduler is."""
        return self._core.stats()

    def metrics(self, content_type: str) -> bytes:
        """vLLM's own."""
        return self._core.metrics(content_type)

    def close(self) -> None:
        """Ends vLLM's own processes."""
        self._core.close()

    def _render(self, given: Any, special: bool = False) -> Any:
        """The prompt as vLLM takes it; with `special`, text gets the tokenizer's special tokens."""
        said: dict[str, Any] = {"prompt": given} if isinstance(given, str) else {"prompt_token_ids": [*given]}
        parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")
        tokenize = tokenize_params(do_lower_case=self._lower_case, add_special_tokens=special)
        rendered: list[Any] = self._core.renderer.render_cmpl([parsed(self._model_config, said)], tokenize)
        (prompt,) = rendered
        return prompt

    def _part(self, text: str, wanted: Embedding, field: str) -> str:
        """What is to be tokenized of a text; raises ContextError for one that is far too long."""
        allowed = max_prompt_tokens(self._info.context, self._most)
        keep = self._info.context if wanted.truncate is True else wanted.truncate
        if wanted.truncate is False or keep > allowed:
            check_text(field, text, allowed, self._count)
            return text
        return first(text, keep, self._count) if wanted.cut == "right" else last(text, keep, self._count)

    def _count(self, text: str) -> int:
        return len(self._core.get_tokenizer().encode(text, add_special_tokens=False))

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
                "dimensions", wanted, f"{size}: the model is not trained for others (its config has no is_matryoshka)"
            )
        if known := config.matryoshka_dimensions:
            if wanted not in known:
                raise ParameterError.of("dimensions", wanted, "one of " + ", ".join(map(str, known)))
        elif not 1 <= wanted <= size:
            raise ParameterError.of("dimensions", wanted, f"an integer from 1 to {size}")
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

    def _check(self, ids: list[int], field: str) -> None:
        check_prompt(field, len(ids), self._most)
        context = self._info.context
        if not 1 <= len(ids) <= context:
            raise ContextError(
                f"{field}: expected a text of 1 to {context} tokens (the model's context is {context}), got "
                f"{len(ids)} tokens",
                field,
            )
        # Some tokenizers know more tokens than their model, and vLLM asks the tokenizer.
        if max(ids) >= self._vocabulary:
            raise ParameterError.of(field, max(ids), f"tokens that the model has, below {self._vocabulary}")


def vector_of(pooled: Any) -> bytes:
    """A pooling output in the form of Delta.vector."""
    import torch

    if pooled is None:
        raise GenerationError("the engine failed while embedding")
    data = cast("torch.Tensor", pooled).detach().to("cpu", torch.float32).contiguous()
    if data.ndim != 1 or not len(data):
        raise GenerationError("the engine failed while embedding")
    if not bool(torch.isfinite(data).all()):
        raise GenerationError("the vector is not finite; a wider type may help (option.dtype=bf16 or fp32)")
    vector: bytes = data.numpy().astype("<f4", copy=False).tobytes()
    return vector
