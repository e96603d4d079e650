"""Whom `lmi chat` talks with: a server that is there, or one of its own."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from ....model.errors import OptionError
from ..arguments import required_key
from .client import ChatClient
from .local import local_server
from .screen import Screen
from .talk import Talk, read_tools

__all__ = ["chat"]

URL = re.compile(r"https?://", re.IGNORECASE)


def chat(arguments: argparse.Namespace) -> int:
    """Talks to the end; the exit status. Raises LmiError."""
    tools = read_tools(arguments.tools)
    if URL.match(arguments.model):
        if arguments.set:
            raise OptionError(f"--set: expected a model, which has options, got {arguments.model}")
        key = required_key(arguments.api_key, os.environ)
        client = ChatClient(arguments.model, key, arguments.name)
        return _talk(client, arguments, tools)
    if arguments.api_key is not None:
        raise OptionError(f"--api-key: expected the URL of a server, got {arguments.model}")
    with local_server(Path(arguments.model), arguments.set) as (url, key):
        return _talk(ChatClient(url, key, arguments.name), arguments, tools)


def _talk(client: ChatClient, arguments: argparse.Namespace, tools: list[object]) -> int:
    talk = Talk(client, Screen(), arguments.system, tools)
    return talk.run() if arguments.question is None else talk.once(arguments.question)
