"""Events that have waited for a thread, as fewer: answers do not depend on how tokens are split into events."""

from __future__ import annotations

import msgspec

from ...model.events import Delta, EngineEvent

__all__ = ["merge_deltas"]


def merge_deltas(events: list[tuple[int, EngineEvent]]) -> list[tuple[int, EngineEvent]]:
    """The same with neighbouring deltas of one sequence as one, where that does not change the order of its parts."""
    result: list[tuple[int, EngineEvent]] = []
    for prompt, event in events:
        if result and isinstance(event, Delta):
            before_prompt, before = result[-1]
            if before_prompt == prompt and isinstance(before, Delta) and _can_merge(before, event):
                result[-1] = (prompt, _merge(before, event))
                continue
        result.append((prompt, event))
    return result


def _can_merge(first: Delta, second: Delta) -> bool:
    """Whether both can be one: a delta's reasoning comes before its text, and that before its calls."""
    if first.index != second.index or first.finish is not None:
        return False
    return not (second.reasoning and (first.text or first.calls)) and not (second.text and first.calls)


def _merge(first: Delta, second: Delta) -> Delta:
    return msgspec.structs.replace(
        second,
        text=first.text + second.text,
        tokens=first.tokens + second.tokens,
        reasoning=first.reasoning + second.reasoning,
        calls=first.calls + second.calls,
    )
