"""Named checks of a client, each of which fails or passes by itself, and how a client's requests reach a host.

    python SCRIPT URL path|route '{...}'   ->   {"name of a check": null or what went wrong}, as JSON

path: each request goes to the path that the client chose, as on the local server. route: it goes to /invocations, its
path and query in the custom attributes as `route=`, as to an endpoint; a DELETE is said before the path.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import httpx

__all__ = ["CHECKS", "check", "http_client", "main"]

CHECKS: dict[str, Callable[..., None]] = {}
"""By name; each is called with the client and what the test tells the script."""


def check(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a function a check, which its name describes."""
    CHECKS[function.__name__] = function
    return function


def http_client(way: str, library: Any = httpx) -> Any:
    """What other people's clients are given to send with, of `library`: httpx, or one that has its names."""

    class ByRoute(library.HTTPTransport):  # type: ignore[misc]
        """Sends each request to /invocations, where it was to go in its custom attributes."""

        def handle_request(self, request: Any) -> Any:
            route = request.url.raw_path.decode()
            if request.method not in ("GET", "POST"):
                route = f"{request.method} {route}"
            request.method = "POST"
            request.url = request.url.copy_with(raw_path=b"/invocations")
            request.headers["X-Amzn-SageMaker-Custom-Attributes"] = f"route={route}"
            return super().handle_request(request)

    return library.Client(transport=ByRoute() if way == "route" else library.HTTPTransport(), timeout=120)


def main(make: Callable[[str, Any], Any], library: Any = httpx) -> None:
    """Runs every check with the client that `make` returns for a URL and an HTTP client of `library`, and prints what
    came of it."""
    url, way, told = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    client = make(url, http_client(way, library))
    found: dict[str, str | None] = {}
    for name, run in CHECKS.items():
        if name in told.get("without", ()):
            continue
        try:
            run(client, told)
            found[name] = None
        except Exception:  # noqa: BLE001 - it is what the check found
            found[name] = traceback.format_exc(limit=-3)
    print(json.dumps(found))
