"""A server that the bench can be pointed at, and that does wrong as it is told:

    drop     a streamed answer lacks one record, though the usage counts it
    cut      a whole answer lacks its last word
    other    whole answers have other words
    strange  records have other names

All but the last are in answers to prompts that end in an odd
number, but not in those that warm up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("one", " two", " three", " four", " five")


def answer(asked: dict[str, Any], fault: str) -> list[dict[str, Any]]:
    """The records of an answer; a whole one has one."""
    chat = "messages" in asked
    prompt: str = asked["messages"][0]["content"] if chat else asked["inputs"]
    number: int = asked["max_tokens"] if chat else asked["parameters"]["max_new_tokens"]
    words = [WORDS[at % len(WORDS)] for at in range(number)]
    faulty = int(prompt[:6]) % 2 == 1 and not prompt.startswith("99")
    usage = {"completion_tokens": number}
    if not asked["stream"]:
        text = "".join(words[:-1] if faulty and fault == "cut" else words)
        text = text.replace("one", "1") if faulty and fault == "other" else text
        return [{"choices": [{"message": {"content": text}}], "usage": usage} if chat else {"generated_text": text}]
    if chat:
        role: dict[str, Any] = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        records: list[dict[str, Any]] = [{"choices": [{"delta": {"content": word}}]} for word in words]
        head, end = [role], [{"choices": [], "usage": usage}]
    else:
        records = [{"token": {"id": 7, "text": word, "log_prob": -1.0}} for word in words]
        head, end = [], []
    if faulty and fault == "drop":
        del records[1]
    return [*head, *records, *end]


class Handler(BaseHTTPRequestHandler):
    """Bodies that end with the connection."""

    fault = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        records = [json.dumps(one, separators=(",", ":")) for one in answer(asked, self.fault)]
        if self.fault == "strange":
            records = [one.replace('"token"', '"piece"').replace('"content"', '"words"') for one in records]
        if "messages" in asked and asked["stream"]:
            records = [f"data: {one}\n" for one in (*records, "[DONE]")]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"{one}\n" for one in records).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def faulty(fault: str = "") -> Iterator[str]:
    """The URL of one in this process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Faulty", (Handler,), {"fault": fault})) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}/invocations"
        finally:
            served.shutdown()
            thread.join()
