"""An answer of gpt-oss, taken apart token by token: a TokenSplitter (text/answers/parsers.py).

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>
        --HarmonySplitter.feed--> reasoning "Hm.", text "Hi!"

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
from collections.abc import Collection, Iterable
from typing import Any, Literal

from ....events import CallDelta, Token
from ....text.answers.call_ids import new_id
from ....text.answers.part import Part
from ...library.parts import part as part_of

__all__ = ["HarmonySplitter"]

Kind = Literal["", "reasoning", "content", "call", "other"]
"""Of the message whose text comes; empty in a header."""

BEGUN = re.compile(
    r"(<\|start\|>)?(assistant)?(\s*to=\S*)?(<\|channel\|>\w*(\s+to=\S*)?\s*(<\|constrain\|>\w*|json|code)?)?\s*"
)
"""A header that the answer's end has cut off: nothing has been said in it."""
ROLE = re.compile(r"(<\|start\|>)?(assistant)?")
"""What the prompt ends with before the first message."""


class HarmonySplitter:
    """Takes one sequence's answer apart."""

    by_tokens = True
    """Whether an answer that is not streamed is fed by its tokens, too."""

    def __init__(
        self,
        encoding: Any,
        tools: Collection[str],
        *,
        continues: bool,
        one_call: bool,
        show_reasoning: bool,
    ) -> None:
        """`tools`: the names of those that may be called; `continues`: the prompt ends within a message of content."""
        self._encoding = encoding
        self._tools = frozenset(tools)
        self._start, self._channel, self._message = (
            encoding.encode(mark, allowed_special="all")[0] for mark in ("<|start|>", "<|channel|>", "<|message|>")
        )
        self._ends = frozenset(encoding.stop_tokens())
        self._one_call = one_call
        self._show_reasoning = show_reasoning
        self._kind: Kind = "content" if continues else ""
        self._header: list[Token] = []
        """The tokens of the header so far."""
        self._said: set[Kind] = set()
        """The kinds of which there is text."""
        self._parted = False
        """Whether a line break is due before the text that comes."""
        self._calls = 0
        self._blank = False
        """Whether the call has no arguments yet."""
        self.reasoning_tokens = 0
        """How many of the tokens so far are reasoning, headers left out."""
        self.dropped = 0
        """How many characters are said for others."""

    def feed(self, tokens: Iterable[Token], *, ended: bool, cut: bool = False) -> Part:
        """Takes the next tokens; with `ended` they are the last. cut: whether the model has not ended the answer."""
        part = Part(tokens=[*tokens])
        for token in part.tokens:
            self._take(part, token)
        if ended and not self._kind:
            self._show_header(part)
        if ended and not cut:
            self._end_call(part)
        return part

    def _take(self, part: Part, token: Token) -> None:
        if not self._kind:
            if token.id == self._message:
                self._begin(part)
            elif token.id == self._start or token.id in self._ends:
                self._show_header(part)
                self._header = [token] if token.id == self._start else []
            else:
                self._header.append(token)
        elif token.id in (self._start, self._channel) or token.id in self._ends:
            # The model may forget to end a message.
            self._end_call(part)
            self._kind, self._header = "", [] if token.id in self._ends else [token]
        else:
            if self._kind == "reasoning":
                self.reasoning_tokens += 1
            self._say(part, token.text)

    def _begin(self, part: Part) -> None:
        """Ends the header: what follows is the message's text."""
        read = self._read()
        if read is None:
            self._set("content")
            self._say(part, ROLE.sub("", self._written() + "<|message|>", count=1))
            return
        role, channel, recipient = read
        if role != "assistant":
            self._set("other")
        elif recipient and _is_function(recipient, self._tools):
            self._set("call")
            self._calls, self._blank = self._calls + 1, True
            self._call(part, new_id(), part_of(f"{UTILITIES}:extract_function_from_recipient")(recipient))
        else:
            self._set("reasoning" if channel == "analysis" else "content")

    def _read(self) -> tuple[str, str | None, str | None] | None:
        """Role, channel and recipient; None where openai_harmony cannot read them."""
        ids = [token.id for token in self._header]
        role = None if ids[:1] == [self._start] else part_of("openai_harmony:Role.ASSISTANT")
        parser = part_of("openai_harmony:StreamableParser")(self._encoding, role=role)
        try:
            for token_id in (*ids, self._message):
                parser.process(token_id)
        except part_of("openai_harmony:HarmonyError"):
            return None
        # Some versions take the mark of the format for a recipient, or for a part of it (vLLM, parser/harmony.py).
        recipient, _, _ = (parser.current_recipient or "").partition("<|constrain|>")
        return str(parser.current_role.value), parser.current_channel, recipient.rstrip() or None

    def _set(self, kind: Kind) -> None:
        self._kind, self._parted = kind, kind in self._said

    def _show_header(self, part: Part) -> None:
        """A message that ends in its header is content, unless nothing has been said in it."""
        text = self._written()
        self._header = []
        if not BEGUN.fullmatch(text):
            self._set("content")
            self._say(part, ROLE.sub("", text, count=1))
            self._kind = ""

    def _written(self) -> str:
        """The header as it stands. Of marks the detokenizer has no text."""
        special, decode = self._encoding.is_special_token, self._encoding.decode
        return "".join(token.text or (decode([token.id]) if special(token.id) else "") for token in self._header)

    def _say(self, part: Part, text: str) -> None:
        kind = self._kind
        if kind == "other":
            self.dropped += len(text)
            return
        if kind == "call":
            text = text.lstrip() if self._blank else text
        elif self._parted and text:
            text, self._parted = f"\n{text}", False
        if not text:
            return
        self._said.add(kind)
        if kind == "call":
            self._blank = False
            self._call(part, arguments=text)
        elif kind == "content":
            part.text += text
        elif self._show_reasoning:
            part.reasoning += text

    def _call(self, part: Part, call_id: str | None = None, name: str | None = None, arguments: str = "") -> None:
        if self._calls == 1 or not self._one_call:
            part.calls.append(CallDelta(self._calls - 1, call_id, name, arguments))

    def _end_call(self, part: Part) -> None:
        """Without arguments these are the empty object, as arguments are JSON."""
        if self._blank:
            self._blank = False
            self._call(part, arguments="{}")


UTILITIES = "vllm.entrypoints.openai.parser.harmony_utils"


def _is_function(recipient: str, tools: frozenset[str]) -> bool:
    """Whether it is called: `functions.NAME`, or the name alone where the request has such a tool."""
    return bool(tools) and bool(part_of(f"{UTILITIES}:is_function_recipient")(recipient, tools))
