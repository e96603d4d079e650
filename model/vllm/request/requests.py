"""What a generation asks of vLLM: for each sequence a request of vLLM's own, and what splits its text.

Generation --prompts/, chat.py--> prompt --structured.py, sampling.py--> SamplingParams --core.py--> Prepared
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import Fault, ParameterError, RequestError, UnsupportedError, raised_by_us
from ...generation import Conversation, Generation, Sampling
from ...media.parts import AUDIO, MediaFile
from ...options import Settings
from ...text.prompt_limits import check_ids, max_new_tokens_for, with_truncation
from ...text.response_limit import check_size
from ..core import Core
from ..guides.backends import GuideBackends
from ..guides.beginning import Beginning
from ..guides.faults import Guide
from ..guides.in_core import MARKS
from ..guides.structured import structured_outputs
from ..typical import Typical
from .beams import BeamLimits
from .bounds import RunnerBounds
from .budget import ThinkingBudget
from .chat import TEMPLATE, ChatRenderer
from .prepared import Heard, Prepared
from .prompts.prompt import PromptRenderer, answered_ids, client_errors, refused, template_errors
from .repeated import RepeatedRequests
from .sampling import sampling_params
from .transcription import Transcriber

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["Requests"]


class Requests:
    """Prepares generations for one model, beside the engine's steps."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        chat: ChatRenderer,
        beams: BeamLimits,
        typical: Typical,
        adapter: Callable[[str], Any],
        transcriber: Transcriber | None,
    ) -> None:
        """`adapter` gives vLLM's LoRARequest by its key, or raises AdapterError."""
        config = core.model_config
        self._adapter = adapter
        self._core = core
        self._chat = chat
        self._beams = beams
        self._typical = typical
        self._transcriber = transcriber
        self._most = settings.limits.max_prompt_tokens
        self._longest = settings.limits.max_answer_bytes
        self._prompts = PromptRenderer(core, self._most)
        self._context: int = config.max_model_len
        self._client_errors = client_errors()
        guides: Any = core.vllm_config.structured_outputs_config
        self._guides = GuideBackends(core.vllm_config, core.get_tokenizer(), by_request=core.guides_by_request)
        self._chat_guides = self._guides.of_xgrammar() if chat.by_tags else self._guides
        self._compact: bool = guides.disable_any_whitespace
        self._waits: bool = core.guides_by_request and not guides.enable_in_reasoning
        self._connected = core.vllm_config.kv_transfer_config is not None
        self._by_priority = core.vllm_config.scheduler_config.policy == "priority"
        self._vocabulary: int = config.get_vocab_size()
        self._bounds = RunnerBounds(self._vocabulary)
        self._budget = ThinkingBudget(core.vllm_config)
        self._repeated = RepeatedRequests()
        known = getattr(core.get_tokenizer(), "max_token_id", 0) + 1
        # Some tokenizers know more tokens than their model: those in the place of an image (vLLM, InputProcessor), and
        # in a text such as have no row among the embeddings, where the core would look for one.
        self._prompt_vocabulary = max(self._vocabulary, known) if config.is_multimodal_model else self._vocabulary
        self._tokenizer_knows_more = known > self._prompt_vocabulary
        self._defaults: dict[str, Any] = dict(config.get_diff_sampling_param())

    def knows(self, conversation: Conversation) -> bool:
        """Whether the form of a conversation has been kept."""
        return self._chat.knows(conversation)

    def prepare(
        self, number: int, generation: Generation, images: Sequence[MediaFile] = (), *, whole: bool = False
    ) -> Prepared:
        """Tokenizes and checks; raises RequestError. `whole`: with all images, whatever the core has."""
        if generation.transcription is not None:
            return self.transcribe(number, generation, images, whole=whole)
        generation = with_truncation(generation, self._context, self._most)
        sampling = generation.sampling
        lora = None if generation.adapter is None else self._adapter(generation.adapter)
        conversation = generation.prompt if isinstance(generation.prompt, Conversation) else None
        path: str | None = _fault_of(generation)
        """Of what vLLM finds fault with, where it does not say."""
        try:
            request = self._chat.request(conversation, sampling.structured_output) if conversation else None
            # What is to be sent step by step must not depend on what the core has then.
            whole = whole or sampling.beams is not None
            prompt = self._prompt(request, images, generation, whole=whole)
            ids: list[int] = list(prompt["prompt_token_ids"])
            max_tokens = max_new_tokens_for(generation, len(ids), self._context, self._most)
            check_size(generation, len(ids), self._longest)
            if isinstance(generation.prompt, tuple) or self._tokenizer_knows_more:
                check_ids("prompt", ids, self._prompt_vocabulary)
            guide = sampling.structured_output
            calls = self._chat.tool_format(conversation, request) if conversation and guide else None
            backends = self._chat_guides if conversation else self._guides
            guided, path = structured_outputs(guide, conversation, request, backends, calls)
            if conversation is not None:
                guided, path = self._chat.placed(conversation, request, guided, path, backends)
            first = self._repeated.again(generation, prompt, max_tokens) if guided is None else None
            others: Sequence[SamplingParams] = ()
            if first is None:
                first, others = self._checked(generation, prompt, max_tokens, guided, lora)
                if guided is None:
                    self._repeated.keep(generation, prompt, first)
        except self._client_errors as error:
            if raised_by_us(error) and not isinstance(error, RequestError):
                raise
            raise refused(error, path) from error
        made, reasons = None, True
        if guided is not None and path is not None:
            begins = self._chat.beginning(conversation, request, ids, waits=self._waits)
            reasons = begins.reasons
            if self._guides.decides:
                first.sampling_params.structured_outputs = guided
            _begin_guide(first, begins)
            fails_first = not (self._connected or first.mm_features)
            begins_after = None if begins.at_once else self._chat.reasoning_end
            made = Guide(path, first.sampling_params, begins_after, begins.marks, self._compact, fails_first)
        splitters = [
            self._chat.splitter(conversation, request, ids, reasons=reasons) if conversation else None
            for _ in range(sampling.n)
        ]
        if request is not None and not request.skip_special_tokens:
            # Some parsers need the special tokens in the text that they take apart.
            sampling = msgspec.structs.replace(sampling, skip_special_tokens=False)
        width = sampling.beams.width if sampling.beams is not None else sampling.n
        # Of a prompt that is shown, each token and each likely one beside it takes about what a token takes.
        entries = 0 if sampling.prompt_logprobs is None else len(ids) * (1 + sampling.prompt_logprobs)
        tokens = (len(ids) + max_tokens) * width + entries
        requests = [first, *(_again(first, other) for other in others)]
        return Prepared(
            number, generation, sampling, prompt, ids, max_tokens, tokens, images, requests, splitters, made
        )

    def transcribe(
        self,
        number: int,
        generation: Generation,
        files: Sequence[MediaFile],
        heard: Heard | None = None,
        *,
        whole: bool = False,
    ) -> Prepared:
        """The same of audio; `heard`: it has been decoded already."""
        writer = self._transcriber
        if writer is None:
            raise UnsupportedError("this model does not transcribe audio", AUDIO)
        lora = None if generation.adapter is None else self._adapter(generation.adapter)

        def checked(prompt: Any, ids: list[int]) -> Any:
            most = max_new_tokens_for(generation, len(ids), self._context, self._most)
            return self._checked(generation, prompt, most, None, lora)[0], most

        try:
            return writer.prepare(number, generation, files, checked, heard, whole=whole)
        except self._client_errors as error:
            if raised_by_us(error) and not isinstance(error, RequestError):
                raise
            raise refused(error, "prompt" if generation.prompt else AUDIO) from error

    def told(self, prepared: Prepared, ids: list[int]) -> Prepared:
        """What asked for the language of audio, prepared anew by what the model has answered."""
        assert prepared.heard is not None
        assert self._transcriber is not None
        heard = dataclasses.replace(prepared.heard, language=self._transcriber.language(ids))
        return self.transcribe(prepared.number, prepared.generation, prepared.images, heard)

    def trial(self, number: int, request_id: str) -> Prepared:
        """A second of silence, which a start has written down."""
        assert self._transcriber is not None
        asked, heard = self._transcriber.trial()
        one = Generation(request_id=request_id, prompt="", transcription=asked, sampling=Sampling(max_tokens=1))
        return self.transcribe(number, one, (), heard)

    def _checked(
        self, generation: Generation, prompt: Any, max_tokens: int, guided: Any, lora: Any
    ) -> tuple[Any, Sequence[SamplingParams]]:
        """The request of the first sequence, checked, and the SamplingParams of the others; raises RequestError, and
        what vLLM raises for what it refuses.
        """
        sampling = generation.sampling
        params = sampling_params(
            generation, self._defaults, max_tokens, None if self._guides.decides else guided,
            self._typical.arguments(sampling), vocabulary=self._vocabulary, connected=self._connected,
        )  # fmt: skip
        self._budget.check(sampling)
        if sampling.beams is not None:
            self._beams.check(generation, sampling.beams)
        if generation.cache_salt is not None:
            prompt = {**prompt, "cache_salt": generation.cache_salt}
        priority = generation.priority if self._by_priority else 0
        first = self._core.request(prompt, params[0], priority, lora)
        self._bounds.check(first.sampling_params)
        return first, params[1:]

    def prompt_ids(self, generation: Generation, images: Sequence[MediaFile] = ()) -> list[int]:
        """The token ids that `prepare` would make of the prompt; raises RequestError."""
        given = generation.prompt
        if isinstance(given, tuple):
            check_ids("prompt", given, self._prompt_vocabulary)
            return [*given]
        try:
            request = self._chat.request(given) if isinstance(given, Conversation) else None
            return answered_ids(self._prompt(request, images, generation))
        except self._client_errors as error:
            if raised_by_us(error) and not isinstance(error, RequestError):
                raise
            raise refused(error, _fault_of(generation)) from error

    def _prompt(self, request: Any, images: Sequence[MediaFile], generation: Generation, *, whole: bool = False) -> Any:
        """The prompt as vLLM takes it; `request` is its form of a conversation, None for another prompt."""
        if not request:
            return self._prompts.render(generation)
        shortened = self._prompts.shortening(generation, images)
        try:
            return self._chat.render(request, images, generation.sampling, shortened, whole=whole)
        except template_errors() as error:
            if raised_by_us(error):
                raise
            path = _fault_of(generation)
            words = "the chat template refuses it" if path == "prompt" else "it cannot be applied"
            raise ParameterError.because(Fault(path, f"{words}: {error}")) from error


def _fault_of(generation: Generation) -> str:
    """The path of what is likely at fault where a prompt cannot be made."""
    prompt = generation.prompt
    return TEMPLATE if isinstance(prompt, Conversation) and prompt.chat_template is not None else "prompt"


def _begin_guide(request: Any, begins: Beginning) -> None:
    """Tells the core where a request's guide begins."""
    params = request.sampling_params
    request.reasoning_ended, request.reasoning_parser_kwargs = begins.at_once, begins.arguments
    if begins.marks is not None:
        params.extra_args = {**(params.extra_args or {}), MARKS: [*begins.marks]}


def _again(request: Any, other: SamplingParams) -> Any:
    """The same request for another sequence, checked already."""
    made = copy.copy(request)
    made.sampling_params = params = request.sampling_params.clone()
    params.seed, params.prompt_logprobs = other.seed, other.prompt_logprobs
    params.skip_reading_prefix_cache = other.skip_reading_prefix_cache
    return made
