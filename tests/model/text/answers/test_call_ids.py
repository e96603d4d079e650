"""The ids of calls, by what a family's models know."""

from __future__ import annotations

import re
from typing import Any

from lmi.model.text.answers.call_ids import KIMI, MISTRAL, call_ids, calls_in

from ....kit.api.conversation import Call, Message


def test_ids_by_family() -> None:
    for family, form in (("random", r"chatcmpl-tool-[0-9a-f]{32}"), (MISTRAL, r"[0-9a-f]{9}")):
        ids = call_ids(family, 3)
        made = [ids(name) for name in ("look", "look", "find")]
        assert len({*made}) == 3
        assert all(re.fullmatch(form, one) for one in made)


def test_kimis_count_the_calls_of_the_conversation() -> None:
    ids = call_ids(KIMI, 3)
    made = [ids(name) for name in ("look", "find", "look")]
    assert made == ["functions.look:3", "functions.find:4", "functions.look:5"]
    assert call_ids(KIMI)("look") == "functions.look:0"


def test_calls_in_a_conversation() -> None:
    calls = tuple(Call(one, "f", "{}") for one in "ab")
    form: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [{}]}
    bare: dict[str, Any] = {"role": "assistant", "content": "a", "tool_calls": None}
    given: list[Any] = [
        Message("user", "Hi"),
        Message("assistant", calls=calls),
        Message("tool", "A", call_id="a"),
        form,
        bare,
    ]
    assert calls_in(given) == 3
