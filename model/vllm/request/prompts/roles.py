"""Roles that not every chat template knows: what becomes of their messages, by what the template makes of a trial.

developer                  the system's, where the template does not show it
system, more than once     one message in front, where the template refuses several or does not show them
any other                  refused where the template does not show it: what it says would be lost without a word
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ....conversation import Message, Part, Text
from ....errors import UnsupportedError

__all__ = ["TemplateRoles"]

KNOWN = frozenset(("system", "user", "assistant", "tool"))
MARK = "3141592653"
"""A text that no template has of its own."""
SYSTEM, MARKED = {"role": "system", "content": "Be brief."}, {"role": "system", "content": MARK}
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So"}
IN_FRONT = ([SYSTEM, MARKED, USER],)
LATER = ([SYSTEM, USER, MARKED, USER], [SYSTEM, USER, ANSWER, MARKED, USER], [USER, MARKED, USER])
"""Conversations with several system messages. Some templates look at every second message: one would not be enough."""
ROLES = 64
"""How many roles are remembered: clients name them."""
OTHERS = 4
"""How many roles that templates need not know a conversation may have: each may be a trial."""

Given = Message | dict[str, Any]
Trial = list[dict[str, Any]]


class TemplateRoles:
    """What one template makes of roles; several threads may use it."""

    def __init__(self, *renders: Callable[[Trial], str]) -> None:
        """`renders` give prompts of messages in OpenAI's form, and may raise anything: what is shown is in each."""
        self._renders = renders
        self._found: OrderedDict[str, bool] = OrderedDict()
        """What trials have found, by their names; the role that was asked for longest ago goes first."""

    def fitted(self, messages: Sequence[Given]) -> Sequence[Given]:
        """The messages as the template can show them; dicts stay as they are. Raises UnsupportedError."""
        usual = all(isinstance(one, dict) or one.role in KNOWN for one in messages)
        if usual and not any(_is_system(one) for one in messages[1:]):
            return messages
        fitted = messages if usual else self._known(messages)
        first = next((index for index, one in enumerate(fitted) if not _is_system(one)), len(fitted))
        several = first > 1 and not self._shows("systems", IN_FRONT)
        later = any(_is_system(one) for one in fitted[first:]) and not self._shows("later systems", LATER)
        return _in_front(fitted) if several or later else fitted

    def _known(self, messages: Sequence[Given]) -> list[Given]:
        others = {one.role for one in messages if isinstance(one, Message)} - KNOWN - {"developer"}
        if len(others) > OTHERS:
            message = f"prompt.messages: expected at most {OTHERS} roles beside the usual ones, got {len(others)}"
            raise UnsupportedError(message, "prompt.messages")
        shown = {role: self._shows(f"role {role}", ([{"role": role, "content": MARK}, USER],)) for role in others}
        developer = self._shows("role developer", ([{"role": "developer", "content": MARK}, USER],))
        known: list[Given] = []
        for index, one in enumerate(messages):
            if isinstance(one, Message) and one.role == "developer" and not developer:
                one = replace(one, role="system")
            elif isinstance(one, Message) and not shown.get(one.role, True):
                path = f"prompt.messages[{index}].role"
                raise UnsupportedError.of(path, one.role, "a role that the model's chat template shows")
            known.append(one)
        return known

    def _shows(self, name: str, trials: Sequence[Trial]) -> bool:
        """Whether the template shows the mark in each of some conversations."""
        found = self._found.get(name)
        if found is None:
            try:
                found = all(MARK in render(trial) for trial in trials for render in self._renders)
            except (MemoryError, OSError):
                # The machine's fault, not the template's: it is not remembered.
                raise
            except Exception:  # noqa: BLE001 - templates raise anything
                found = False
            self._found[name] = found
            if len(self._found) > ROLES:
                self._found.popitem(last=False)
        return found


def _is_system(message: Given) -> bool:
    return isinstance(message, Message) and message.role == "system"


def _in_front(messages: Sequence[Given]) -> list[Given]:
    """All that the system says as one message, a line each; what the user says around it becomes one message."""
    texts = [text for one in messages if isinstance(one, Message) and one.role == "system" for text in _texts(one)]
    made: list[Given] = [Message("system", "\n".join(texts))]
    parted = False
    for one in messages:
        if _is_system(one):
            parted = True
            continue
        last = made[-1]
        if parted and isinstance(one, Message) and isinstance(last, Message) and one.role == last.role == "user":
            made[-1] = replace(last, content=(*_parts(last), *_parts(one)))
        else:
            made.append(one)
        parted = False
    return made


def _parts(message: Message) -> tuple[Part, ...]:
    return (Text(message.content),) if isinstance(message.content, str) else message.content


def _texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [part.text for part in message.content if isinstance(part, Text)]
