"""What TGI's dialect takes and gives, for /openapi.json."""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON, JSON_LINES, SSE
from ..dialect import JsonSchema, OpenApi
from ..lmi.bodies import UnreadableBody
from ..lmi.body import described
from .bodies import ErrorBody, StreamLine, WholeBody
from .compat import BODIES
from .info import Info
from .parameters import BODY, OWN_BODY

__all__ = ["TGI", "TGI_INFO", "TGI_ROOT", "TGI_STREAM", "TGI_WHOLE"]


_compatible = described(BODIES)


def _by_body(settings: Settings) -> JsonSchema:
    """Where the dialect is not named the option chose it, and the parameters are LMI's."""
    return BODY.schema if settings.dialect else _compatible(settings)


TGI_ERRORS = {JSON: (ErrorBody,)}
TGI_LINES = (StreamLine, ErrorBody)
WHOLE = list[WholeBody]

TGI = OpenApi(
    "Generated text in TGI's form, whole or as a stream",
    _by_body,
    {JSON: (WHOLE,), JSON_LINES: TGI_LINES, SSE: TGI_LINES},
    # A body in no known dialect is refused in LMI's form.
    {JSON: (ErrorBody, UnreadableBody)},
    serves=lambda settings: settings.tgi_compat and not settings.pools,
)
TGI_WHOLE = OpenApi("Generated text as TGI's /generate gives it", OWN_BODY.described, {JSON: (WholeBody,)}, TGI_ERRORS)
TGI_STREAM = OpenApi(
    "A stream of tokens as TGI's /generate_stream gives it", OWN_BODY.described, {SSE: TGI_LINES}, TGI_ERRORS
)
TGI_ROOT = OpenApi(
    "Generated text as TGI's / gives it, whole or as a stream",
    BODY.described,
    {JSON: (WHOLE,), SSE: TGI_LINES},
    TGI_ERRORS,
)
TGI_INFO = OpenApi("The model and its limits", answers={JSON: (Info,)}, errors=TGI_ERRORS)
