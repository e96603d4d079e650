"""Roles that a chat template may not know: what becomes of their messages, by what the template makes of a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lmi.model.vllm.request.prompts.roles import ROLES, TemplateRoles

from .....kit.api.conversation import Media, Message, Text
from .....kit.api.errors import UnsupportedError
from .....kit.rows import each_row

Given = list[dict[str, Any]]


def showing(*roles: str) -> Callable[[Given], str]:
    """A template that shows the messages of some roles."""
    return lambda given: "\n".join(f"{one['role']}: {one['content']}" for one in given if one["role"] in roles)


def one_system(given: Given) -> str:
    """A template that takes a system message in front alone, as many do."""
    if any(one["role"] == "system" for one in given[1:]):
        raise ValueError("System message must be at the beginning.")
    return showing("system", "user")(given)


def every_second(given: Given) -> str:
    """A template that takes the system's first message in front, and then looks at every second message, as Gemma's."""
    first, rest = (given[0]["content"], given[1:]) if given[0]["role"] == "system" else ("", given)
    if any((one["role"] == "user") != (index % 2 == 0) for index, one in enumerate(rest)):
        raise ValueError("Conversation roles must alternate user/assistant/user/assistant/...")
    return "\n".join([first, *(str(one["content"]) for one in rest)])


def any_role(given: Given) -> str:
    """ChatML: any role is shown, anywhere."""
    return "\n".join(f"{one['role']}: {one['content']}" for one in given)


USER, SYSTEM, LATE = Message("user", "Hi"), Message("system", "a"), Message("system", "b")
SO = Message("assistant", "so")
PARTS = Message("system", (Text("c"), Media("image", "u"), Text("d")))
DEVELOPER = Message("developer", "a")
USUAL = ("system", "user", "assistant", "tool")


@each_row(
    ("render", "given", "fitted"),
    [
        (any_role, [SYSTEM, USER, SO, LATE, USER], [SYSTEM, USER, SO, LATE, USER]),
        (any_role, [DEVELOPER, USER], [DEVELOPER, USER]),
        (any_role, [Message("critic", "b"), USER], [Message("critic", "b"), USER]),
        (showing(*USUAL), [SYSTEM, USER, SO, LATE, USER], [SYSTEM, USER, SO, LATE, USER]),
        (showing(*USUAL), [DEVELOPER, USER], [SYSTEM, USER]),
        (one_system, [SYSTEM, USER, SO, LATE, USER, PARTS], [Message("system", "a\nb\nc\nd"), USER, SO, USER]),
        # What the user says before and after it is one turn.
        (one_system, [USER, LATE, USER], [LATE, Message("user", (Text("Hi"), Text("Hi")))]),
        (one_system, [USER, USER, SO, LATE], [LATE, USER, USER, SO]),
        (one_system, [SYSTEM, LATE, USER], [Message("system", "a\nb"), USER]),
        (every_second, [SYSTEM, USER, SO, LATE, USER], [Message("system", "a\nb"), USER, SO, USER]),
        (every_second, [SYSTEM, LATE, USER], [Message("system", "a\nb"), USER]),
        (one_system, [SYSTEM, DEVELOPER, USER, DEVELOPER], [Message("system", "a\na\na"), USER]),
        (one_system, [{"role": "user", "content": "Hi"}, {"role": "system", "content": "b"}], None),
    ],
)
def test_the_messages_are_as_the_template_shows_them(
    render: Callable[[Given], str], given: list[Any], fitted: list[Any] | None
) -> None:
    assert [*TemplateRoles(render).fitted(given)] == (given if fitted is None else fitted)


def test_what_would_be_lost_is_refused_by_its_place() -> None:
    roles = TemplateRoles(showing(*USUAL))
    with pytest.raises(UnsupportedError, match="expected a role that the model's chat template shows") as caught:
        roles.fitted([USER, Message("usr", "b")])
    assert caught.value.param == "prompt.messages[1].role"


def test_a_template_is_tried_once_a_role() -> None:
    tried: list[Given] = []

    def render(given: Given) -> str:
        tried.append(given)
        return any_role(given)

    roles = TemplateRoles(render)
    for _ in range(3):
        roles.fitted([SYSTEM, USER])
    assert not tried
    for _ in range(3):
        roles.fitted([DEVELOPER, USER, LATE])
    # The role, and three conversations with a later system message.
    assert len(tried) == 4
    for number in range(ROLES + 9):
        roles.fitted([DEVELOPER, Message(f"role{number}", "a"), USER])
    # What others ask for keeps no trial from being remembered; of so many the first ones are forgotten.
    for number, more in ((ROLES + 8, 0), (0, 1)):
        before = len(tried)
        roles.fitted([DEVELOPER, Message(f"role{number}", "a"), USER])
        assert len(tried) == before + more


def test_a_fault_that_is_no_templates_is_not_remembered() -> None:
    faults = [MemoryError()]

    def render(given: Given) -> str:
        if faults:
            raise faults.pop()
        return any_role(given)

    roles = TemplateRoles(render)
    with pytest.raises(MemoryError):
        roles.fitted([DEVELOPER, USER])
    assert [*roles.fitted([DEVELOPER, USER])] == [DEVELOPER, USER]


def test_a_conversation_has_few_roles_of_its_own() -> None:
    with pytest.raises(UnsupportedError, match="expected at most 4 roles beside the usual ones, got 5"):
        TemplateRoles(any_role).fitted([Message(f"role{number}", "a") for number in range(5)])
