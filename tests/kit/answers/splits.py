"""An answer's tokens, one a delta, and the same come together in fewer: what no dialect's answer may depend on."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from ..api.types import CallDelta, Delta, Event, FinishReason, Started, Token, TopToken
from .events import end

__all__ = ["CUTS", "LETTERS", "REASONS", "merged", "split", "steps_of"]

LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
CUTS = st.lists(st.booleans(), min_size=16, max_size=16)
"""After which tokens a delta ends."""
REASONS: st.SearchStrategy[FinishReason] = st.sampled_from(["eos", "stop", "length"])


def _step(kind: str, text: str, number: int, names: Sequence[str]) -> Delta:
    tokens = (Token(5, text, -1.5, top=(TopToken(5, text, -1.5, text.encode()),), raw=text.encode()),)
    if kind == "call":
        call, first = number // 2, number % 2 == 0
        name = names[call % len(names)]
        part = CallDelta(call, f"call_{number}" if first else None, name if first else None, text)
        return Delta(0, "", tokens, calls=(part,))
    return Delta(0, "", tokens, reasoning=text) if kind == "reasoning" else Delta(0, text, tokens)


def steps_of(
    reasoning: Sequence[str], text: Sequence[str], calls: Sequence[str], reason: FinishReason, names: Sequence[str]
) -> list[Delta]:
    """What each token brings, and the end. Two tokens are a call, of the tools of these names in turn."""
    kinds = {"reasoning": reasoning, "text": text, "call": calls}
    steps = [_step(kind, piece, number, names) for kind, pieces in kinds.items() for number, piece in enumerate(pieces)]
    return [*steps, Delta(0, "", (), end(reason, len(steps), reasoning_tokens=len(reasoning)))]


def merged(deltas: Sequence[Delta]) -> Delta:
    """All of them as one."""
    return Delta(
        0,
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.tokens),
        deltas[-1].finish,
        "".join(delta.reasoning for delta in deltas),
        tuple(part for delta in deltas for part in delta.calls),
    )


def split(steps: Sequence[Delta], cuts: Sequence[bool]) -> list[Event]:
    """What an engine reports: the start, and the steps in deltas that end where `cuts` says."""
    groups: list[list[Delta]] = [[]]
    for step, cut in zip(steps, cuts, strict=False):
        groups[-1].append(step)
        if cut:
            groups.append([])
    groups.append([*steps[len(cuts) :]])
    return [Started(7, 2), *(merged(group) for group in groups if group)]
