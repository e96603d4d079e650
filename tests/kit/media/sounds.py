"""Sounds for tests, and the files that they come in."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np

__all__ = ["encoded", "noise", "sine", "tone", "wav"]


def sine(seconds: float, rate: int = 16000, hertz: float = 440.0, channels: int = 1) -> Any:
    """Samples of a tone from -0.5 to 0.5: one row, or a column for each channel, which is an octave above the last."""
    times = np.arange(round(seconds * rate), dtype=np.float64) / rate
    columns = [0.5 * np.sin(2 * np.pi * hertz * 2**channel * times) for channel in range(channels)]
    return np.stack(columns, axis=1).astype(np.float32) if channels > 1 else columns[0].astype(np.float32)


def noise(seconds: float, rate: int = 16000, seed: int = 0) -> Any:
    """Samples that are drawn, from -0.5 to 0.5, which get louder and softer."""
    draw = np.random.default_rng(seed)
    count = round(seconds * rate)
    loudness = np.interp(np.arange(count), np.linspace(0, count, 16), draw.uniform(0, 1, 16))
    return (draw.uniform(-0.5, 0.5, count) * loudness).astype(np.float32)


def wav(samples: Any, rate: int = 16000) -> bytes:
    """A WAV of 16 bits a sample, without any package."""
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return held.getvalue()


def tone(seconds: float, rate: int = 16000, hertz: float = 440.0, channels: int = 1) -> bytes:
    """A WAV of a tone."""
    return wav(sine(seconds, rate, hertz, channels), rate)


def encoded(samples: Any, rate: int, format: str) -> bytes:
    """These samples as "flac", "ogg" (Vorbis), "mp3" or "wav", by soundfile."""
    import soundfile  # type: ignore[import-untyped, unused-ignore]

    held = io.BytesIO()
    soundfile.write(held, samples, rate, format=format.upper())
    return held.getvalue()
