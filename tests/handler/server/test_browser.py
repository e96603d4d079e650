"""A browser's EventSource reads /chat/sse of the local server: a real Chromium, on a page of the server itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ...demo.model import question
from ...kit.clients.browser import Browser, program
from ...kit.hosts.pool import HostPool

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]

ASKED = question("unicode")

# After the minimal chat document, Client-Side Implementation for SSE.
READ = """
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


@pytest.fixture(scope="module")
def page(hosts: HostPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        # Of the same origin: no page that the server has would do less, and CORS does not come into it.
        browser.open(f"{hosts.get('server').url}/ping")
        yield browser


def read(page: Browser, prompt: str, **fields: Any) -> Any:
    request = {"model": "any", "messages": [{"role": "user", "content": prompt}], **fields}
    return page.evaluate(READ % json.dumps(request))


def test_a_stream_is_read_to_its_end(page: Browser) -> None:
    seen = read(page, ASKED.prompt, temperature=0)
    assert seen["errors"] == []
    assert (seen["opened"], seen["ended"]) == (1, True)
    assert seen["shown"] == ASKED.answer
    assert len(seen["chunks"]) > 10
    assert [chunk["index"] for chunk in seen["chunks"]] == list(range(len(seen["chunks"])))
    assert not any(chunk["done"] for chunk in seen["chunks"])


def test_an_error_reaches_the_error_handler(page: Browser) -> None:
    """The document: "automatically routed to error handlers in browser-based EventSource implementations"."""
    seen = read(page, ASKED.prompt, temperature=-1)
    (error,) = seen["errors"]
    assert set(error) == {"message", "type", "code"}
    assert "temperature" in error["message"]
    assert seen["chunks"] == []
    assert (seen["opened"], seen["ended"]) == (1, True)
