"""Audio that is to be written down: for each piece of it a request of vLLM's own, made as vLLM's server makes it.

    file --media/decoder.py--> pieces --the model's class--> prompts --Core.request--> Prepared, a sequence for each

What is said to a model, and what of its answer is text, its class knows (vLLM: SupportsTranscription). Some models are
asked for the language first, by a request of one token (model/vllm/languages.py): Transcription.language is set then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ...errors import Fault, OptionError, ParameterError, StartError, UnsupportedError
from ...events import Recording
from ...generation import Generation, Transcription
from ...media.parts import AUDIO, MediaFile
from ...text.answers.part import Part
from ..core import Core
from ..library.internals import transcribes
from ..library.parts import part
from ..media.decoder import MediaDecoder, processor_faults
from ..media.decoding import Cut
from .prepared import Heard, Prepared
from .prompts.prompt import answered_ids, decoder_input

__all__ = ["Transcriber", "TranscriptSplitter", "transcriber"]

BEFORE = "<|startofprev|>"
"""Whisper's token before a text that helps. vLLM spells out another one, and puts the beginning of the answer before
both (0.26, 0.32)."""
NO_TIMES, FIRST_TIME = "<|notimestamps|>", "<|0.00|>"


class Transcriber:
    """One model's; on any thread."""

    def __init__(self, core: Core, media: MediaDecoder, model: Any) -> None:
        """`model`: its class, of which supports_transcription is true."""
        self._core = core
        self._media = media
        self._model = model
        self.alone: bool = model.supports_transcription_only
        """Whether it does nothing else."""
        config = core.model_config
        self._configs = {
            translate: model.get_speech_to_text_config(config, "translate" if translate else "transcribe")
            for translate in (False, True)
        }
        self._tokenizer = core.get_tokenizer()
        base = part("vllm.model_executor.models.interfaces:SupportsTranscription")
        # OpenAI's English models have tokens for languages and tasks that they were not trained with: after them, which
        # vLLM's server writes all the same, they end at once. transformers goes by this field, too.
        given = config.try_get_generation_config()
        self._only = "en" if given.get("is_multilingual") is False else None
        """The one language that the model knows, of which its prompts say nothing."""
        self._default: str | None = model.validate_language(None)
        """The language where a request names none; None: the model needs none, or is asked for it."""
        self._special = frozenset(self._tokenizer.all_special_ids)
        before = self._tokenizer.get_vocab().get(BEFORE)
        self._before: int | None = before if config.is_encoder_decoder else None
        """The id of that token; None: the model's class knows what to do with such a text."""
        first = self._tokenizer.encode(FIRST_TIME, add_special_tokens=False)
        self._first_time = first[0] if model.supports_segment_timestamp and len(first) == 1 else None
        """The id of the token for a piece's beginning; None: the model gives no points in time."""
        self._processor = model.get_streaming_post_processor_cls()
        self._plain = self._processor is base.get_streaming_post_processor_cls()

    def trial(self) -> tuple[Transcription, Heard]:
        """What a start tries: a second of silence."""
        import numpy as np

        language = self._only or self._default or next(iter(self._model.supported_languages))
        silence = np.zeros(int(self._configs[False].sample_rate), np.float32)
        return Transcription(language=language), Heard([silence], language)

    def prepare(
        self,
        number: int,
        generation: Generation,
        files: Sequence[MediaFile],
        checked: Callable[[Any, list[int]], tuple[Any, int]],
        heard: Heard | None = None,
        *,
        whole: bool = False,
    ) -> Prepared:
        """A request for each piece, or the one that asks for the language; `heard`: what has been decoded already.

        `checked` makes vLLM's request of a prompt and of its tokens, and tells how many may follow. `whole`: with all
        audio, whatever the core has. Raises RequestError, and what vLLM raises for what it refuses.
        """
        asked, sampling = generation.transcription, generation.sampling
        assert asked is not None
        if sampling.n > 1 or sampling.beams is not None or sampling.structured_output is not None:
            raise UnsupportedError("audio is written down once, without beam search and without a guide", AUDIO)
        heard = heard or self._hear(asked, files[0])
        if heard.language is None and self._model.supports_explicit_language_detection:
            return self._asking(number, generation, files, heard)
        prompts = self._prompts(generation, asked, heard, whole=whole)
        ids = [answered_ids(prompt) for prompt in prompts]
        made = [checked(prompt, some) for prompt, some in zip(prompts, ids, strict=True)]
        tokens = sum(len(some) + most for some, (_, most) in zip(ids, made, strict=True))
        return Prepared(
            number, generation, sampling, {}, [token for some in ids for token in some], made[0][1], tokens, files,
            [request for request, _ in made], [self._splitter() for _ in made], None, self._recording(asked, heard),
        )  # fmt: skip

    def language(self, ids: list[int]) -> str:
        """What the model says when it is asked for the language; raises ParameterError where that is none."""
        try:
            found: str = self._model.parse_language_detection_output(ids, self._tokenizer)
        except AssertionError:
            # The tokenizers of some lack a language, and have the end of the text in its place.
            fault = Fault("transcription.language", expected="a language, which the model could not tell")
            raise ParameterError.because(fault) from None
        return found

    def _asking(self, number: int, generation: Generation, files: Sequence[MediaFile], heard: Heard) -> Prepared:
        """The request that asks for the language (SpeechToTextBaseServing._detect_language)."""
        from vllm import SamplingParams

        model = self._model
        prompt = self._rendered(model.get_language_detection_prompt(heard.pieces[0], self._configs[False]))
        known = model.get_language_token_ids(self._tokenizer)
        params = SamplingParams(max_tokens=1, temperature=0.0, allowed_token_ids=known, detokenize=False)
        request = self._core.request(prompt, params)
        ids = answered_ids(prompt)
        tokens = len(heard.pieces) * self._core.model_config.max_model_len
        return Prepared(
            number, generation, generation.sampling, {}, ids, 1, tokens, files, [request], [None], None, heard=heard
        )

    def _hear(self, asked: Transcription, file: MediaFile) -> Heard:
        """Decodes and cuts a file; raises ParameterError."""
        for name in ("language", "to_language"):
            if (given := getattr(asked, name)) is not None:
                try:
                    self._model.validate_language(given)
                except ValueError:
                    known = ", ".join(self._model.supported_languages)
                    raise ParameterError.of(f"transcription.{name}", given, f"one of {known}") from None
                if self._only not in {None, given}:
                    raise ParameterError.of(f"transcription.{name}", given, f"{self._only}, all that this model knows")
        if asked.translate and self._only is not None:
            raise UnsupportedError.because(Fault(AUDIO, "this model knows one language, and translates from no other"))
        if asked.timestamps and self._first_time is None:
            raise no_times()
        config = self._configs[asked.translate]
        longest, window = config.max_audio_clip_s, config.min_energy_split_window_size
        cut = Cut(config.sample_rate, longest, config.overlap_chunk_second, window)
        return Heard(self._media.pieces(file, cut), asked.language or self._only or self._default)

    def _prompts(self, generation: Generation, asked: Transcription, heard: Heard, *, whole: bool) -> list[Any]:
        """vLLM's prompt of each piece; raises what its renderer raises, and ParameterError."""
        arguments: dict[str, Any] = {
            "stt_config": self._configs[asked.translate],
            "model_config": self._core.model_config,
            "language": heard.language,
            "task_type": "translate" if asked.translate else "transcribe",
            "request_prompt": generation.prompt if self._before is None else "",
            "to_language": _to_language(asked),
            "hotwords": asked.hotwords,
        }
        params = part("vllm.config.speech_to_text:SpeechToTextParams")
        made = [self._model.get_generation_prompt(params(audio=samples, **arguments)) for samples in heard.pieces]
        if asked.timestamps:
            made = [_replaced(prompt, NO_TIMES, FIRST_TIME) for prompt in made]
        if self._only is not None:
            made = [_replaced(prompt, f"<|{self._only}|><|transcribe|>", "") for prompt in made]
        rendered = [self._rendered(prompt, whole=whole) for prompt in made]
        if generation.prompt and self._before is not None:
            # As transformers has it, and OpenAI: of a long text the end.
            before = self._tokenizer.encode(f" {str(generation.prompt).strip()}", add_special_tokens=False)
            most = self._core.model_config.max_model_len // 2 - 1
            if not self._special.isdisjoint(before):
                raise ParameterError.because(Fault("prompt", expected="a text without tokens of the model's own"))
            for prompt in rendered:
                ids = decoder_input(prompt)["prompt_token_ids"]
                ids[:0] = self._before, *before[-most:]
        return rendered

    def _recording(self, asked: Transcription, heard: Heard) -> Recording:
        """What is told of the audio."""
        config = self._configs[asked.translate]
        rate = config.sample_rate
        *starts, samples = accumulate(map(len, heard.pieces), initial=0)
        told = _to_language(asked) if asked.translate else heard.language
        model_config = self._core.model_config
        # Models without an encoder have them in their prompts, where they are counted already.
        tokens: int | None = None
        if model_config.is_encoder_decoder:
            tokens = self._model.get_num_audio_tokens(samples / rate, config, model_config)
        return Recording(
            samples / rate,
            tuple(start / rate for start in starts),
            heard.language or "",
            spaced=told not in self._model.no_space_languages,
            audio_tokens=tokens,
            first_time=self._first_time if asked.timestamps else None,
        )

    def _splitter(self) -> TranscriptSplitter | None:
        """What takes one piece's answer apart; None where it is text as it is."""
        return None if self._plain else TranscriptSplitter(self._processor())

    def _rendered(self, prompt: Any, *, whole: bool = False) -> Any:
        core = self._core
        parsed = part("vllm.renderers.inputs.preprocess:parse_model_prompt")(core.model_config, prompt)
        with self._media.processing, processor_faults([MediaFile(b"", AUDIO, "audio")]):
            if core.images is not None:
                core.images.whole = whole
            return core.renderer.render_cmpl([parsed], skip_mm_cache=True)[0]


def _to_language(asked: Transcription) -> str | None:
    """What audio is translated into: as in OpenAI's API into English, of which vLLM's server tells some models nothing
    (GLM-ASR reads "translate the speech to None" in 0.26).
    """
    return asked.to_language or ("en" if asked.translate else None)


def no_times() -> UnsupportedError:
    """The error where points in time are wanted of a model that gives none."""
    return UnsupportedError.because(Fault("transcription.timestamps", "this model gives no points in time"))


def _replaced(prompt: Any, some: str, others: str) -> Any:
    """The same prompt with other tokens before the answer (as SpeechToTextBaseServing._preprocess_verbose_prompt has it
    with points in time).
    """
    decoder = prompt.get("decoder_prompt") if isinstance(prompt, dict) else None
    if not isinstance(decoder, dict) or "prompt" not in decoder:
        raise no_times()
    return {**prompt, "decoder_prompt": {**decoder, "prompt": decoder["prompt"].replace(some, others)}}


def transcriber(core: Core, media: MediaDecoder) -> Transcriber | None:
    """A model's; None: it writes nothing down, or none for now, as what decodes audio is not installed, or the options
    allow none. Raises StartError where there is nothing else that it could do."""
    if not transcribes(core.model_config):
        return None
    model = part("vllm.model_executor.model_loader:get_model_cls")(core.model_config)
    if media.limits["audio"]:
        return Transcriber(core, media, model)
    if not model.supports_transcription_only:
        return None
    if media.missing:
        raise StartError(f"the model reads audio alone, and what decodes it is not installed: {media.missing}")
    raise OptionError.of("limit_mm_per_prompt", "the model reads audio alone, and it is to have none")


class TranscriptSplitter:
    """Takes from one piece's answer what is no text, as the model's class does."""

    by_tokens = True
    reasoning_tokens = 0
    dropped = 0

    def __init__(self, processor: Any) -> None:
        """`processor`: vLLM's StreamingTranscriptionPostProcessor of the model."""
        self._processor = processor

    def feed(self, tokens: Any, *, ended: bool, cut: bool = False) -> Part:
        """As TokenSplitter."""
        tokens = [*tokens]
        text = "".join(token.text for token in tokens)
        return Part(text=self._processor.process_delta(text, ended), tokens=tokens)
