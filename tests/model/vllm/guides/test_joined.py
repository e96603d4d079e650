"""Tools on auto beside `response_format`: the answer is calls in the model's form, or what the format asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ....kit.engines.said import SaidEngine

pytestmark = pytest.mark.engine

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
ANSWER = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}

FORMS: dict[str, Callable[[str, str], str]] = {
    "hermes": lambda name, city: f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}"}}}}\n</tool_call>',
    "qwen3_coder": lambda name, city: (
        f"<tool_call>\n<function={name}>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
    ),
}
"""How a model of a family writes a call, by the name of its parser."""


def body(*, strict: bool | None, choice: str = "auto", form: Any = None) -> dict[str, Any]:
    function = {"name": "pick", "parameters": CITY, **({} if strict is None else {"strict": strict})}
    asked = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": function}]}
    return {**asked, "tool_choice": choice, **({} if form is None else {"response_format": form})}


FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}}
FITTING, NOT_FITTING = "Rome", "Oslo"


@pytest.fixture(scope="module", params=FORMS)
def family(request: pytest.FixtureRequest, demo_model: Path) -> Any:
    made = SaidEngine(demo_model, tool_call_parser=request.param)
    yield made, FORMS[request.param]
    made.close()


@pytest.mark.parametrize("strict", [None, False, True])
def test_either_calls_or_what_the_format_asks_for(family: Any, strict: bool | None) -> None:
    engine, form = family
    asked = body(strict=strict, form=FORMAT)

    def takes(answer: str) -> bool:
        return bool(engine.guided_to("openai", asked, answer))

    assert takes('{"n": 1}')
    assert not takes('{"n": 3}')
    assert not takes("It is 5 degrees.")
    assert takes(form("pick", FITTING))
    assert takes(form("pick", NOT_FITTING)) is (strict is not True)
    assert not takes(form("drop", FITTING))


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"type": "json_object"}, '{"any": [1]}'),
        ({"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}, "yes"),
    ],
    ids=lambda given: given["type"] if isinstance(given, dict) else "",
)
def test_formats_of_other_kinds(family: Any, given: dict[str, Any], answer: str) -> None:
    engine, form = family
    asked = body(strict=None, form=given)
    assert engine.guided_to("openai", asked, answer)
    assert engine.guided_to("openai", asked, form("pick", FITTING))
    assert not engine.guided_to("openai", asked, "It is 5 degrees.")


@pytest.mark.parametrize("strict", [None, False, True])
def test_strict_tools_without_a_format(family: Any, strict: bool | None) -> None:
    """The arguments fit where they are to, and text is free."""
    engine, form = family
    asked = body(strict=strict)
    assert engine.guided_to("openai", asked, "It is 5 degrees.")
    assert engine.guided_to("openai", asked, form("pick", FITTING))
    assert engine.guided_to("openai", asked, form("pick", NOT_FITTING)) is (strict is not True)


def test_a_family_whose_form_is_not_known_has_its_format_alone(demo_model: Path) -> None:
    """As in vLLM's server."""
    engine = SaidEngine(demo_model, tool_call_parser="granite")
    try:
        asked = body(strict=None, form=FORMAT)
        assert engine.guided_to("openai", asked, '{"n": 1}')
        assert not engine.guided_to("openai", asked, json.dumps([{"name": "pick", "arguments": {}}]))
    finally:
        engine.close()


@pytest.mark.parametrize("backend", ["guidance", "outlines"])
def test_a_format_holds_alone_where_the_options_name_a_backend_that_knows_no_form(
    demo_model: Path, backend: str
) -> None:
    """As in vLLM's server: xgrammar alone takes the form of calls."""
    named = json.dumps({"backend": backend})
    engine = SaidEngine(demo_model, tool_call_parser="hermes", structured_outputs_config=named)
    try:
        asked = body(strict=None, form=FORMAT)
        assert engine.guided_to("openai", asked, '{"n": 1}')
        assert not engine.guided_to("openai", asked, "It is 5 degrees.")
        assert not engine.guided_to("openai", asked, FORMS["hermes"]("pick", FITTING))
        (record,) = engine.ask("openai", asked, engine.ids('{"n": 1}'))
        assert json.loads(record)["choices"][0]["message"]["content"] == '{"n": 1}'
        assert engine.guided_to("openai", body(strict=None), "It is 5 degrees.")
    finally:
        engine.close()


def test_calls_are_read_beside_a_format(family: Any) -> None:
    engine, form = family
    answer = engine.ids(form("pick", FITTING))
    (record,) = engine.ask("openai", body(strict=None, form=FORMAT), answer)
    (call,) = json.loads(record)["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("pick", {"city": "Rome"})
    (record,) = engine.ask("openai", body(strict=None, form=FORMAT), engine.ids('{"n": 1}'))
    message = json.loads(record)["choices"][0]["message"]
    assert (message["content"], message.get("tool_calls") or []) == ('{"n": 1}', [])
