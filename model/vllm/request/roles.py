"""Roles that not every chat template knows: what becomes of their messages, by what the template makes of a trial.

developer               the system's, where the template does not show it
system, later on        in front, where the template refuses it there or does not show it
any other               refused where the template does not show it: what it says would be lost without a word
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...conversation import Message, Text
from ...errors import UnsupportedError

__all__ = ["TemplateRoles"]

KNOWN = frozenset(("system", "user", "assistant", "tool"))
MARK = "3141592653"
"""A text that no template has of its own."""
USER = {"role": "user", "content": "Hi"}
ROLES = 64
"""How many roles are remembered: clients name them."""

Given = Message | dict[str, Any]


class TemplateRoles:
    """What one template makes of roles; several threads may use it."""

    def __init__(self, render: Callable[[list[dict[str, Any]]], str]) -> None:
        """`render` gives the prompt of messages in OpenAI's form, and may raise anything."""
        self._render = render
        self._shown: dict[str, bool] = {}
        self._late: bool | None = None

    def fitted(self, messages: Sequence[Given]) -> Sequence[Given]:
        """The messages as the template can show them; dicts stay as they are. Raises UnsupportedError."""
        usual = all(isinstance(one, dict) or one.role in KNOWN for one in messages)
        if usual and not any(_is_system(one) for one in messages[1:]):
            return messages
        fitted = messages if usual else [self._known(one, index) for index, one in enumerate(messages)]
        first = next((index for index, one in enumerate(fitted) if not _is_system(one)), len(fitted))
        if not any(_is_system(one) for one in fitted[first:]) or self._takes_late_systems():
            return fitted
        return _in_front(fitted)

    def _known(self, message: Given, index: int) -> Given:
        if isinstance(message, dict) or message.role in KNOWN or self._shows(message.role):
            return message
        if message.role == "developer":
            return replace(message, role="system")
        path = f"prompt.messages[{index}].role"
        raise UnsupportedError.of(path, message.role, "a role that the model's chat template shows")

    def _shows(self, role: str) -> bool:
        shown = self._shown.get(role)
        if shown is None:
            shown = self._survives([{"role": role, "content": MARK}, USER])
            if len(self._shown) < ROLES:
                self._shown[role] = shown
        return shown

    def _takes_late_systems(self) -> bool:
        if self._late is None:
            system = {"role": "system", "content": "Be brief."}
            self._late = self._survives([system, USER, {"role": "system", "content": MARK}, USER])
        return self._late

    def _survives(self, messages: list[dict[str, Any]]) -> bool:
        try:
            return MARK in self._render(messages)
        except Exception:  # noqa: BLE001 - templates raise anything
            return False


def _is_system(message: Given) -> bool:
    return isinstance(message, Message) and message.role == "system"


def _in_front(messages: Sequence[Given]) -> list[Given]:
    """All that the system says as one message, a line each."""
    texts = [text for one in messages if isinstance(one, Message) and one.role == "system" for text in _texts(one)]
    return [Message("system", "\n".join(texts)), *(one for one in messages if not _is_system(one))]


def _texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [part.text for part in message.content if isinstance(part, Text)]
