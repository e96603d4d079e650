"""A model that takes images, on the local server: vLLM's own server as an oracle, limits, what must not be fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.hosts.host import Server, model_directory
from ..kit.hosts.vllm_server import vllm_server
from ..kit.models import vision as vision_model
from ..kit.models.pictures import Site, data_url, png, serving

pytestmark = pytest.mark.engine

RED, GREEN, BLUE = png(), png(84, 42, (0, 255, 0)), png(112, 84, (0, 0, 255))
TOKENS = {RED: 33, GREEN: 20, BLUE: 33}
"""Of an image in the prompt: four of each tile and of the whole, and what stands about them."""
LIMIT = 2
OPTIONS = {
    "limit_mm_per_prompt": json.dumps({"image": LIMIT}),
    "allowed_media_domains": "*",
    "allowed_media_networks": "127.0.0.1/32",
    "image_fetch_timeout": "10",
}


@pytest.fixture(scope="module")
def model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_model.build(tmp_path_factory.mktemp("vision") / "model", demo_model)


@pytest.fixture(scope="module")
def ours(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ours")
    server = Server(
        model_directory(model, folder / "model", {}),
        folder / "log",
        [f"--set={name}={value}" for name, value in OPTIONS.items()],
    )
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def theirs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    limit = ["--limit-mm-per-prompt", OPTIONS["limit_mm_per_prompt"]]
    with vllm_server(model, tmp_path_factory.mktemp("theirs") / "log", limit) as client:
        yield client


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Site, str]]:
    files = {"red.png": RED, "green.png": GREEN, "blue.png": BLUE}
    with serving(files) as (site, port):
        yield site, f"http://127.0.0.1:{port}"


def image(url: str | bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url if isinstance(url, str) else data_url(url)}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def body(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}], "temperature": 0, "max_tokens": 12, **more}


def post(client: httpx.Client, sent: dict[str, Any]) -> httpx.Response:
    return client.post("/v1/chat/completions", json=sent)


def answer(client: httpx.Client, sent: dict[str, Any]) -> tuple[str, int, str]:
    """Text, prompt tokens, and how it ended."""
    got = post(client, sent)
    assert got.status_code == 200, got.text
    (choice,) = got.json()["choices"]
    return choice["message"]["content"], got.json()["usage"]["prompt_tokens"], choice["finish_reason"]


def refusal(client: httpx.Client, sent: dict[str, Any]) -> dict[str, Any]:
    got = post(client, sent)
    assert got.status_code == 400, got.text
    error: dict[str, Any] = got.json()["error"]
    return error


CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "What is it?"}],
    [{"role": "user", "content": [words("What is it?")]}],
    [{"role": "user", "content": [image(RED), words("What is it?")]}],
    [{"role": "user", "content": [words("What is it?"), image(BLUE)]}],
    [{"role": "user", "content": [image(RED)]}],
    [{"role": "user", "content": [image(RED), words(" and "), image(BLUE), words("?")]}],
    [{"role": "user", "content": [image(BLUE), words(" and "), image(RED), words("?")]}],
    [{"role": "user", "content": [image(RED), image(RED)]}],
    [
        {"role": "system", "content": "Look well."},
        {"role": "user", "content": [image(GREEN), words("What is it?")]},
        {"role": "assistant", "content": "A picture."},
        {"role": "user", "content": [words("And "), image(BLUE), words("?")]},
    ],
    [{"role": "user", "content": [words("<image> is only a word")]}],
]


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
def test_vllms_own_server_answers_the_same(
    ours: httpx.Client, theirs: httpx.Client, messages: list[dict[str, Any]]
) -> None:
    sent = {"messages": messages, "temperature": 0, "max_tokens": 12}
    assert answer(ours, sent) == answer(theirs, sent)


def test_the_answer_depends_on_the_image(ours: httpx.Client) -> None:
    asked = words("What is it?")
    plain = answer(ours, body(asked))
    answers = [answer(ours, body(image(picture), asked)) for picture in TOKENS]
    assert len({text for text, _, _ in (plain, *answers)}) == 4
    assert [tokens - plain[1] for _, tokens, _ in answers] == list(TOKENS.values())
    others = [answer(ours, body(image(png(8, 8, (shade, 0, 0))), asked)) for shade in (0, 85, 170)]
    assert len({text for text, _, _ in (answers[0], *others)}) > 2
    both = [answer(ours, body(image(one), image(other), asked)) for one, other in ((RED, BLUE), (BLUE, RED))]
    assert both[0][0] != both[1][0]
    assert {tokens for _, tokens, _ in both} == {plain[1] + TOKENS[RED] + TOKENS[BLUE]}


@pytest.mark.parametrize("by_url", [False, True])
def test_every_api_shows_the_model_the_same(ours: httpx.Client, served: tuple[Site, str], by_url: bool) -> None:
    """Anthropic's messages, OpenAI's responses, and both of what counts tokens."""
    url = f"{served[1]}/blue.png" if by_url else data_url(BLUE)
    text, tokens, _ = answer(ours, body(image(url), words("What is it?")))
    source = {"type": "base64", "media_type": "image/png", "data": data_url(BLUE).partition(",")[2]}
    block = {"type": "image", "source": {"type": "url", "url": url} if by_url else source}
    messages = [{"role": "user", "content": [block, words("What is it?")]}]
    told = ours.post("/v1/messages", json={"messages": messages, "temperature": 0, "max_tokens": 12}).json()
    assert [one["text"] for one in told["content"]] == [text]
    assert told["usage"]["input_tokens"] + told["usage"]["cache_read_input_tokens"] == tokens
    assert ours.post("/v1/messages/count_tokens", json={"messages": messages}).json() == {"input_tokens": tokens}
    parts = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What is it?"}]
    asked = {"input": [{"role": "user", "content": parts}], "temperature": 0, "max_output_tokens": 12}
    told = ours.post("/v1/responses", json=asked).json()
    assert told["output"][0]["content"][0]["text"] == text
    assert told["usage"]["input_tokens"] == tokens
    chat = {"messages": [{"role": "user", "content": [image(url), words("What is it?")]}]}
    assert ours.post("/tokenize", json=chat).json()["count"] == tokens


def test_an_image_is_the_same_by_each_way(ours: httpx.Client, theirs: httpx.Client, served: tuple[Site, str]) -> None:
    _, url = served
    asked = words("What is it?")
    expected = answer(theirs, body(image(BLUE), asked))
    ways: list[dict[str, Any]] = [
        image(BLUE),
        image(f"{url}/blue.png"),
        image(f"{url}/to//blue.png"),
        {"type": "image_url", "image_url": f"{url}/blue.png"},
        {"image_url": {"url": f"{url}/blue.png", "detail": "high"}, "uuid": "mine"},
    ]
    assert [answer(ours, body(way, asked)) for way in ways] == [expected] * len(ways)
    assert answer(theirs, body(image(f"{url}/blue.png"), asked)) == expected


def test_streamed_and_several_at_once(ours: httpx.Client) -> None:
    asked = words("What is it?")
    expected = {name: answer(ours, body(image(name), asked))[0] for name in (RED, GREEN, BLUE)}
    got: dict[bytes, str] = {}

    def ask(picture: bytes) -> None:
        sent = body(image(picture), asked, stream=True, n=2)
        texts = {0: "", 1: ""}
        with ours.stream("POST", "/v1/chat/completions", json=sent) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        texts[choice["index"]] += choice["delta"].get("content") or ""
        assert texts[0] == texts[1]
        got[picture] = texts[0]

    threads = [threading.Thread(target=ask, args=(picture,)) for picture in (RED, GREEN, BLUE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_a_limit_at_and_above(ours: httpx.Client) -> None:
    """tests/model/media has all of them."""
    answer(ours, body(*[image(RED)] * LIMIT))
    error = refusal(ours, body(words("?"), *[image(RED)] * (LIMIT + 1)))
    assert error["param"] == f"messages[0].content[{LIMIT + 1}]"
    assert "expected at most 2 images in a prompt (option.limit_mm_per_prompt" in error["message"]
    assert refusal(ours, body(words("?"), *[image(RED)] * (LIMIT + 1), stream=True)) == error


def test_a_request_that_is_refused_late_leaves_its_image_usable(ours: httpx.Client) -> None:
    """What vLLM has processed for a request that then does not fit must not be taken for known to its core."""
    for number in range(3):
        picture = png(color=(10, 20, number))
        error = refusal(ours, body(image(picture), max_tokens=5000))
        assert "context" in error["message"]
        assert answer(ours, body(image(picture), words("?")))[2] == "length"


def test_a_slow_server_holds_up_nobody(ours: httpx.Client, served: tuple[Site, str]) -> None:
    """One request waits for its image while others are asked, streamed and answered; then its time is up."""
    site, url = served
    told: list[str] = []
    errors: list[dict[str, Any]] = []

    def wait_for_the_image() -> None:
        errors.append(refusal(ours, body(image(f"{url}/hold/red.png"))))
        told.append("slow")

    waiting = threading.Thread(target=wait_for_the_image)
    waiting.start()
    assert site.holding.wait(60)
    with ours.stream("POST", "/v1/chat/completions", json=body(words("?"), stream=True)) as response:
        told += ["line" for line in response.iter_lines() if line]
    told.append("streamed")
    answer(ours, body(image(BLUE), words("?")))
    told.append("with an image")
    waiting.join()
    site.release.set()
    assert told[-4:] == ["line", "streamed", "with an image", "slow"]
    assert errors[0]["message"] == (
        "messages[0].content[0].image_url.url: it could not be fetched within 10 seconds (option.image_fetch_timeout)"
    )
