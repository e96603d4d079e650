"""Audio that is written down: what is asked of a backend, what comes of it, and what vLLM's server makes of the same.

asked --> Generation --prepared--> requests;  --events_of--> events --texts, recording-->
                     `-vllms-----> requests, as vLLM's own server makes them
"""

from __future__ import annotations

import asyncio
import io
from typing import Any

from ..api.types import Generation, MediaFile, Recording, Sampling, Started, Transcription
from ..media.sounds import noise, wav
from .backends import NUMBERS, deltas

__all__ = ["asked", "events_of", "five_seconds", "one_second", "prepared", "recording", "texts", "vllms"]


def one_second() -> bytes:
    return wav(noise(1))


def five_seconds() -> bytes:
    return wav(noise(5, seed=3))


def asked(
    data: bytes | None = None, *, prompt: str = "", sampling: Sampling | None = None, **fields: Any
) -> Generation:
    """`fields` are Transcription's; without `data` a second of noise."""
    return Generation(
        request_id="test",
        prompt=prompt,
        transcription=Transcription(audio=one_second() if data is None else data, **fields),
        sampling=sampling or Sampling(temperature=0.0, max_tokens=8),
        tokens=True,
    )


def prepared(backend: Any, generation: Generation) -> Any:
    """What a backend, or Requests, makes of it."""
    transcription = generation.transcription
    assert transcription is not None
    return backend.prepare(next(NUMBERS), generation, [MediaFile(transcription.audio, "file", "audio")])


def events_of(backend: Any, *generations: Generation) -> list[list[Any]]:
    """The events of each, all run at once."""
    made = [prepared(backend, one) for one in generations]
    events: dict[int, list[Any]] = {one.number: [] for one in made}
    for one in made:
        backend.add(one)
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return list(events.values())


def texts(events: list[Any]) -> list[str]:
    """Of each piece."""
    pieces = range(len(recording(events).starts))
    return ["".join(delta.text for delta in deltas(events, index)) for index in pieces]


def recording(events: list[Any]) -> Recording:
    """What is told of the audio."""
    found = next(event.recording for event in events if isinstance(event, Started))
    assert found is not None
    return found


def vllms(core: Any, generation: Generation) -> list[Any]:
    """The requests that vLLM's server makes of it."""
    from fastapi import UploadFile
    from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionRequest
    from vllm.entrypoints.speech_to_text.transcription.serving import OpenAIServingTranscription
    from vllm.model_executor.model_loader import get_model_cls

    given: Any = generation.transcription
    prompt: Any = generation.prompt
    sampling: Any = generation.sampling
    model: Any = get_model_cls(core.model_config)
    # Its own constructor would want an engine that runs.
    serving: Any = object.__new__(OpenAIServingTranscription)
    task = "translate" if given.translate else "transcribe"
    serving.model_config, serving.renderer, serving.task_type = core.model_config, core.renderer, task
    serving.asr_config = model.get_speech_to_text_config(core.model_config, task)
    serving.max_audio_filesize_mb, serving.max_audio_decode_duration_s = 25, 600
    serving.max_audio_decode_bytes = 1 << 28

    async def cut(data: bytes) -> Any:
        return serving._decode_and_chunk_speech(data)

    serving._decode_and_chunk_speech_async = cut
    said = {name: value for name in SAMPLED if (value := getattr(sampling, name)) is not None}
    request = TranscriptionRequest(
        file=UploadFile(io.BytesIO()),
        language=given.language,
        to_language=given.to_language,
        hotwords=given.hotwords,
        prompt=prompt,
        response_format="verbose_json" if given.timestamps else "json",
        **said,
    )
    prompts, *_ = asyncio.run(serving._preprocess_speech_to_text(request, given.audio, "test"))
    params = request.to_sampling_params(sampling.max_tokens, core.model_config.get_diff_sampling_param())
    return [core.request(one, params.clone()) for one in prompts]


SAMPLED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
"""Fields of Sampling, by names that are the server's too."""
