"""What web pages can do with a server on loopback: a real Chromium, to which other sites' names mean this machine.

And what its EventSource makes of /chat/sse.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lmi.handler.server.access import Access, allowed_names, allowed_origins

from ...kit.api.errors import UnavailableError
from ...kit.api.types import Delta, Failed, Finish, Started
from ...kit.clients.browser import Browser, program
from ...kit.hosts.local_server import Make, Running
from ...kit.pages import blocks_of
from ...kit.paths import DOCS
from ...kit.waiting import until

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

LOOPBACK = allowed_names(["127.0.0.1"], [])
BODY = {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}

# All that a page can send to another site without asking first (Fetch: simple requests), and waits for its end.
SEND = """
(async () => {
  const to = %s, body = %s;
  const chat = to + "/v1/chat/completions", get = to + "/chat/sse?request=" + encodeURIComponent(body);
  const post = (body) => fetch(chat, {method: "POST", mode: "no-cors", body});
  const image = new Promise((done) => { const one = new Image(); one.onload = one.onerror = done; one.src = get; });
  const events = new Promise((done) => {
    const one = new EventSource(get);
    one.onerror = () => { one.close(); done(); };
  });
  const sent = [post(new Blob([body])), post(body), fetch(get, {mode: "no-cors"}), image, events];
  await Promise.allSettled(sent);
  return true;
})()
"""
ASK = """
fetch("/v1/chat/completions", {method: "POST", headers: {"Content-Type": "application/json"}, body: %s})
  .then(async (answer) => [answer.status, await answer.json()])
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(
        tmp_path_factory.mktemp("browser"), flags=["--host-resolver-rules=MAP *.example 127.0.0.1"]
    ) as browser:
        yield browser


def started(running: Make, names: frozenset[str] | None) -> Running:
    server = running(access=Access(names=names))
    server.engine.submit_then = [Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))]
    return server


@pytest.mark.parametrize("names", [LOOPBACK, None], ids=["checked", "not checked"])
def test_another_sites_page(page: Browser, running: Make, names: frozenset[str] | None) -> None:
    """The model works for nobody. Without the check it does for all but the POST that says that it is text."""
    server, site = started(running, names), started(running, None)
    page.open(f"http://other.example:{site.port}/ping")
    to = f"http://localhost:{server.port}"
    assert page.evaluate(SEND % (json.dumps(to), json.dumps(json.dumps(BODY))))
    assert len(server.engine.generations) == (0 if names is LOOPBACK else 4)


@pytest.mark.parametrize("names", [LOOPBACK, None], ids=["checked", "not checked"])
def test_a_page_whose_name_leads_to_this_machine(page: Browser, running: Make, names: frozenset[str] | None) -> None:
    """It is of the same origin as far as the browser knows, and reads the response."""
    server = started(running, names)
    page.open(f"http://rebound.example:{server.port}/ping")
    status, body = ask(page)
    if names is None:
        assert (status, body["choices"][0]["message"]["content"]) == (200, "Hello")
    else:
        assert (status, body["error"]["code"], server.engine.generations) == (403, "forbidden", [])
        assert body["error"]["param"] == "Host"


READ = """
fetch(%s + "/v1/chat/completions", {
  method: "POST", headers: {"Content-Type": "application/json", "Authorization": "Bearer a key"}, body: %s,
}).then(async (answer) => [answer.status, await answer.json(), answer.headers.get("x-request-id")], () => null)
"""


@pytest.mark.parametrize("named", [True, False])
def test_a_page_of_an_origin_that_is_named(page: Browser, running: Make, named: bool) -> None:
    """It reads the answer, its headers too; others do not, and the model does not work for them."""
    site = started(running, None)
    origin = f"http://app.example:{site.port}"
    server = running(access=Access("a key", LOOPBACK, allowed_origins([origin] if named else ["https://app.example"])))
    server.engine.submit_then = site.engine.submit_then
    page.open(f"{origin}/ping")
    told = page.evaluate(READ % (json.dumps(f"http://localhost:{server.port}"), json.dumps(json.dumps(BODY))))
    assert len(server.engine.generations) == int(named)
    if named:
        status, body, request_id = told
        assert (status, body["choices"][0]["message"]["content"], bool(request_id)) == (200, "Hello", True)
    else:
        assert told is None


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "a.localhost"])
def test_a_page_of_our_own(page: Browser, running: Make, name: str) -> None:
    server = started(running, LOOPBACK)
    page.open(f"http://{name}:{server.port}/ping")
    status, body = ask(page)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Hello")


def ask(page: Browser) -> tuple[int, Any]:
    status, body = page.evaluate(ASK % json.dumps(json.dumps(BODY)))
    return status, body


# After the minimal chat document, Client-Side Implementation for SSE.
EVENTS = """
new Promise((resolve) => {
  const seen = {opened: 0, chunks: [], errors: [], ended: false};
  const source = new EventSource("/chat/sse?request=" + encodeURIComponent(JSON.stringify(%s)));
  const finish = () => {
    source.close();
    document.body.textContent = seen.chunks.map((chunk) => chunk.message.content).join("");
    resolve({...seen, shown: document.body.textContent});
  };
  source.onopen = () => { seen.opened += 1; };
  source.onmessage = (event) => {
    if (event.data === "[END]") {
      seen.ended = true;
      finish();
    } else {
      seen.chunks.push(JSON.parse(event.data));
    }
  };
  source.onerror = (event) => {
    if (event instanceof MessageEvent) {
      seen.errors.push(JSON.parse(event.data));
    } else {
      seen.errors.push("the connection was lost");
      finish();
    }
  };
})
"""


def test_an_event_source_reads_a_stream_to_its_end(page: Browser, running: Make) -> None:
    """An error goes to its error handler, as the document has it."""
    server = running()
    texts = ["Grüße", " 🦊", "\n", "!"]
    finish = Finish("eos", generated_tokens=4)
    server.engine.submit_then = [Started(1), *(Delta(0, text) for text in texts), Delta(0, "", finish=finish)]
    page.open(f"http://localhost:{server.port}/ping")
    seen = page.evaluate(EVENTS % json.dumps(BODY))
    assert (seen["errors"], seen["opened"], seen["ended"], seen["shown"]) == ([], 1, True, "".join(texts))
    assert [chunk["index"] for chunk in seen["chunks"]] == list(range(len(seen["chunks"])))
    assert len(seen["chunks"]) >= len(texts)
    assert not any(chunk["done"] for chunk in seen["chunks"])
    seen = page.evaluate(EVENTS % json.dumps({**BODY, "temperature": -1}))
    (error,) = seen["errors"]
    assert set(error) == {"message", "type", "code"}
    assert "temperature" in error["message"]
    assert (seen["chunks"], seen["opened"], seen["ended"]) == ([], 1, True)


class Site:
    """A web site of one page."""

    def __init__(self, page: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    """docs/examples/browser.md's."""
    (html,) = (block.text for block in blocks_of(DOCS / "examples" / "browser.md") if block.language == "html")
    site = Site(html)
    yield site
    site.close()


SUBMIT = 'document.querySelector("form").requestSubmit()'
SHOWN = 'document.querySelector("#answer").textContent'


def test_the_page_of_the_documentation(page: Browser, running: Make, site: Site) -> None:
    """It shows what comes as it comes, an error in the middle, and ends the request when its user stops it."""
    origin = f"http://app.example:{site.port}"
    server = running(access=Access(None, LOOPBACK, allowed_origins([origin])))
    page.open(f"{origin}/?server=http://localhost:{server.port}")
    page.evaluate(SUBMIT)
    until(lambda: len(server.engine.generations) == 1)
    server.engine.say(0, Started(1), Delta(0, "Par"), Delta(0, "\u00efs"))
    until(lambda: page.evaluate(SHOWN) == "Par\u00efs")
    server.engine.say(0, Failed.of(UnavailableError("the engine is gone")))
    until(lambda: page.evaluate(SHOWN) == "Par\u00efs\n(the engine is gone)")
    page.evaluate(SUBMIT)
    until(lambda: len(server.engine.generations) == 2)
    server.engine.say(1, Started(1), Delta(0, "Again"))
    until(lambda: page.evaluate(SHOWN) == "Again")
    page.evaluate('document.querySelector("#stop").click()')
    until(lambda: not server.engine.running)
