"""How much a model of version 15 or later is to think: one of the efforts that its settings name.

{"reasoning_effort": "medium"} or {"enable_thinking": true} --effort_of--> "high", of "none" and "high"
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...errors import ParameterError

__all__ = ["EFFORT", "effort_of"]

EFFORT = "reasoning_effort"
FIELD = f"prompt.template_arguments.{EFFORT}"
ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's efforts, and those that came after them."""


def effort_of(arguments: Mapping[str, Any], known: Collection[str]) -> str | None:
    """The effort among `known` that comes next to what a conversation's template arguments ask for, the higher of two;
    None where they do not ask. To think a little is never not to think. Raises ParameterError for what is no effort.

    vLLM's server refuses an effort that the model does not have, which clients cannot know.
    """
    asked = arguments.get(EFFORT)
    if asked is None:
        thinks = arguments.get("enable_thinking", arguments.get("thinking"))
        asked = None if thinks is None else "high" if thinks else "none"
    if asked is None or asked in known or not known:
        return asked if asked in known else None
    if asked not in ORDER:
        raise ParameterError(f"{FIELD}: expected one of {', '.join(known)}; got {asked!r}", FIELD)
    place = ORDER.index(asked)
    near = [one for one in known if one in ORDER and (one == ORDER[0]) == (asked == ORDER[0])]
    return min(near, key=lambda one: (abs(ORDER.index(one) - place), -ORDER.index(one)), default=None)
