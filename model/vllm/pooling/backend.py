"""What backends of pooling models share: one request and one vector for each generation.

Generation --prepare--> prompt ids, PoolingParams --add--> one vLLM request
EngineCoreOutput --receive--> Started, Delta(vector)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from ...engine import EngineInfo, EngineStats
from ...errors import Fault, GenerationError, LmiError, OptionError, ParameterError, UnsupportedError, raised_by_us
from ...events import Delta, Event, Failed, Finish, Started
from ...generation import Conversation, Generation
from ...media.parts import MediaFile
from ...options import Settings
from ...text.prompt_limits import check_ids, check_prompt, check_text, max_prompt_tokens, shortened, too_long
from ...text.prompt_tokens import told_tokens
from ..adapters import VllmAdapters, no_adapter
from ..configured import configured
from ..core_outputs import prompt_of
from ..library.internals import tokenize_params
from ..library.parts import part
from ..mistral.tokens import tokens_of
from ..request.prompts.prompt import client_errors, template_errors
from ..start import start
from ..trial import try_out
from .activation import Activation

__all__ = ["PoolingBackend", "Prepared", "vector_of"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Prepared:
    """A generation, ready to be added."""

    number: int
    request: Any
    """An EngineCoreRequest, without its name."""
    tokens: int
    request_id: str
    labels: tuple[str, ...] = ()
    """For Delta.labels."""
    activation: Activation | None = None
    """What is to be made of vLLM's vector, if anything."""


class PoolingBackend:
    """An AsyncBackend (model/backend.py) on vLLM's core, but for `prepare`."""

    task: ClassVar[Literal["embed", "classify"]]
    """vLLM's name of it."""
    makes: ClassVar[str]
    """What it makes, in words."""

    def __init__(self, settings: Settings) -> None:
        self._core, self._chat, _, self._pairs, _ = configured(settings)
        start(self._core, settings)
        import vllm

        config = self._core.model_config
        self._model_config = config
        self._vocabulary: int = config.get_vocab_size()
        self._tokenizer = tokens_of(self._core.get_tokenizer())
        self._client_errors = client_errors()
        self._lower_case = bool((config.encoder_config or {}).get("do_lower_case", False))
        self._most = settings.limits.max_prompt_tokens
        self.adapters = VllmAdapters(self._core) if settings.adapters.enable_lora else None
        self._running: dict[str, tuple[int, Prepared]] = {}
        """With its number, by the name that vLLM knows it by."""
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=config.max_model_len)

    async def begin_with(self, trial: Generation) -> None:
        """Asks what the model can do, and tries a token by `trial`; raises OptionError, StartError."""
        await self._core.begin()
        if self.task not in (tasks := self._core.tasks):
            model = f"this model ({', '.join(self._model_config.architectures)})"
            why = f"vLLM makes no {self.makes} with {model}, it can do {', '.join(tasks) or 'nothing'}"
            raise OptionError.of("task", why)
        await try_out(cast("Any", self), trial)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._running)

    def tokenize(self, generation: Generation, images: Sequence[MediaFile] = ()) -> Started:
        """The text's tokens; raises RequestError. Texts have no images."""
        given = generation.prompt
        if isinstance(given, Conversation):
            refusal = f"prompt: this model makes {self.makes} and takes no chat, expected a text"
            raise UnsupportedError(refusal, "prompt")
        if isinstance(given, str):
            check_text(
                "prompt", given, max_prompt_tokens(self._info.context, self._most), self.count, self._info.context
            )
            ids = self.render(given, generation.add_special_tokens)["prompt_token_ids"]
        else:
            check_ids("prompt", given, self._vocabulary)
            ids = given
        return told_tokens(generation, [*ids], self._tokenizer, self._info.context)

    def tokens(self, prepared: Prepared) -> int:
        """The prompt's."""
        return prepared.tokens

    def prompt_text(self, prepared: Prepared) -> str:
        """What the token ids stand for."""
        return str(self._core.get_tokenizer().decode(prepared.request.prompt_token_ids))

    def add(self, number: int, prepared: Prepared) -> None:
        """Starts the request."""
        name = self._core.name(number)
        prepared.request.request_id = name
        self._core.add(prepared.request)
        self._running[name] = number, prepared

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        names = [name for name in map(self._core.name, numbers) if name in self._running]
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
            number, prepared = self._running.pop(name)
            try:
                if unsent := self._core.failure(name):
                    raise GenerationError(unsent)
                vector = vector_of(output.pooling_output, self.makes, prepared.activation)
                started = Started(prepared.tokens, prompt_of(output, None, prepared.tokens).cached_tokens)
            except SystemExit:
                raise
            except BaseException as error:  # libraries in Rust panic with one
                if not isinstance(error, LmiError):
                    log.exception("request %s: generation %d failed", prepared.request_id, number)
                    error = GenerationError(f"the vector could not be read: {error}")
                events.append((number, Failed.of(error)))
                continue
            delta = Delta(0, "", finish=Finish("eos"), vector=vector, labels=prepared.labels)
            events += [(number, started), (number, delta)]
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

    def adapter_of(self, generation: Generation) -> Any:
        """vLLM's LoRARequest, or None; raises UnsupportedError where there are no adapters."""
        if generation.adapter is None:
            return None
        return (no_adapter if self.adapters is None else self.adapters.request)(generation.adapter)

    def render(self, given: Any, special: bool = False) -> Any:
        """The prompt as vLLM takes it; with `special`, text gets the tokenizer's special tokens."""
        said: dict[str, Any] = {"prompt": given} if isinstance(given, str) else {"prompt_token_ids": [*given]}
        parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")
        tokenize = tokenize_params(do_lower_case=self._lower_case, add_special_tokens=special)
        rendered: list[Any] = self._core.renderer.render_cmpl([parsed(self._model_config, said)], tokenize)
        (prompt,) = rendered
        return prompt

    def conversation(self, conversation: Conversation, truncate: int | bool, cut: str) -> list[int]:
        """Its tokens by the chat template, those that are to be kept among them; raises RequestError."""
        context = self._info.context
        keep = None if truncate is False else context if truncate is True else truncate
        allowed = max_prompt_tokens(context, self._most)

        def bounded(text: str) -> str:
            return shortened(text, keep, allowed, self.count, context, start=cut == "right")

        try:
            rendered = self._chat.render(self._chat.request(conversation), shortened=bounded)
        except template_errors() as error:
            if raised_by_us(error):
                raise
            raise ParameterError.because(Fault("prompt", f"the chat template refuses it: {error}")) from error
        return [*rendered["prompt_token_ids"]]

    def count(self, text: str) -> int:
        """How many tokens a text has, special ones not counted."""
        return len(self._core.get_tokenizer().encode(text, add_special_tokens=False))

    def check(self, ids: Sequence[int]) -> None:
        """Raises RequestError for a prompt that the model does not take."""
        context = self._info.context
        check_prompt(len(ids), self._most, context)
        if not ids:
            raise ParameterError.because(Fault("prompt", expected="a text of at least 1 token", given="0 tokens"))
        if len(ids) > context:
            raise too_long("prompt", len(ids), context, context)
        # Some tokenizers know more tokens than their model, and vLLM asks the tokenizer.
        if max(ids) >= self._vocabulary:
            raise ParameterError.of("prompt", max(ids), f"tokens that the model has, below {self._vocabulary}")


def vector_of(pooled: Any, makes: str, activation: Activation | None = None) -> bytes:
    """A pooling output in the form of Delta.vector, after its `activation`."""
    import torch

    if pooled is None:
        raise GenerationError(f"the engine failed while making {makes}")
    data = cast("torch.Tensor", pooled).detach().to("cpu", torch.float32).contiguous()
    if data.ndim != 1 or not len(data):
        raise GenerationError(f"the engine failed while making {makes}")
    if activation is not None:
        data = activation(data)
    if not bool(torch.isfinite(data).all()):
        raise GenerationError("the vector is not finite; a wider type may help (option.dtype=bf16 or fp32)")
    vector: bytes = data.numpy().astype("<f4", copy=False).tobytes()
    return vector
