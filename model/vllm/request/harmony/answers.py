"""An answer of gpt-oss, taken apart token by token: what Splitter (text/parsers.py) asks of a parser of vLLM's.

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>
        --HarmonyAnswer.parse_delta--> reasoning "Hm.", content "Hi!"

    channel analysis                                    reasoning
    recipient is a tool that may be called              a call
    anything else the assistant says                    content
    another role: what the model makes up for others    nothing

openai_harmony reads the headers. A message whose header it cannot read, or that has none, is content as it stands, with
its marks; what comes before and after it is read as ever. vLLM's own parser (parser/harmony.py) ends such a request in
0.26, and drops all that follows from 0.28 on. Texts are the detokenizer's, so that stop strings hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....text.parsers import new_id
from ...library.parts import part

__all__ = ["HarmonyAnswer"]

BEGUN = re.compile(
    r"(<\|start\|>)?(assistant)?(\s*to=\S*)?(<\|channel\|>\w*(\s+to=\S*)?\s*(<\|constrain\|>\w*|json|code)?)?\s*"
)
"""A header that the answer's end has cut off: nothing has been said in it."""
ROLE = re.compile(r"(<\|start\|>)?(assistant)?")
"""What the prompt ends with before the first message."""


@dataclass(slots=True)
class _Function:
    name: str | None
    arguments: str


@dataclass(slots=True)
class _Call:
    index: int
    id: str | None
    function: _Function


@dataclass(slots=True)
class _Said:
    """What a token brought, in the form of vLLM's DeltaMessage."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[_Call] = field(default_factory=list[_Call])


class HarmonyAnswer:
    """One sequence's."""

    def __init__(self, encoding: Any, tools: Collection[str], *, continues: bool = False) -> None:
        """`tools`: the names of those that may be called; `continues`: the prompt ends within a message of content."""
        self._encoding = encoding
        self._tools = frozenset(tools)
        self._start, self._channel, self._message = (
            encoding.encode(mark, allowed_special="all")[0] for mark in ("<|start|>", "<|channel|>", "<|message|>")
        )
        self._ends = frozenset(encoding.stop_tokens())
        self._kind = "content" if continues else ""
        """Of the message whose text comes: reasoning, content, call or other; empty in a header."""
        self._header: list[int] = []
        """The tokens of the header so far."""
        self._said: set[str] = set()
        """The kinds that have been shown."""
        self._parted = False
        """Whether a line break is due before the text that comes."""
        self._calls = 0
        self._blank = False
        """Whether the call has no arguments yet."""
        self._reasoning_tokens = 0

    @property
    def reasoning_parser(self) -> HarmonyAnswer:
        """What counts the tokens of the reasoning."""
        return self

    def count_reasoning_tokens(self, ids: Sequence[int]) -> int:
        """How many of the tokens so far are reasoning, headers left out."""
        return self._reasoning_tokens

    def parse_delta(
        self,
        text: str,
        ids: Sequence[int],
        request: Any,
        prompt_ids: Sequence[int] | None = None,
        *,
        finished: bool,
    ) -> _Said:
        """Takes one token and its text, or none; with `finished` it is the last."""
        said = _Said()
        for token_id in ids:
            self._take(said, token_id, text)
        if finished and not self._kind:
            self._show_header(said)
        return said

    def _take(self, said: _Said, token_id: int, text: str) -> None:
        if not self._kind:
            if token_id == self._message:
                self._begin(said)
            elif token_id == self._start or token_id in self._ends:
                self._show_header(said)
                self._header = [token_id] if token_id == self._start else []
            else:
                self._header.append(token_id)
        elif token_id in self._ends:
            self._kind, self._header = "", []
        elif token_id in (self._start, self._channel):
            # The model has forgotten to end the message.
            self._kind, self._header = "", [token_id]
        else:
            if self._kind == "reasoning":
                self._reasoning_tokens += 1
            self._say(said, text)

    def _begin(self, said: _Said) -> None:
        """Ends the header: what follows is the message's text."""
        read = self._read()
        if read is None:
            self._set("content")
            self._say(said, ROLE.sub("", self._encoding.decode([*self._header, self._message]), count=1))
            return
        role, channel, recipient = read
        if role != "assistant":
            self._set("other")
        elif recipient and _is_function(recipient, self._tools):
            self._set("call")
            name = part(f"{UTILITIES}:extract_function_from_recipient")(recipient)
            said.tool_calls.append(_Call(self._calls, new_id(), _Function(name, "")))
            self._calls, self._blank = self._calls + 1, True
        else:
            self._set("reasoning" if channel == "analysis" else "content")

    def _read(self) -> tuple[str, str | None, str | None] | None:
        """Role, channel and recipient; None where openai_harmony cannot read them."""
        role = None if self._header[:1] == [self._start] else part("openai_harmony:Role.ASSISTANT")
        parser = part("openai_harmony:StreamableParser")(self._encoding, role=role)
        try:
            for token_id in (*self._header, self._message):
                parser.process(token_id)
        except part("openai_harmony:HarmonyError"):
            return None
        # Some versions take the mark of the format for a recipient, or for a part of it (vLLM, parser/harmony.py).
        recipient, _, _ = (parser.current_recipient or "").partition("<|constrain|>")
        return str(parser.current_role.value), parser.current_channel, recipient.rstrip() or None

    def _set(self, kind: str) -> None:
        self._kind, self._parted = kind, kind in self._said

    def _show_header(self, said: _Said) -> None:
        """A message that ends in its header is content, unless nothing has been said in it."""
        text = self._encoding.decode(self._header)
        self._header = []
        if not BEGUN.fullmatch(text):
            self._set("content")
            self._say(said, ROLE.sub("", text, count=1))
            self._kind = ""

    def _say(self, said: _Said, text: str) -> None:
        kind = self._kind
        if kind == "call":
            if self._blank:
                text = text.lstrip()
            self._blank = self._blank and not text
            if text:
                said.tool_calls.append(_Call(self._calls - 1, None, _Function(None, text)))
        elif text and kind != "other":
            if self._parted:
                text, self._parted = f"\n{text}", False
            self._said.add(kind)
            setattr(said, kind, getattr(said, kind) + text)


UTILITIES = "vllm.entrypoints.openai.parser.harmony_utils"


def _is_function(recipient: str, tools: frozenset[str]) -> bool:
    """Whether it is called: `functions.NAME`, or the name alone where the request has such a tool."""
    return bool(tools) and bool(part(f"{UTILITIES}:is_function_recipient")(recipient, tools))
