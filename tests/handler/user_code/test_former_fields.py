"""What a user's dialect calls its fields, in today's way and in the former one."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lmi.handler.user_code.former_fields import with_former

from ...kit.api.dialects import ClientFields, forget_logged_names
from ...kit.api.types import Beams, Conversation, Generation, Sampling, Scoring, StructuredOutput
from ...kit.rows import each_row

IMAGE = {"type": "image_url", "image_url": {"url": "u"}, "field": "poem.pictures[0].from"}


def asked(prompt: Any = "a", **fields: Any) -> Generation:
    return Generation(request_id="", prompt=prompt, **fields)


def talk(**fields: Any) -> Generation:
    return asked(Conversation(messages=({"role": "user", "content": [IMAGE]},), tools=({}, {}), **fields))


def sampled(**fields: Any) -> Generation:
    return asked(sampling=Sampling(**fields))


GUIDE = StructuredOutput(regex="a", field="meter")
LEGACY = {"tools_field": "functions", "schema_field": "parameters"}
CASES: list[tuple[Generation, ClientFields, str, str]] = [
    (asked(prompt_field="about"), ClientFields(), "prompt", "about"),
    (asked(fields={"top_p": "mood"}), ClientFields(), "sampling.top_p", "mood"),
    (asked(fields={"top_p": "mood"}), ClientFields(), "sampling.top_k", "top_k"),
    (sampled(structured_output=GUIDE), ClientFields(), "sampling.structured_output", "meter"),
    (sampled(beams=Beams(width=2, field="drafts")), ClientFields(), "sampling.beams", "drafts"),
    (asked(scoring=Scoring(document="b", document_field="verse")), ClientFields(), "scoring.document", "verse"),
    (talk(**LEGACY), ClientFields(), "prompt.tools", "functions"),
    (talk(**LEGACY), ClientFields(), "prompt.tools[1].parameters", "functions[1].parameters"),
    (talk(schema_fields=("x", "y.schema")), ClientFields(), "prompt.tools[1].parameters", "y.schema"),
    (talk(), ClientFields(), "prompt.tools[1].parameters", "tools[1].function.parameters"),
    (talk(), ClientFields(), "prompt.messages[0].content[0].url", "poem.pictures[0].from"),
    (talk(), ClientFields(), "prompt.messages[0].content[0]", "poem.pictures[0]"),
    # What is said in today's way goes first.
    (asked(prompt_field="old"), ClientFields(each=[{"prompt": "new"}]), "prompt", "new"),
]


@each_row(("generation", "fields", "path", "field"), CASES)
def test_the_former_way(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    generation: Generation,
    fields: ClientFields,
    path: str,
    field: str,
) -> None:
    forget_logged_names(monkeypatch)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        made = [with_former(fields, [generation], "haiku").name(path) for _ in range(2)]
    assert made == [field, field]
    (record,) = caplog.records
    assert record.message.startswith("the dialect haiku gives its fields' names in a Generation: ")


def test_each_generation_has_its_own() -> None:
    made = with_former(ClientFields(), [asked(), asked(prompt_field="b")], "haiku")
    assert [made.name("prompt", number) for number in range(2)] == ["prompt", "b"]


def test_nothing_is_made_of_what_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    fields = ClientFields({"prompt": "about"})
    with caplog.at_level(logging.WARNING):
        assert with_former(fields, [asked(), asked()], "haiku") is fields
    assert caplog.records == []


def test_an_engine_of_the_users_finds_paths_by_the_former_names() -> None:
    one = asked()
    assert (one.prompt_field, one.field("top_p")) == ("prompt", "sampling.top_p")
    assert StructuredOutput().field == "sampling.structured_output"
    assert Beams(width=2).field == "sampling.beams"
    assert Scoring().document_field == "scoring.document"
    assert Conversation(messages=()).tools_field == "prompt.tools"
