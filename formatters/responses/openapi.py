"""What /v1/responses takes and gives, for /openapi.json."""

from __future__ import annotations

from typing import get_args

from ..base import JSON, SSE
from ..dialect import OpenApi
from ..openai.bodies import ErrorBody
from .bodies import ResponseBody
from .counting import InputTokens
from .events import Event
from .parameters import ROWS
from .stored import Deleted, ItemList

__all__ = ["COUNT", "CREATE", "DELETE", "ITEMS", "NOT_SERVED", "RETRIEVE"]


ERRORS = {JSON: (ErrorBody,)}
CREATE = OpenApi(
    "A response, whole or as a stream of events", ROWS.described, {JSON: (ResponseBody,), SSE: get_args(Event)}, ERRORS
)
COUNT = OpenApi("How many tokens a response's prompt would have", ROWS.described, {JSON: (InputTokens,)}, ERRORS)
RETRIEVE = OpenApi("A response that is kept", answers={JSON: (ResponseBody,)}, errors=ERRORS)
ITEMS = OpenApi(
    "What a response that is kept answered",
    answers={JSON: (ItemList,)},
    errors=ERRORS,
    query={"order": {"enum": ["asc", "desc"]}},
)
NOT_SERVED = OpenApi("Not served: always an error", answers={}, errors=ERRORS)
DELETE = OpenApi("Forgets a response", answers={JSON: (Deleted,)}, errors=ERRORS)
