"""What the dialect takes and gives, for /openapi.json."""

from __future__ import annotations

from ..base import JSON, SSE
from ..dialect import OpenApi
from ..openai.bodies import ErrorBody
from .bodies import Chunk, TranscriptBody, VerboseBody
from .parameters import ROWS

__all__ = ["TRANSCRIPTION", "TRANSLATION"]

TEXT = "text/plain"
ANSWERS = {JSON: (TranscriptBody, VerboseBody), SSE: (Chunk, ErrorBody), TEXT: (str,)}

TRANSCRIPTION = OpenApi(
    "What is said in an audio file, as text; a form with a file, the file itself, or JSON",
    ROWS.described,
    ANSWERS,
    {JSON: (ErrorBody,)},
)
TRANSLATION = OpenApi(
    "The same in English; a form with a file, the file itself, or JSON", ROWS.described, ANSWERS, {JSON: (ErrorBody,)}
)
