"""A server that the bench can be pointed at, and that does wrong as it is told:

    drop     a streamed answer lacks one record, though the usage counts it
    cut      a whole answer lacks its last word
    other    whole answers have other words
    strange  records have other names
    torn     every byte is sent by itself
    ended    the connection ends in the middle of an answer

The first three are in answers to prompts that end in an odd number, but not in those that warm up. Answers that are
streamed come in chunks, others have their length told.
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
    faulty = int(prompt[:6]) % 2 == 1 and not prompt.startswith("50")
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
    """Keeps its connections."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fault = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        records = [json.dumps(one, separators=(",", ":")) for one in answer(asked, self.fault)]
        if self.fault == "strange":
            records = [one.replace('"token"', '"piece"').replace('"content"', '"words"') for one in records]
        if "messages" in asked and asked["stream"]:
            records = [f"data: {one}\n" for one in (*records, "[DONE]")]
        lines = [f"{one}\n".encode() for one in records]
        self.send_response(200)
        if asked["stream"]:
            self.send_header("Transfer-Encoding", "chunked")
            lines = [b"%x\r\n%s\r\n" % (len(line), line) for line in [*lines, b""]]
        else:
            self.send_header("Content-Length", str(sum(map(len, lines))))
        self.end_headers()
        if self.fault == "ended":
            lines, self.close_connection = lines[:1], True
        sent = b"".join(lines)
        for piece in [sent[at : at + 1] for at in range(len(sent))] if self.fault == "torn" else [sent]:
            self.wfile.write(piece)

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
