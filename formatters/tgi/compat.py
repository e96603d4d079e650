"""`option.tgi_compat`: LMI's request with TGI's answer (docs/decisions.md: LMI requests with TGI responses).

An endpoint of LMI's that sets it gives the same texts as without: the names, defaults and limits of `parameters` are
LMI's, a prompt that leaves no room for `max_new_tokens` gets fewer, and the best of several sequences is LMI's. Only
the answer changes, which shows its details unless `details` is false (djl_python, output_formatter.py). `grammar`,
which LMI's own bodies are refused for, is TGI's.

`details.seed` is the seed that the request gave, where that draws the answer: none is drawn here to be shown.
"""

from __future__ import annotations

from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request
from ..client_fields import ClientFields
from ..common.fields import Parameter, Table
from ..common.kinds import Boolean
from ..lmi import generation_of, read_request
from ..lmi.body import Body, Input
from ..lmi.parameters import PATHS
from ..lmi.parameters import ROWS as LMI_ROWS
from ..lmi.reply import EVENTS
from .parameters import GRAMMAR
from .reply import ResponseOptions, StreamEncoder, WholeEncoder

__all__ = ["BODIES", "OWN", "ROWS", "parse"]

OWN = (Parameter("details", Boolean(), True, "details"), GRAMMAR)
"""What is not as LMI has it."""
ROWS = {name: Table((*rows.values(), *OWN)) for name, rows in LMI_ROWS.items()}
"""By LMI's schema, then by name."""
BODIES = {name: Body(rows, Input()) for name, rows in ROWS.items()}


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation, answered whole or as a stream. Raises RequestError."""
    asked = read_request(payload, settings, BODIES, EVENTS)
    parameters, framing = asked.parameters, asked.framing
    # Of several sequences it is no longer known which of them drew with which seed.
    draws = parameters.sampling["temperature"] != 0 and not parameters.several
    shape = ResponseOptions(
        inputs=asked.inputs,
        details=parameters.details,
        return_full_text=parameters.return_full_text,
        seed=parameters.sampling["seed"] if draws else None,
        top=parameters.top > 0,
        prompt_top=bool(parameters.prefill),
        ranked=True,
    )
    return ParsedRequest(
        # TGI's tokens show what they are, special ones too.
        (generation_of(asked, request, token_bytes=True),),
        WholeEncoder(shape) if framing is None else StreamEncoder(shape, framing=framing),
        fields=ClientFields(PATHS, parameters.own),
    )
