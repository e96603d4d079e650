"""What the tools of the scripts beside this file do, and how these tell what they saw (tests/kit/agents/loops.py).

A script's argument is the questions, by the loop that each begins, as JSON. It prints a line for each loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import traceback
import zlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

WEATHER = [sys.executable, str(Path(__file__).with_name("mcp_server.py")), "weather"]
"""The command of an MCP server."""
SYSTEM = "You look after files."


def read_file(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


def flood() -> str:
    """More than a model can read."""
    return "drop " * 80_000


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


EDGE = 56
PICTURE = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", EDGE.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0")
    + _chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * EDGE) * EDGE))
    + _chunk(b"IEND", b"")
)
"""A red PNG."""
PICTURE_TEXT = base64.b64encode(PICTURE).decode()
PICTURE_URL = f"data:image/png;base64,{PICTURE_TEXT}"


def play(loops: Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]) -> None:
    """Goes through the loops that are asked for; what ends one is told of it, and the others go on."""
    asked: dict[str, list[str]] = json.loads(sys.argv[1])

    async def each() -> None:
        for loop, questions in asked.items():
            try:
                told = await loops[loop](*questions)
            except Exception as error:  # noqa: BLE001 - whatever the library raises is what its user sees
                traceback.print_exc()
                told = {"error": type(error).__name__, "message": str(error)}
            print("\n" + json.dumps({"loop": loop, **told}), flush=True)

    asyncio.run(each())
