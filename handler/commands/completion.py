"""`lmi completion SHELL`: the words that a shell completes the command by, made of its own arguments by `shtab`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ...model.errors import OptionError

__all__ = ["script"]

FOLDERS = {"model_dir"}
FILES = {"output", "source", "model", "tools"}
"""Arguments that are paths."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What `shell` is to read. Raises OptionError where shtab is not installed."""
    try:
        import shtab
    except ImportError:
        raise OptionError("completion: requires shtab: install the extra lmi-handler[terminal]") from None
    for action in _actions(parser):
        if action.dest in FOLDERS:
            _complete(action, shtab.DIRECTORY)
        elif action.dest in FILES:
            _complete(action, shtab.FILE)
    return shtab.complete(parser, shell)


def _complete(action: Any, how: object) -> None:
    action.complete = how


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments, those of the commands too."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
