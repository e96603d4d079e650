"""`/metrics` of a worker behind DJL Serving, on a port of its own (option.metrics_port): Java has no part in it.

Worker N listens on the Nth port behind the option's, on all addresses; one that takes the place of a dead one has its
port again. Each scrape is a thread's, which waits for the engine and for nothing else.
"""

from __future__ import annotations

import logging
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .exposition import Exposition

__all__ = ["listen"]

log = logging.getLogger(__name__)

IDLE_S = 10.0
"""Seconds that a client has for its request."""


def listen(exposition: Exposition, port: int) -> ThreadingHTTPServer | None:
    """Begins to answer scrapes; 0: on any port. None where the port cannot be had: the model serves all the same."""

    class Scrape(BaseHTTPRequestHandler):
        timeout = IDLE_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            text, content_type = exposition.scraped(self.headers.get("accept", ""))
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    try:
        server = ThreadingHTTPServer(("", port), Scrape)
    except (OSError, OverflowError) as error:
        log.error("option.metrics_port: there are no metrics on port %d: %s", port, error)
        return None
    threading.Thread(target=server.serve_forever, name="lmi-scrapes", daemon=True).start()
    log.info("metrics are on port %d, GET /metrics", server.server_port)
    return server
