"""httpx-sse, a reader of server-sent events: what it makes of POST and GET /chat/sse.

python sse_reader.py URL '{"model": ..., "messages": [...]}'  ->  the events [event, data], as JSON, by method
"""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx
from httpx_sse import connect_sse


def main(url: str, request: dict[str, Any]) -> dict[str, Any]:
    ways: dict[str, dict[str, Any]] = {"POST": {"json": request}, "GET": {"params": {"request": json.dumps(request)}}}
    seen: dict[str, Any] = {}
    with httpx.Client(timeout=120) as http:
        for method, content in ways.items():
            with connect_sse(http, method, f"{url}/chat/sse", **content) as source:
                events = [(event.event, event.data) for event in source.iter_sse()]
                seen[method] = {"status": source.response.status_code, "events": events}
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
