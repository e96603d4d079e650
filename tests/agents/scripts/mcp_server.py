"""An MCP server over standard input and output, of the standard library alone.

usage: mcp_server.py [--says WORD] TOOL...

WORD comes before what its tools say, which tells two such servers apart.
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

EDGE = 56
"""Of a picture, in pixels."""


def text(said: str, *, failed: bool = False) -> dict[str, Any]:
    """A result that says something."""
    return {"content": [{"type": "text", "text": said}], "isError": failed}


def picture() -> dict[str, Any]:
    """A result that shows a red square, as a PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + b"\xff\0\0" * EDGE) * EDGE
    header = struct.pack(">IIBBBBB", EDGE, EDGE, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}


def note(number: int) -> dict[str, Any]:
    """There is one."""
    return text("Buy 7 apples.") if number == 1 else text(f"There is no note {number}.", failed=True)


def weather(city: str) -> dict[str, Any]:
    """There is none but of Bern."""
    return text("It snows in Bern.") if city == "Bern" else text(f"There is no city {city}.", failed=True)


Tool = tuple[str, dict[str, str], Callable[..., dict[str, Any]]]
"""What it does, the types of its arguments, what it gives."""
TOOLS: dict[str, Tool] = {
    "add": ("Adds two numbers.", {"a": "number", "b": "number"}, lambda a, b: text(str(a + b))),
    "fail": ("Fails.", {}, lambda: text("It is broken.", failed=True)),
    "show": ("Shows a picture.", {}, picture),
    "read_note": ("Reads a note.", {"number": "integer"}, note),
    "see_note": ("Shows a note.", {}, picture),
    "weather": ("The weather of a city.", {"city": "string"}, weather),
    "photo": ("A photo of a city.", {"city": "string"}, lambda city: picture()),
}

arguments = argparse.ArgumentParser()
arguments.add_argument("--says", default="")
arguments.add_argument("tools", nargs="+", choices=TOOLS)
GIVEN = arguments.parse_args()


def schema(types: dict[str, str]) -> dict[str, Any]:
    """Of an object all of whose members are there."""
    members = {name: {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": members, "required": [*members]}


def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The result of a call."""
    result = TOOLS[name][2](**given)
    for part in result["content"]:
        if "text" in part:
            part["text"] = f"{GIVEN.says} {part['text']}".strip()
    return result


def answer(method: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None: it is not served."""
    if method == "initialize":
        about = {"name": "tools", "version": "1"}
        return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        shown = [(name, *TOOLS[name][:2]) for name in GIVEN.tools]
        return {"tools": [{"name": n, "description": does, "inputSchema": schema(types)} for n, does, types in shown]}
    if method == "tools/call":
        return called(given["name"], given.get("arguments") or {})
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    # Neither a notification nor an answer.
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "not served"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
