"""Calls of families whose streams vLLM's parsers read wrong (tests/families): each is held back until it is whole.

    text, text, ... --CallReader.feed--> text, calls, text, ...

What stands around the calls goes on as it comes. What begins like a call and is none is text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .text_marks import find_mark, may_begin

__all__ = ["FORMS", "CallForm", "CallReader", "form_of"]

MAX_TRIES = 8
"""How often a call is read again where what should end it stands within it, and how many marks of an answer may begin
no call before none is looked for any more: each takes time by the length of the answer."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """What a family's calls stand between."""

    starts: tuple[str, ...]
    end: str = ""
    """Without, calls are read together with all of the answer, at its end."""
    first: bool = False
    """Whether an answer has calls only where it begins with them."""
    ends_itself: bool = False
    """Whether calls whose end is missing are whole, where the model ended the answer."""
    stream: Literal["", "first", "then"] = ""
    """Whether vLLM's parser of streams is asked before that of whole answers, or where that reads no call."""
    closing: tuple[str, ...] = ()
    """What calls end with that the parser of streams may read: it makes a call of what has no end, too."""
    by_engine: bool = True
    """Whether calls are held back, too, where one machine of vLLM's reads both streams and whole answers."""


TAGGED = CallForm(("<tool_call>",), "</tool_call>")
LISTED = CallForm(("<tool_calls>",), "</tool_calls>", ends_itself=True)
PYTHONIC = CallForm(("[",), first=True, stream="then", closing=("]",))
JSON = CallForm(('{"', '{ "', "{\n", "<|python_tag|>"))

FORMS: Mapping[str, CallForm] = {
    "apertus": CallForm(("<|tools_prefix|>",), stream="first"),
    "deepseek_v3": CallForm(("<｜tool▁calls▁begin｜>",), "<｜tool▁calls▁end｜>"),
    "dots": CallForm(("<dots_function_call>",), "</dots_function_call>"),
    "functiongemma": CallForm(("<start_function_call>",)),
    "gigachat3": CallForm(("<|message_sep|>", "function call<|role_sep|>", "<|function_call|>")),
    "granite": CallForm(("<|tool_call|>", "<tool_call>", "["), first=True, by_engine=False),
    "granite-20b-fc": CallForm(("<function_call>",), stream="then"),
    "granite4": TAGGED,
    "hermes": TAGGED,
    "hunyuan_a13b": LISTED,
    "hy_v4": CallForm(("<tool_calls:",), stream="then"),
    "internlm": CallForm(("<|action_start|>",), "<|action_end|>"),
    "jamba": LISTED,
    "lfm2": CallForm(("<|tool_call_start|>",), "<|tool_call_end|>"),
    "llama3_json": JSON,
    "llama4_json": JSON,
    "llama4_pythonic": CallForm(("<|python_start|>", "["), first=True, stream="then", closing=("]", "<|python_end|>")),
    "longcat": CallForm(("<longcat_tool_call>",), "</longcat_tool_call>"),
    "minicpm5": CallForm(("<function",), "</function>"),
    "olmo3": CallForm(("<function_calls>",), "</function_calls>", stream="then"),
    "phi4_mini_json": CallForm(("functools[",)),
    "plamo3": CallForm(("<|plamo:begin_tool_requests:plamo|>",), "<|plamo:end_tool_requests:plamo|>"),
    "poolside_v1": CallForm(("<tool_call>",), "</tool_call>", stream="then"),
    "pythonic": PYTHONIC,
    "qwen3_json": TAGGED,
    "xlam": CallForm(('[{"', '[ {"', "[\n", "```json", "```\n[", "<tool_call>", "[TOOL_CALLS]")),
}
"""By vLLM's name of a tool parser."""
BESIDE: Mapping[tuple[str, str], CallForm] = {
    ("minimax_m2", "minimax_m2_append_think"): CallForm(("<minimax:tool_call>",), "</minimax:tool_call>"),
}
"""By the names of a tool parser and of the reasoning parser beside it, which alone would be right."""


def form_of(tool_parser: str | None, reasoning_parser: str | None) -> CallForm | None:
    """How calls are held back of what these parsers read; None where they are not."""
    return FORMS.get(tool_parser or "") or BESIDE.get((tool_parser or "", reasoning_parser or ""))


Read = Callable[[str], tuple[str, Sequence[Any]]]
"""Reads a text with calls: what of it is text, and the calls; none where there are none."""


class CallReader:
    """Reads one answer, behind its reasoning."""

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._firsts = frozenset(mark[0] for mark in form.starts)
        self._rest = ""
        """What cannot be told before more comes."""
        self._begun = False
        """Whether a text or a call has begun."""
        self._held = False
        """Whether the rest begins with what begins a call, but for white space."""
        self._mark = 0
        """Where in the rest that is."""
        self._searched = 0
        """Up to where in the rest there is no end of it."""
        self._tries = 0
        """How often that has been read in vain."""
        self._failed = 0
        """How many marks began no call."""
        self._called = False
        """Whether a call came last."""
        self._told: list[str] = []
        """What has been passed on as text."""

    @property
    def holds(self) -> bool:
        """Whether a call is held back."""
        return self._held

    def passes(self, text: str) -> bool:
        """Whether new text is text as it comes: nothing is held back, and no call can begin in it. What `feed` would
        find of it then, this has noted.
        """
        form = self._form
        if self._rest or not text or text[-1].isspace():
            return False
        if not (form.first and self._begun) and not self._firsts.isdisjoint(text):
            return False
        self._begun, self._called = True, False
        if not form.end:
            self._told.append(text)
        return True

    def feed(self, text: str, read: Read, *, ended: bool, cut: bool = False) -> list[str | tuple[Any, ...]]:
        """What new text brings, in order: texts, and calls as they were `read`. With `ended` it is the last.

        cut: whether the answer ended before the model ended it.

        White space before calls and between them is dropped, as vLLM does.
        """
        self._rest += text
        found: list[str | tuple[Any, ...]] = []
        while self._rest and self._step(found, read, ended, cut):
            pass
        return found

    def _step(self, found: list[str | tuple[Any, ...]], read: Read, ended: bool, cut: bool) -> bool:
        """Reads on; whether there may be more to read."""
        if not self._held:
            at = self._start()
            if at is None:
                self._pass_on(found, len(self._rest) if ended else self._known())
                return False
            known = len(self._rest[:at].rstrip())
            self._pass_on(found, known)
            self._held, self._mark = True, at - known
            self._searched, self._tries = self._mark, 0
        end = self._end(ended)
        if end is None:
            return False
        before = "" if self._form.end else "".join(self._told)
        given = before + self._rest[self._mark : end]
        text, calls = read(given)
        if not calls and ended and not cut and self._form.ends_itself:
            text, calls = read(given + self._form.end)
        if calls:
            found.append((*calls,))
            self._rest, self._held, self._begun, self._called = self._rest[end:], False, True, True
            if not self._form.end:
                # All calls have been read. Of the text that the parser leaves, the beginning has been passed on.
                self._failed = MAX_TRIES
                at = text.find(before.strip())
                self._rest = text[at + len(before.strip()) :].strip() if at >= 0 else ""
        elif end < len(self._rest) or not ended:
            self._searched = end
            self._tries += 1
        else:
            # It is no call: what comes after its first mark may be one.
            self._held = False
            self._failed += 1
            first = find_mark(self._rest, self._form.starts)
            self._pass_on(found, self._mark + len(first[1] if first else ""))
        return True

    def _start(self) -> int | None:
        """Where in the rest a call begins."""
        if self._failed == MAX_TRIES or (self._form.first and self._begun):
            return None
        found = find_mark(self._rest, self._form.starts)
        if found is None or (self._form.first and self._rest[: found[0]].strip()):
            return None
        return found[0]

    def _known(self) -> int:
        """How many characters of the rest are text, whatever comes."""
        if self._form.first and (self._begun or not self._may_be_first()):
            return 0 if self._called and self._rest.isspace() else len(self._rest)
        known = self._rest[: len(self._rest) - may_begin(self._rest, self._form.starts)]
        return len(known.rstrip())

    def _may_be_first(self) -> bool:
        text = self._rest.lstrip()
        return any(mark.startswith(text) for mark in self._form.starts)

    def _end(self, ended: bool) -> int | None:
        """How much of the rest may be calls; None where more must come."""
        end = self._form.end
        at = self._rest.find(end, self._searched) if end and self._tries < MAX_TRIES else -1
        if at >= 0:
            return at + len(end)
        if end:
            # Of a long call each piece is looked at once.
            self._searched = max(self._searched, len(self._rest) - len(end) + 1)
        return len(self._rest) if ended else None

    def _pass_on(self, found: list[str | tuple[Any, ...]], count: int) -> None:
        """Passes on the first characters of the rest as text; white space behind a call only with what follows it."""
        text, self._rest = self._rest[:count], self._rest[count:]
        if text and not (self._called and text.isspace()):
            found.append(text)
            self._told.append(text)
            self._begun, self._called = True, False
