"""What LMI's dialect takes and gives, for /openapi.json, embeddings too."""

from __future__ import annotations

from ..base import JSON, JSON_LINES, SSE
from ..dialect import OpenApi
from .bodies import LastLine, TokenLine, TopTokensLine, UnreadableBody, WholeBody
from .body import BODIES, described
from .embeddings import BODY

__all__ = ["LMI", "VECTORS"]

LMI_ERRORS = {JSON: (UnreadableBody, WholeBody, LastLine), JSON_LINES: (LastLine,), SSE: (LastLine,)}
LINES = (TokenLine, TopTokensLine, LastLine)

LMI = OpenApi(
    "Generated text in LMI's form, whole or as a stream",
    described(BODIES),
    {JSON: (WholeBody,), JSON_LINES: LINES, SSE: LINES},
    LMI_ERRORS,
)
VECTORS = OpenApi(
    "Vectors of texts in LMI's form",
    BODY.described,
    {JSON: (list[list[float]],)},
    {JSON: (UnreadableBody,)},
    serves=lambda settings: settings.embeds,
)
