"""Dialects: all of them, their tables of parameters, and a request's way through one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lmi.formatters import (
    DIALECTS,
    LARGE,
    Dialect,
    anthropic,
    azure,
    lmi,
    minimal,
    openai,
    receive,
    refusal,
    responses,
    route_of,
    routed,
    routing,
    tgi,
)
from lmi.formatters.azure.request import ACCEPTED_FIELDS as AZURE_TAKEN
from lmi.formatters.base import ParsedRequest, Request
from lmi.formatters.client_fields import ClientFields
from lmi.formatters.common import body_size, fields, json_body
from lmi.formatters.common.fields import MAX_LOGGED_NAMES, Parameter
from lmi.formatters.common.guides import GUIDES
from lmi.formatters.common.json_body import read_json
from lmi.formatters.common.kinds import Integer
from lmi.formatters.conversation.content import MAX_MESSAGES
from lmi.formatters.conversation.tools import TOOLS as MAX_TOOLS
from lmi.formatters.lmi.parameters import ROWS as LMI_ROWS
from lmi.formatters.openai.parameters import (
    CHAT_ROWS,
    CHAT_TABLE,
    TEXT_ROWS,
    TEXT_TABLE,
)
from lmi.formatters.openai.parameters import DOCUMENTS as MAX_DOCUMENTS
from lmi.formatters.rerank.parameters import CLASSIFY_TABLE, RERANK_TABLE, TEI_TABLE
from lmi.formatters.rerank.texts import MAX_TEXTS
from lmi.formatters.responses.parameters import ROWS as RESPONSE_ROWS
from lmi.model.options import Settings

__all__ = [
    "AZURE_TAKEN",
    "CHAT_ROWS",
    "CHAT_TABLE",
    "CONVERSING",
    "DIALECTS",
    "GENERATING",
    "GUIDES",
    "LARGE",
    "LMI_ROWS",
    "MAX_DOCUMENTS",
    "MAX_LOGGED_NAMES",
    "MAX_MESSAGES",
    "MAX_TEXTS",
    "MAX_TOOLS",
    "RERANK_NAMES",
    "RESPONSE_ROWS",
    "SAMPLING",
    "TEXT_ROWS",
    "TEXT_TABLE",
    "WITHOUT_TEXT",
    "ClientFields",
    "Dialect",
    "Integer",
    "Parameter",
    "anthropic",
    "azure",
    "decode_nothing",
    "forget_logged_names",
    "json_body",
    "lmi",
    "look_through_in_pieces",
    "minimal",
    "named",
    "openai",
    "parse",
    "read_json",
    "receive",
    "refusal",
    "replace_member",
    "responses",
    "route_of",
    "routed",
    "routing",
    "tgi",
]  # fmt: skip

RERANK_NAMES = tuple(dict.fromkeys(row.name for row in (*RERANK_TABLE, *CLASSIFY_TABLE, *TEI_TABLE)))
"""The plain fields of ranks, scores and classes."""

WITHOUT_TEXT = {
    "rerank": "ranks, scores and classifies texts",
    "tokens": "tells the tokens of a prompt",
    "transcription": "writes down audio, of which no text asks",
}
"""The dialects that no prompt asks for text, and what they do instead. Tests that ask a dialect for text, cut it off or
show it leave these out; each has tests of its own for what it answers."""

GENERATING = tuple(known for known in DIALECTS if known.name not in WITHOUT_TEXT)
"""The others."""

SAMPLING = tuple(known for known in DIALECTS if known in GENERATING or known.name == "transcription")
"""Those whose answers are sampled text, whatever asks for it: seeds hold for them, and content filters judge them."""

PROMPTED = ("lmi", "dynamic", "tgi")
"""The dialects whose requests are texts alone."""

CONVERSING = tuple(known for known in GENERATING if known.name not in PROMPTED)
"""Those that take what was said, tools and results. Tests of conversations ask each of them."""


def named(name: str) -> Dialect:
    """The dialect of this name."""
    (found,) = [known for known in DIALECTS if known.name == name]
    return found


def replace_member(patch: pytest.MonkeyPatch, dialect: Dialect, name: str, function: object) -> None:
    """Gives a dialect another function, although it is frozen, until the patch is undone."""
    patch.setitem(cast("dict[str, object]", _Members(dialect)), name, function)


class _Members:
    """The members of a frozen dataclass as items, which is what a patch can set and undo."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def get(self, name: str, _: object) -> object:
        return getattr(self._dialect, name)

    def __setitem__(self, name: str, value: object) -> None:
        object.__setattr__(self._dialect, name, value)


def parse(dialect: str, body: Any, settings: Settings, **request: Any) -> ParsedRequest:
    """What a body, decoded, asks for in a dialect. `request`: fields of Request. Raises RequestError."""
    (read,) = [known.parse for known in DIALECTS if dialect == known.name]
    found = read(body, Request(b"", **request), settings)
    assert isinstance(found, ParsedRequest)
    return found


def forget_logged_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no unknown field had been logged yet, of which each is once."""
    monkeypatch.setattr(fields, "_logged_names", set[str]())


def look_through_in_pieces(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Bodies are looked through so many bytes at a time."""
    monkeypatch.setattr(body_size, "PIECE", size)


def decode_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that would be decoded is a fault."""
    monkeypatch.setattr(json_body, "_decode", None)
