"""A generation as vLLM is to get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...events import Recording
from ...generation import Generation, Sampling
from ...media.parts import MediaFile
from ...text.answers.splitting import AnswerSplitter
from ..guides.faults import Guide

__all__ = ["Heard", "Prepared"]


@dataclass(frozen=True, slots=True)
class Heard:
    """Audio that has been decoded and cut."""

    pieces: list[Any]
    """The samples of each."""
    language: str | None
    """What is spoken; None: nobody has said."""


@dataclass(slots=True)
class Prepared:
    """A generation, ready to be added."""

    number: int
    generation: Generation
    sampling: Sampling
    """The generation's, with what its chat template asks for."""
    prompt: Any
    prompt_ids: list[int]
    max_tokens: int
    """How many an answer may have."""
    tokens: int
    """How many all answers may have, with the prompt, and the entries of its log-probabilities."""
    images: Sequence[MediaFile]
    requests: list[Any]
    """EngineCoreRequests, without their names; without images that the core has."""
    splitters: list[AnswerSplitter | None]
    guide: Guide | None
    recording: Recording | None = None
    """Of audio that is to be written down: the requests are of its pieces."""
    heard: Heard | None = None
    """Of audio whose language the one request asks for, before it can be written down."""
