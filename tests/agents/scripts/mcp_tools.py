"""An MCP server over standard input and output, of no dependency: its tools add, fail, and show a red square.

usage: mcp_tools.py [WORD]   `add` says WORD before the sum, which tells two such servers apart
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from typing import Any

NUMBERS = {"type": "object", "properties": {name: {"type": "number"} for name in "ab"}, "required": ["a", "b"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "add", "description": "Adds two numbers.", "inputSchema": NUMBERS},
    {"name": "fail", "description": "Fails.", "inputSchema": NOTHING},
    {"name": "show", "description": "Shows a picture.", "inputSchema": NOTHING},
]
EDGE = 56
"""Of the picture, in pixels."""


def picture() -> str:
    """A PNG as base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + b"\xff\0\0" * EDGE) * EDGE
    header = struct.pack(">IIBBBBB", EDGE, EDGE, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a call."""
    if name == "add":
        words = [*sys.argv[1:], str(arguments["a"] + arguments["b"])]
        return {"content": [{"type": "text", "text": " ".join(words)}]}
    if name == "show":
        return {"content": [{"type": "image", "data": picture(), "mimeType": "image/png"}]}
    return {"content": [{"type": "text", "text": "It is broken."}], "isError": True}


def answer(method: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None: it is not served."""
    if method == "initialize":
        return {
            "protocolVersion": given["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "mcp_tools", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return called(given["name"], given.get("arguments") or {})
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not served"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
