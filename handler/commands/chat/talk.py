"""The conversation: a line is asked, its answer shown, and both are part of what is asked next.

on a terminal   lines with a history; Ctrl-C ends the answer that is coming, or drops the line; Ctrl-D ends
a pipe          each line is asked, without a prompt
one question    its answer alone
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ....model.errors import OptionError
from .client import Answer, ChatClient, ChatError, Message
from .screen import Screen, harmless

__all__ = ["Talk", "read_tools"]

INTERRUPTED = 130


def read_tools(file: Path | None) -> list[Any]:
    """The functions that the model may call, of a JSON file with a request's `tools`. Raises OptionError."""
    if file is None:
        return []
    try:
        tools = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise OptionError(f"--tools {file}: {error}") from error
    if not isinstance(tools, list):
        raise OptionError(f"--tools {file}: expected a JSON list, as `tools` of a request, got {type(tools).__name__}")
    return tools


class Talk:
    """One conversation."""

    def __init__(self, client: ChatClient, screen: Screen, system: str | None, tools: Sequence[Any]) -> None:
        self._client = client
        self._screen = screen
        self._tools = tools
        self._messages: list[Message] = [{"role": "system", "content": system}] if system else []

    def once(self, question: str) -> int:
        """Asks one question; the exit status."""
        if not self._take_turn({"role": "user", "content": question}):
            return 1
        return INTERRUPTED if self._interrupted else 0

    def run(self) -> int:
        """Asks line by line, to the end of standard input; the exit status: 1 where nobody sits there and an answer
        failed."""
        person = sys.stdin.isatty()
        if person:
            self._screen.note(f"{harmless(self._client.model)}: Ctrl-C ends an answer, Ctrl-D ends")
        status = 0
        for line in _lines("> ", person):
            if not line.strip():
                continue
            before = len(self._messages)
            good = self._take_turn({"role": "user", "content": line})
            while good and (calls := self._open_calls()):
                results = [self._result(call, person) for call in calls]
                if None in results:
                    return status
                good = self._take_turn(*(one for one in results if one is not None))
            if not good:
                # What the server refuses once it would refuse in each question that follows.
                del self._messages[before:]
            status = status if good or person else 1
        if person:
            print()
        return status

    _interrupted = False

    def _take_turn(self, *messages: Message) -> bool:
        """Asks, and shows the answer; whether there was one."""
        self._messages += messages
        answer = Answer()
        self._interrupted = False
        try:
            self._show(answer)
        except ChatError as error:
            self._screen.cut()
            print(f"lmi: {harmless(error.message)}", file=sys.stderr, flush=True)
            return False
        except KeyboardInterrupt:
            self._screen.cut()
            self._interrupted = True
            # Calls may be in the midst of their arguments.
            answer.calls.clear()
        self._messages.append(answer.message)
        return True

    def _show(self, answer: Answer) -> None:
        began = time.monotonic()
        first = None
        with contextlib.closing(self._client.ask(self._messages, self._tools, answer)) as pieces:
            for piece in pieces:
                first = first or time.monotonic()
                self._screen.show(piece)
        ended = time.monotonic()
        self._screen.end(answer, (first or ended) - began, ended - (first or ended))

    def _open_calls(self) -> list[Any]:
        """The calls of the last answer."""
        return list(self._messages[-1].get("tool_calls") or ()) if self._messages else []

    def _result(self, call: Any, person: bool) -> Message | None:
        """What the function returns: a person, or the pipe, says it. None where nothing more comes."""
        line = next(_lines(f"{harmless(call['function']['name'])} returns> ", person), None)
        return None if line is None else {"role": "tool", "tool_call_id": call["id"], "content": line}


def _lines(prompt: str, person: bool) -> Iterator[str]:
    """The lines of standard input."""
    if person:
        with contextlib.suppress(ImportError):
            # From here on `input` has a history and keys to edit with.
            import readline  # noqa: F401
    while True:
        try:
            line = input(prompt) if person else sys.stdin.readline()
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        if not line and not person:
            return
        yield line.rstrip("\n")
