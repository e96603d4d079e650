"""TGI's own routes on the local server, and Hugging Face's client on them; `option.tgi_compat` on /invocations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub.constants
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import TextGenerationError, ValidationError

from ..demo.model import JSON_SCHEMA, QUESTIONS, question
from ..kit.answers.tgi import ERROR, INFO, check, lines, whole
from ..kit.hosts.host import Server, model_directory

pytestmark = pytest.mark.engine

ASKED = QUESTIONS[0]
ENDLESS = question("endless").prompt


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


@pytest.fixture(params=["", "/invocations"], ids=["bare", "invocations"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[InferenceClient]:
    with InferenceClient(f"{server.url}{request.param}", timeout=60) as client:
        yield client


# --- The routes ---


def test_generate(http: httpx.Client) -> None:
    made = http.post("/generate", json={"inputs": ASKED.prompt, "parameters": {"details": True}, "stream": True})
    assert made.headers["content-type"] == "application/json"
    check(made.json(), whole(details=True, inputs=False))
    assert made.json()["generated_text"] == ASKED.answer
    assert made.headers["x-generated-tokens"] == str(made.json()["details"]["generated_tokens"])
    assert http.post("/generate", json={"inputs": ASKED.prompt}).json() == {"generated_text": ASKED.answer}


def test_root_and_invocations(http: httpx.Client) -> None:
    """An array; LMI's `inputs` in the details on SageMaker's route only (specs 002, TGI compatibility)."""
    for path in ("/", "/invocations", "/predictions/model"):
        answer = http.post(path, json={"inputs": ASKED.prompt, "parameters": {"details": True}})
        (made,) = answer.json()
        check(made, whole(details=True, inputs=path != "/"))
        assert made["generated_text"] == ASKED.answer
        assert http.post(path, json={"inputs": ASKED.prompt}).json() == [{"generated_text": ASKED.answer}]


@pytest.mark.parametrize("path", ["/generate_stream", "/", "/invocations"])
def test_streams(http: httpx.Client, path: str) -> None:
    body: dict[str, Any] = {"inputs": ASKED.prompt, "parameters": {"details": True}}
    answer = http.post(path, json=body if path == "/generate_stream" else body | {"stream": True})
    assert answer.headers["content-type"] == "text/event-stream"
    made = [httpx.Response(200, text=event[6:]).json() for event in answer.text.split("\n\n") if event]
    line, last = lines(details=True, inputs=path == "/invocations")
    for one in made[:-1]:
        check(one, line)
    check(made[-1], last)
    assert made[-1]["generated_text"] == ASKED.answer


def test_info_and_health(http: httpx.Client) -> None:
    made = http.get("/info")
    check(made.json(), INFO)
    assert (made.json()["max_total_tokens"], made.json()["router"]) == (2048, "vllm")
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/generate", "/generate_stream", "/", "/invocations"])
def test_errors(http: httpx.Client, path: str) -> None:
    for stream in (True, False):
        refused = http.post(path, json={"inputs": "x", "parameters": {"top_p": 7}, "stream": stream})
        check(refused.json(), ERROR)
        assert (refused.status_code, refused.headers["content-type"]) == (422, "application/json")
        assert "parameters.top_p" in refused.json()["error"]
    unread = http.post(path, content=b"{", headers={"content-type": "application/json"})
    # On /invocations nothing has told the dialect yet (wire-decisions: Which dialect a request is, 4).
    if path == "/invocations":
        assert (unread.status_code, sorted(unread.json())) == (424, ["code", "error"])
    else:
        check(unread.json(), ERROR)
        assert unread.status_code == 422


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


def test_text_generation_sampled(client: InferenceClient) -> None:
    first = client.text_generation(
        "Tell me", details=True, do_sample=True, temperature=1.5, top_k=50, top_p=0.99, max_new_tokens=20
    )
    assert first.details is not None
    assert first.details.seed is not None
    again = client.text_generation(
        "Tell me", temperature=1.5, top_k=50, top_p=0.99, max_new_tokens=20, seed=first.details.seed
    )
    assert again == first.generated_text


def test_text_generation_best_of(client: InferenceClient) -> None:
    made = client.text_generation("Tell me", details=True, do_sample=True, best_of=2, max_new_tokens=5)
    assert made.details is not None
    (other,) = made.details.best_of_sequences or []
    assert other.seed is not None
    assert made.details.seed not in (None, other.seed)
    assert other.generated_tokens == len(other.tokens)


def test_text_generation_with_stop_and_penalties(client: InferenceClient) -> None:
    plain = client.text_generation(ENDLESS, max_new_tokens=40)
    stop = plain[10:14]
    stopped = client.text_generation(ENDLESS, max_new_tokens=40, stop=[stop])
    assert stopped == plain[: plain.index(stop) + 4]
    penalized = client.text_generation(ENDLESS, max_new_tokens=40, repetition_penalty=5.0, frequency_penalty=2.0)
    assert penalized != plain


def test_text_generation_with_a_grammar(client: InferenceClient) -> None:
    from huggingface_hub import TextGenerationInputGrammarType

    grammar = TextGenerationInputGrammarType(type="regex", value="(yes|no)")
    assert client.text_generation("Is it?", grammar=grammar) in ("yes", "no")
    schema = TextGenerationInputGrammarType(type="json_schema", value={"name": "x", "schema": JSON_SCHEMA})
    text = client.text_generation(question("json").prompt, grammar=schema, max_new_tokens=300)
    assert text.startswith("{")
    assert text.rstrip().endswith("}")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"temperature": -1.0}, "parameters.temperature"),
        ({"max_new_tokens": 10_000}, "inputs"),
        ({"best_of": 2}, "parameters.best_of"),
        ({"adapter_id": "poet"}, "adapters"),
        ({"watermark": True}, "parameters.watermark"),
        ({"typical_p": 1.5}, "parameters.typical_p"),
    ],
    ids=str,
)
def test_the_client_raises_its_own_class(
    client: InferenceClient, parameters: dict[str, Any], named: str, stream: bool
) -> None:
    with pytest.raises(TextGenerationError) as caught:
        client.text_generation("Hello", stream=stream, **parameters)
    assert isinstance(caught.value, ValidationError)
    assert str(caught.value).startswith(f"Input validation error: {named}: ")


def test_chat_completion(server: Server) -> None:
    """The same client speaks OpenAI's dialect for conversations."""
    with InferenceClient(server.url, timeout=60) as client:
        made = client.chat_completion([{"role": "user", "content": ASKED.prompt}], temperature=0)
        assert made.choices[0].message.content == ASKED.answer
