"""Messages as mistral-common takes them: ids of calls by any client's, and what a version has no place for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.vllm.mistral.messages import fitted

from ....kit.api.errors import ParameterError
from ....kit.rows import each_row

Message = dict[str, Any]
USER: Message = {"role": "user", "content": "Weather?"}
ID = re.compile(r"[a-zA-Z0-9]{9}")
"""mistral-common, protocol/instruct/validator.py."""


def called(*ids: str | None, **more: Any) -> Message:
    function = {"name": "look_up", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": one, "function": function} for one in ids], **more}


def result(given: str | None, content: Any = "5 degrees") -> Message:
    return {"role": "tool", "tool_call_id": given, "content": content}


def ids(messages: list[Message]) -> list[str]:
    """Those of calls and of results, in their order."""
    made = [[call["id"] for call in one.get("tool_calls", ())] or [one.get("tool_call_id")] for one in messages]
    return [one for some in made for one in some if one is not None]


KEPT = {
    "Mistral's": ("abcdEFGH1", "abcdEFGH1"),
    "OpenAI's": ("call_Zk3vP0aXyQwErTyUiOpA1b2C", "UiOpA1b2C"),
    "Anthropic's": ("toolu_01A09q90qw90lq917835lq9", "7835lq9"),
    "vLLM's": ("chatcmpl-tool-0123456789abcdef0123456789abcdef", "789abcdef"),
}
"""Ids, and how vLLM's server has them (tokenizers/mistral.py, truncate_tool_call_ids): all of it or the end."""


@pytest.mark.parametrize("whose", KEPT)
def test_an_id_is_cut_as_vllms_server_cuts_it(whose: str) -> None:
    given, end = KEPT[whose]
    made = fitted([USER, called(given), result(given)], version=3, thinks=False)
    assert ids(made) == [given[-9:]] * 2
    assert given.endswith(end)


OTHERS = ["", "a", "call_1", "functions.look_up:0", "null", "call_ünïcodeé", "abcdefgh\n", "call-a-b-c-d-e", "𝟙" * 9]


@each_row("given", OTHERS)
def test_an_id_that_has_no_such_end_gets_another_the_same_in_each_turn(given: str) -> None:
    turn = [USER, called(given), result(given), {"role": "assistant", "content": "Sunny."}]
    made = ids(fitted([*turn, *turn, USER], version=11, thinks=False))
    assert len(set(made)) == 1
    assert ID.fullmatch(made[0])
    assert made[0] == ids(fitted([*turn, USER], version=11, thinks=False))[0]


def test_ids_that_end_alike_stay_two() -> None:
    given = [
        USER,
        called("call_a_123456789", "call_b_123456789"),
        result("call_b_123456789"),
        result("call_a_123456789"),
    ]
    first, second, *results = ids(fitted(given, version=11, thinks=False))
    assert first == "123456789" != second
    assert results == [second, first]


def test_of_two_calls_of_one_id_each_has_its_result() -> None:
    """In the order in which they come."""
    for one in ("x", "", "abcdefgh1"):
        first, second, *results = ids(
            fitted([USER, called(one, one), result(one), result(one)], version=11, thinks=False)
        )
        assert first != second
        assert results == [first, second]


@given(st.lists(st.lists(st.sampled_from([*OTHERS, *(one for one, _ in KEPT.values())]), max_size=4), max_size=4))
def test_ids_are_one_to_one_in_every_turn_and_depend_on_what_came_before(turns: list[list[str]]) -> None:
    given: list[Message] = []
    begun: list[Message] = []
    for turn in turns:
        given += [USER, called(*turn, content="x"), *map(result, turn)]
        made = fitted(given, version=13, thinks=True)
        assert made[: len(begun)] == begun
        calls, results = ids(made[len(begun) + 1 : len(begun) + 2]), ids(made[len(begun) + 2 :])
        assert calls == results
        assert len(set(calls)) == len(calls)
        assert all(map(ID.fullmatch, calls))
        begun = made


@pytest.mark.parametrize("more", [[result("abcdefgh9")], [result("abcdefgh1"), result("abcdefgh1")]])
def test_a_result_without_a_call_is_refused_by_its_own_id_where_mistral_common_refuses_it(more: list[Message]) -> None:
    given = [USER, called("abcdefgh1"), *more]
    with pytest.raises(
        ParameterError, match=rf"^prompt\.messages: expected one result .*'{more[-1]['tool_call_id']}'$"
    ):
        fitted(given, version=11, thinks=False)
    assert len(fitted(given, version=7, thinks=False)) == len(given)


SAID: dict[str, tuple[Message, dict[str, Any], Message | None]] = {
    "text": ({"content": "Sunny."}, {}, {"content": "Sunny."}),
    "nothing": ({"content": ""}, {}, None),
    "nothing in parts": ({"content": []}, {}, None),
    "null": ({"content": None}, {}, None),
    "reasoning alone": ({"content": "", "reasoning": "Hm."}, {"thinks": True}, {"reasoning": "Hm."}),
    "reasoning alone, of no use": ({"content": "", "reasoning": "Hm."}, {}, None),
    "reasoning": (
        {"content": "Sunny.", "reasoning": "Hm.", "reasoning_content": "Hm."},
        {"thinks": True},
        {"content": "Sunny.", "reasoning": "Hm.", "reasoning_content": "Hm."},
    ),
    "reasoning of no use": (
        {"content": "Sunny.", "reasoning": "Hm.", "reasoning_content": "Hm."},
        {},
        {"content": "Sunny."},
    ),
}


@each_row("what", SAID)
def test_what_an_answer_says_is_kept_where_the_version_has_a_place_for_it(what: str) -> None:
    said, how, expected = SAID[what]
    made = fitted([USER, {"role": "assistant", **said}, USER], **{"version": 7, "thinks": False, **how})
    assert made == [USER, *([] if expected is None else [{"role": "assistant", **expected}]), USER]


def test_before_version_7_an_answer_has_calls_or_a_text() -> None:
    given = [USER, called("abcdefgh1", content="Let me see."), result("abcdefgh1")]
    assert "content" not in fitted(given, version=3, thinks=False)[1]
    assert fitted(given, version=7, thinks=False)[1]["content"] == "Let me see."


def test_the_last_message_stays_however_empty() -> None:
    """It is gone on with."""
    given = [USER, {"role": "assistant", "content": ""}]
    assert [one["role"] for one in fitted(given, version=7, thinks=False)] == ["user", "assistant"]


def test_a_result_has_no_name_and_what_is_given_stays_as_it_is() -> None:
    given = [USER, called("call_1"), {**result("call_1"), "name": "functions.look_up"}]
    before = repr(given)
    assert "name" not in fitted(given, version=3, thinks=False)[2]
    assert repr(given) == before
