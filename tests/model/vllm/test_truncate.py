"""truncate_prompt_tokens in chats: the last tokens of what the template made, as vLLM's own server keeps them.

(vllm/entrypoints/openai/chat_completion/protocol.py, build_tok_params; its tokenizers cut at the left.)
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from ...demo.model import question
from ...kit.hosts.host import Host
from ...kit.hosts.pool import HostPool

pytestmark = pytest.mark.engine

PLAIN = question("plain")
LONG = "word " * 8000 + PLAIN.prompt
"""Far beyond the demo model's context."""
KEPT = 12

Dialect = tuple[str, dict[str, str]]
OPENAI: Dialect = ("/v1/chat/completions", {})
AZURE: Dialect = ("/chat/completions?api-version=2024-05-01-preview", {"extra-parameters": "pass-through"})
MINIMAL: Dialect = ("/chat/completions", {})


@pytest.fixture(scope="module")
def server(hosts: HostPool) -> Host:
    return hosts.get("server")


def ask(server: Host, dialect: Dialect, content: str, **fields: Any) -> httpx.Response:
    path, headers = dialect
    body = {"model": "demo", "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}
    return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=120)


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    content = response.json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("dialect", [OPENAI, AZURE], ids=["openai", "azure"])
def test_usage_counts_what_is_kept(server: Host, dialect: Dialect) -> None:
    whole = ask(server, dialect, PLAIN.prompt).json()["usage"]["prompt_tokens"]
    assert whole > KEPT
    for wanted, kept in ((KEPT, KEPT), (1, 1), (whole - 1, whole - 1), (whole, whole), (whole + 50, whole)):
        cut = ask(server, dialect, PLAIN.prompt, truncate_prompt_tokens=wanted, max_tokens=5)
        assert cut.status_code == 200, cut.text
        assert cut.json()["usage"]["prompt_tokens"] == kept


def test_a_stream_counts_the_same(server: Host) -> None:
    streamed: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    answer = ask(server, OPENAI, PLAIN.prompt, truncate_prompt_tokens=KEPT, max_tokens=5, **streamed)
    assert f'"prompt_tokens":{KEPT},' in answer.text


def test_a_value_that_cuts_nothing_changes_nothing(server: Host) -> None:
    assert text(ask(server, OPENAI, PLAIN.prompt, truncate_prompt_tokens=1000)) == PLAIN.answer


@pytest.mark.parametrize("dialect", [OPENAI, AZURE], ids=["openai", "azure"])
def test_a_prompt_beyond_the_context_is_cut_to_fit(server: Host, dialect: Dialect) -> None:
    """What is left is its end: any other prompt that ends so has the same answer."""
    refused = ask(server, dialect, LONG, max_tokens=20)
    assert refused.status_code in (400, 422)
    assert "messages: prompt is too long: " in refused.text
    cut = ask(server, dialect, LONG, truncate_prompt_tokens=KEPT, max_tokens=20)
    assert cut.json()["usage"]["prompt_tokens"] == KEPT
    assert text(cut) == text(ask(server, dialect, PLAIN.prompt, truncate_prompt_tokens=KEPT, max_tokens=20))
    assert text(cut) != text(ask(server, dialect, PLAIN.prompt, truncate_prompt_tokens=2, max_tokens=20))
    # Cut to more than the context it does not fit either.
    assert ask(server, dialect, LONG, truncate_prompt_tokens=7000, max_tokens=20).status_code == refused.status_code


def test_the_minimal_api(server: Host) -> None:
    """Its answers have no usage."""
    assert ask(server, MINIMAL, LONG).status_code == 400
    cut = ask(server, MINIMAL, LONG, truncate_prompt_tokens=KEPT, max_tokens=20).json()["message"]["content"]
    assert cut == text(ask(server, OPENAI, PLAIN.prompt, truncate_prompt_tokens=KEPT, max_tokens=20))
