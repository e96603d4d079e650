"""What the routes take and give, for /openapi.json."""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON
from ..dialect import OpenApi
from ..openai.bodies import ErrorBody
from .reply import Detokenized, Tokenized
from .request import DETOKENIZE_ROWS, TOKENIZE_ROWS

__all__ = ["DETOKENIZE", "TOKENIZE"]


def _never(settings: Settings) -> bool:
    """No body is theirs without the path, or a request that says so."""
    return False


ERRORS = {JSON: (ErrorBody,)}
TOKENIZE = OpenApi(
    "The tokens of a prompt or a chat", TOKENIZE_ROWS.described, {JSON: (Tokenized,)}, ERRORS, serves=_never
)
DETOKENIZE = OpenApi("The text of tokens", DETOKENIZE_ROWS.described, {JSON: (Detokenized,)}, ERRORS, serves=_never)
