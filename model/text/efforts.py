"""How much a model is to think: of the efforts that it knows the one that comes next to what a client asks for.

    {"reasoning_effort": "xhigh"} --effort_of--> "high", of "low", "medium" and "high"
    {"enable_thinking": true} --effort_of--> "high", of "none" and "high"

Clients send the efforts of other models by habit, and cannot know those of this one: vLLM's server refuses what the
model does not know, and some chat templates do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..errors import OptionError, ParameterError

__all__ = ["EFFORT", "Efforts", "effort_of"]

EFFORT = "reasoning_effort"
FIELD = f"prompt.template_arguments.{EFFORT}"
OPTION = "default_chat_template_kwargs"
ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's efforts, and those that came after them."""


def effort_of(arguments: Mapping[str, Any], known: Collection[str]) -> str | None:
    """The effort among `known` that comes next to what a conversation's template arguments ask for, the higher of two;
    None where they do not ask. To think a little is never not to think, and a model that always thinks need not be told
    to. Raises ParameterError for what is no effort.
    """
    asked = arguments.get(EFFORT)
    if asked is None:
        thinks = arguments.get("enable_thinking", arguments.get("thinking"))
        asked = None if thinks is None else "high" if thinks else "none"
        if asked == "high" and "none" not in known:
            return None
    if asked is None or asked in known or not known:
        return asked if asked in known else None
    if asked not in ORDER:
        raise ParameterError.of(FIELD, asked, _expected(known))
    place = ORDER.index(asked)
    near = [one for one in known if one in ORDER and (asked == "none" or one != "none")]
    return min(near, key=lambda one: (abs(ORDER.index(one) - place), -ORDER.index(one)), default=None)


def _expected(known: Collection[str]) -> str:
    return f"one of {', '.join(known)}, which this model knows"


class Efforts:
    """What one model makes of them; several threads may use it."""

    def __init__(self, named: Collection[str] | None, trial: Callable[[Any], object]) -> None:
        """`named`: those that the model's own code names, and no others are for it, none where it takes no notice; None
        where nothing but a `trial` tells whether its prompts can be made with an effort, by raising anything.
        """
        self._named = named
        self._trial = trial
        self._tried: dict[str, bool] = {}
        """By the efforts of ORDER."""

    def fitted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Template arguments with an effort that the model knows; raises ParameterError for what is none, where its
        own code names them. What only a template may know goes to it as it is.
        """
        asked = arguments.get(EFFORT)
        if self._named is None and (asked not in ORDER or self._takes(asked)):
            return {**arguments}
        return self._with(arguments, self._known())

    def check(self, defaults: Mapping[str, Any]) -> None:
        """Raises OptionError where the effort that the options give for all requests is none of the model's."""
        asked = defaults.get(EFFORT)
        if self._named is None and (asked is None or asked in ORDER or self._takes(asked)):
            return
        known = self._known()
        try:
            self._with(defaults, known)
        except ParameterError as error:
            raise OptionError.of(OPTION, f"{EFFORT}: expected {_expected(known)}, got {asked!r}") from error

    def _with(self, arguments: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """The same arguments, where none is known."""
        if not known:
            return {**arguments}
        others = {name: value for name, value in arguments.items() if name != EFFORT}
        effort = effort_of(arguments, known)
        return others if effort is None else {**others, EFFORT: effort}

    def _known(self) -> Collection[str]:
        return tuple(filter(self._takes, ORDER)) if self._named is None else self._named

    def _takes(self, effort: Any) -> bool:
        """Whether a prompt can be made with it."""
        found = self._tried.get(effort) if effort in ORDER else None
        if found is None:
            try:
                self._trial(effort)
                found = True
            except (MemoryError, OSError):
                # The machine's fault, not the template's: it is not remembered.
                raise
            except Exception:  # noqa: BLE001 - templates raise anything
                found = False
            if effort in ORDER:
                self._tried[effort] = found
        return found
