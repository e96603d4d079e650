"""What another API calls a guide: where a dialect does not know it, it is refused by name. An answer in another form
than the one that was asked for is no answer."""

from __future__ import annotations

from typing import Any

from ..kit.answers.forms import FORMS
from ..kit.api.dialects import WITHOUT_TEXT
from ..kit.api.options import make_settings
from ..kit.api.types import ParsedRequest
from ..kit.rows import each_row

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
GUIDES: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    "structured_outputs": {"json": SCHEMA},
    "guided_json": SCHEMA,
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= x",
    "guided_json_object": True,
    "output_format": {"type": "json_schema", "schema": SCHEMA},
    "grammar": {"type": "json", "value": SCHEMA},
}


@each_row("guide", GUIDES)
@each_row(
    "form", [name for name, form in FORMS.items() if form.dialect not in WITHOUT_TEXT and "task" not in form.settings]
)
def test_a_guide_is_served_or_refused_by_name(form: str, guide: str) -> None:
    """With unknown fields ignored, as is the default."""
    asked = FORMS[form].with_parameters({guide: GUIDES[guide]})
    received = FORMS[form].answer(make_settings(), **asked)
    if isinstance(received, ParsedRequest):
        (generation,) = received.generations
        assert generation.sampling.structured_output is not None
        return
    assert received.failure is not None
    assert guide in received.failure.message
