"""Images on every host for a model that takes none: refused by name, without anything being fetched."""

from __future__ import annotations

from typing import Any

import pytest

from ..demo.model import question
from ..kit.hosts.host import Host, client
from ..kit.models.pictures import data_url, png, serving

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

MESSAGE = "messages[0].content[1].type: expected 'text' (the model takes no images), got an image"


def body(url: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": content}], **more}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_takes_no_images(host: Host, stream: bool) -> None:
    with serving({"a.png": png()}) as (site, port):
        async with client(host) as http:
            for url in (data_url(png()), f"http://127.0.0.1:{port}/a.png"):
                got = await http.post(body(url, stream=stream))
                assert got.status_code == 400, got.text
                error = got.json()["error"]
                # Java's body for errors is {"error": "...", "code": 400}.
                assert (error if isinstance(error, str) else error["message"]) == MESSAGE
                if isinstance(error, dict):
                    assert error["param"] == "messages[0].content[1].type"
            asked = question("plain")
            answer = await http.post({"inputs": asked.prompt, "parameters": {"max_new_tokens": 200}})
            assert answer.json() == {"generated_text": asked.answer}
        assert site.asked == []
