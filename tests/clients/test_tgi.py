"""TGI's own routes and its dialect by name, and Hugging Face's client on them; `option.tgi_compat` on other requests.

The server has the option, which changes nothing where TGI is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub.constants
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import TextGenerationError, ValidationError

from ..demo.model import QUESTIONS, question
from ..kit.answers.tgi import check, whole
from ..kit.hosts.host import Server, model_directory

pytestmark = pytest.mark.engine

ASKED = QUESTIONS[0]
ENDLESS = question("endless").prompt


def named(dialect: str) -> dict[str, str]:
    return {"X-Amzn-SageMaker-Custom-Attributes": f"dialect={dialect}"}


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tgi")
    directory = model_directory(demo_model, folder / "model", {"option.tgi_compat": "true"})
    running = Server(directory, folder / "log")
    yield running
    running.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HUB_OFFLINE, which keeps the tests from the hub, would keep the client from the loopback interface too."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def client(server: Server) -> Iterator[InferenceClient]:
    with InferenceClient(server.url, timeout=60) as client:
        yield client


# --- The routes ---


def test_generate(http: httpx.Client) -> None:
    made = http.post("/generate", json={"inputs": ASKED.prompt, "parameters": {"details": True}, "stream": True})
    assert made.headers["content-type"] == "application/json"
    check(made.json(), whole(details=True, inputs=False))
    assert made.json()["generated_text"] == ASKED.answer
    assert made.headers["x-generated-tokens"] == str(made.json()["details"]["generated_tokens"])
    assert http.post("/generate", json={"inputs": ASKED.prompt}).json() == {"generated_text": ASKED.answer}


# --- The option ---

REQUESTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "stop": {"stop": ["e"], "max_new_tokens": 40},
    "best_of": {"best_of": 3, "do_sample": True, "temperature": 1.5, "seed": 7, "max_new_tokens": 8},
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_texts_are_lmis(http: httpx.Client, kind: str) -> None:
    """And all that its details tell; the shape is TGI's (docs/decisions.md: LMI requests with TGI responses)."""
    body = {"inputs": ASKED.prompt, "parameters": REQUESTS[kind]}
    (made,) = http.post("/invocations", json=body).json()
    several = kind == "best_of"
    check(made, whole(details=True, inputs=True, best_of=several))
    body = {**body, "parameters": {**REQUESTS[kind], "details": True}}
    expected = http.post("/invocations", json=body, headers=named("lmi")).json()
    assert made["generated_text"] == expected["generated_text"]
    pairs = [(made["details"], expected["details"])]
    if several:
        pairs += list(zip(made["details"]["best_of_sequences"], expected["details"]["best_of_sequences"], strict=True))
    for ours, lmis in pairs:
        for name in ("finish_reason", "generated_tokens"):
            assert ours[name] == lmis[name]
        assert [token["id"] for token in ours["tokens"]] == [token["id"] for token in lmis["tokens"]]
        assert ours.get("generated_text") == lmis.get("generated_text")


def test_thirty_tokens_and_no_stop_string(server: Server) -> None:
    """As Hugging Face's client gets them, which sends what its user does not set as null, or not at all."""
    with InferenceClient(f"{server.url}/invocations", timeout=60) as client:
        made = client.text_generation(ENDLESS, details=True)
        assert made.details is not None
        assert (made.details.generated_tokens, made.details.finish_reason) == (30, "length")
        stop = made.generated_text[10:14]
        stopped = client.text_generation(ENDLESS, stop=[stop])
        assert stopped == made.generated_text[: made.generated_text.index(stop)]
        *_, last = client.text_generation(ENDLESS, stream=True, details=True)
        assert (last.generated_text, last.details) != (None, None)
        assert last.generated_text == made.generated_text
        with pytest.raises(TextGenerationError, match=r"parameters\.top_p"):
            client.text_generation("Hello", top_p=7)


# --- huggingface_hub ---


def test_text_generation(client: InferenceClient) -> None:
    assert client.text_generation(ASKED.prompt) == ASKED.answer
    assert client.text_generation(ASKED.prompt, return_full_text=True) == ASKED.prompt + ASKED.answer


def test_text_generation_with_details(client: InferenceClient) -> None:
    made = client.text_generation(
        ASKED.prompt, details=True, decoder_input_details=True, top_n_tokens=2, max_new_tokens=5
    )
    assert ASKED.answer.startswith(made.generated_text)
    details = made.details
    assert details is not None
    assert (details.finish_reason, details.generated_tokens, details.seed) == ("length", 5, None)
    assert "".join(token.text for token in details.tokens) == made.generated_text
    assert "".join(token.text for token in details.prefill).endswith(ASKED.prompt)
    # The client leaves lists in lists as they are.
    likeliest: Any = details.top_tokens
    assert [top[0]["id"] for top in likeliest] == [token.id for token in details.tokens]


def test_text_generation_streamed(client: InferenceClient) -> None:
    """Without details the client gives every token's text, and that of the end of sequence is what TGI shows."""
    *pieces, end = client.text_generation(ASKED.prompt, stream=True)
    assert "".join(pieces) == ASKED.answer
    assert end == "<|im_end|>"


def test_text_generation_streamed_with_details(client: InferenceClient) -> None:
    made = list(client.text_generation(ASKED.prompt, stream=True, details=True, top_n_tokens=1))
    assert "".join(one.token.text for one in made if not one.token.special) == ASKED.answer
    assert [one.index for one in made] == list(range(1, len(made) + 1))
    last = made[-1]
    assert (last.generated_text, last.token.special) == (ASKED.answer, True)
    assert last.details is not None
    assert (last.details.finish_reason, last.details.generated_tokens) == ("eos_token", len(made))
    assert last.details.input_length > 0
    assert all(one.generated_text is None and one.details is None for one in made[:-1])
    assert all(one.top_tokens is not None and one.top_tokens[0].id == one.token.id for one in made)


def test_text_generation_best_of(client: InferenceClient) -> None:
    made = client.text_generation("Tell me", details=True, do_sample=True, best_of=2, max_new_tokens=5)
    assert made.details is not None
    (other,) = made.details.best_of_sequences or []
    assert other.seed is not None
    assert made.details.seed not in (None, other.seed)
    assert other.generated_tokens == len(other.tokens)


def test_the_client_raises_its_own_class(client: InferenceClient) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [({"temperature": -1.0}, "temperature"), ({"best_of": 2}, "best_of")]
    for parameters, name in wrong:
        for stream in (True, False):
            with pytest.raises(TextGenerationError, match=rf"^Input validation error: parameters\.{name}: ") as caught:
                client.text_generation("Hello", stream=stream, **parameters)
            assert isinstance(caught.value, ValidationError)
