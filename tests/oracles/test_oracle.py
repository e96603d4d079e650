"""vLLM's own OpenAI server as an oracle: the same greedy requests give the same texts, counts and finish reasons.

A tool call that is cut off is left out: vLLM's whole answer has it as text, its streamed one not; ours are alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..demo.model import QUESTIONS, question
from ..kit.hosts.host import Server, model_directory
from ..kit.hosts.vllm_server import vllm_server

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def ours(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ours")
    directory = model_directory(demo_model, folder / "model", {"option.tool_call_parser": "hermes"})
    server = Server(directory, folder / "log")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def theirs(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    parser = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    with vllm_server(demo_model, tmp_path_factory.mktemp("theirs") / "log", parser) as client:
        yield client


def told(answer: httpx.Response) -> Any:
    """What must be the same."""
    body = answer.json()
    assert answer.status_code == 200, body
    choices = []
    for choice in body["choices"]:
        message = choice.get("message") or {"content": choice["text"]}
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
        choices.append((message["content"] or "", calls, choice["finish_reason"], choice["stop_reason"]))
    usage = body["usage"]
    return choices, usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


EXTRAS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 7},
    {"stop": ["e"]},
    {"stop": ["e"], "include_stop_str_in_output": True},
    {"ignore_eos": True, "max_tokens": 60},
    {"min_tokens": 12, "stop": ["a"]},
    {"repetition_penalty": 1.3, "max_tokens": 40},
    {"logit_bias": {"54": 50}, "max_tokens": 10},
    {"skip_special_tokens": False, "ignore_eos": True, "max_tokens": 60},
]


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_chat(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any]) -> None:
    for asked in QUESTIONS:
        if asked.endless and "max_tokens" not in extra and "stop" not in extra:
            continue
        if asked.tools and extra:
            continue
        body = {
            "model": str(demo_model),
            "messages": [{"role": "user", "content": asked.prompt}],
            "temperature": 0,
            **({"tools": asked.tools} if asked.tools else {}),
            **extra,
        }
        answers = [client.post("/v1/chat/completions", json=body) for client in (ours, theirs)]
        assert told(answers[0]) == told(answers[1]), asked.prompt


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_completions(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any]) -> None:
    prompts = [question(kind).prompt for kind in ("plain", "unicode", "endless", "json")]
    body = {"model": str(demo_model), "prompt": prompts, "temperature": 0, "max_tokens": 120, **extra}
    answers = [client.post("/v1/completions", json=body) for client in (ours, theirs)]
    assert told(answers[0]) == told(answers[1])


def both(ours: httpx.Client, theirs: httpx.Client, path: str, body: dict[str, Any]) -> tuple[Any, Any]:
    """The two answers to one request, which tell the same."""
    one, other = (client.post(path, json=body) for client in (ours, theirs))
    assert told(one) == told(other)
    return one.json(), other.json()


def near(value: Any) -> Any:
    """The same log-probability, or the same of several."""
    return None if value is None else pytest.approx(value, abs=1e-4)


def text_of(token: str) -> str:
    """A token's text: for a part of a character vLLM has none, we have the replacement character."""
    return token.replace("\N{REPLACEMENT CHARACTER}", "")


def whole_characters(likely: dict[str, float] | None) -> dict[str, float] | None:
    """Without parts of characters, which share one key."""
    return None if likely is None else {token: value for token, value in likely.items() if text_of(token)}


def ids_of(theirs: httpx.Client, prompt: str) -> list[int]:
    """A prompt's token ids, with the special ones."""
    ids: list[int] = theirs.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    return ids


ECHO = [
    {},
    {"logprobs": 3},
    {"echo": True},
    {"echo": True, "logprobs": 2},
    {"echo": True, "logprobs": 0, "max_tokens": 0},
]


@pytest.mark.parametrize("as_ids", [False, True], ids=["text", "ids"])
@pytest.mark.parametrize("extra", ECHO, ids=str)
def test_completions_fields(
    ours: httpx.Client, theirs: httpx.Client, demo_model: Path, extra: dict[str, Any], as_ids: bool
) -> None:
    text = question("plain").prompt
    ids = ids_of(theirs, text)
    prompt = ids if as_ids else text
    body = {"model": str(demo_model), "prompt": prompt, "temperature": 0, "max_tokens": 20, **extra}
    if extra.get("max_tokens") == 0:
        # vLLM's engine makes a token all the same, and its server counts and tells of it.
        one, other = (client.post("/v1/completions", json=body).json() for client in (ours, theirs))
        assert one["choices"][0]["text"] == other["choices"][0]["text"]
    else:
        one, other = both(ours, theirs, "/v1/completions", body)
    logprobs, wanted = (answer["choices"][0]["logprobs"] for answer in (one, other))
    if "logprobs" not in extra:
        assert logprobs is wanted is None
        return
    shown = len(logprobs["tokens"])
    # An end of sequence has an entry in vLLM's answers, and no place in the text.
    assert 0 <= len(wanted["tokens"]) - shown <= 1
    assert logprobs["tokens"] == wanted["tokens"][:shown]
    for mine, its in zip(logprobs["token_logprobs"], wanted["token_logprobs"], strict=False):
        assert mine == near(its)
    for mine, its in zip(logprobs["top_logprobs"], wanted["top_logprobs"], strict=False):
        assert whole_characters(mine) == near(whole_characters(its))
    # The beginning of sequence that the tokenizer adds is not in the text of an echo, but vLLM counts it.
    added = len(wanted["tokens"][0]) if extra.get("echo") and not as_ids else 0
    expected = [max(0, place - added) for place in wanted["text_offset"][:shown]]
    assert logprobs["text_offset"] == expected
    choice = one["choices"][0]["text"]
    for token, place in list(zip(logprobs["tokens"], logprobs["text_offset"], strict=True))[bool(added) :]:
        assert choice[place : place + len(token)] == token


def test_prompts_without_special_tokens(ours: httpx.Client, theirs: httpx.Client, demo_model: Path) -> None:
    body = {"model": str(demo_model), "prompt": "Tell me", "temperature": 0, "add_special_tokens": False}
    one, _ = both(ours, theirs, "/v1/completions", body)
    assert one["usage"]["prompt_tokens"] == len(ids_of(theirs, "Tell me")) - 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("likely", [0, 3])
def test_prompt_logprobs(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, path: str, likely: int) -> None:
    asked = question("plain").prompt
    given = {"messages": [{"role": "user", "content": asked}]} if "chat" in path else {"prompt": asked}
    body = {"model": str(demo_model), "temperature": 0, "max_tokens": 5, "prompt_logprobs": likely, **given}
    answers = both(ours, theirs, path, body)
    mine, its = ((answer if "chat" in path else answer["choices"][0])["prompt_logprobs"] for answer in answers)
    assert mine[0] is its[0] is None
    assert len(mine) == len(its)
    for one, other in zip(mine[1:], its[1:], strict=True):
        assert list(one) == list(other)
        for token_id, entry in one.items():
            assert (entry["rank"], entry["logprob"]) == (other[token_id]["rank"], near(other[token_id]["logprob"]))
            assert text_of(entry["decoded_token"]) == text_of(other[token_id]["decoded_token"])


@pytest.mark.parametrize("seed", [5, -(2**63)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_several_sequences(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, path: str, seed: int) -> None:
    """Sampled: sequence i has the seed `seed + i`, as in vLLM's own engine."""
    given = {"messages": [{"role": "user", "content": "Tell me"}]} if "chat" in path else {"prompt": "Tell me"}
    body = {"model": str(demo_model), "n": 3, "seed": seed, "temperature": 1.5, "max_tokens": 12, **given}
    one, _ = both(ours, theirs, path, body)
    assert len({json.dumps(choice.get("message") or choice["text"]) for choice in one["choices"]}) > 1


def test_an_echo_and_the_usage_of_each_chunk(ours: httpx.Client, theirs: httpx.Client, demo_model: Path) -> None:
    """Of a chat that goes on with the last message."""
    said = [{"role": "user", "content": question("plain").prompt}, {"role": "assistant", "content": "William"}]
    asked = {"model": str(demo_model), "messages": said, "temperature": 0, "max_tokens": 5, "echo": True}
    asked |= {"add_generation_prompt": False, "continue_final_message": True}
    options = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    told: list[Any] = []
    for server in (ours, theirs):
        whole = server.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]["content"]
        stream = server.post("/v1/chat/completions", json=asked | options)
        lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: {")]
        chunks = [json.loads(line) for line in lines]
        texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
        assert "".join(text or "" for text in texts) == whole
        told.append((whole, texts[:2], [chunk["usage"]["completion_tokens"] for chunk in chunks[:2]]))
    assert told[0] == told[1]
    assert (told[0][0][:7], told[0][2]) == ("William", [0, 0])


def test_what_is_served(ours: httpx.Client, theirs: httpx.Client) -> None:
    """The version, and where the model is."""
    assert ours.get("/version").json() == theirs.get("/version").json()
    one, other = (server.get("/v1/models").json()["data"][0] for server in (ours, theirs))
    assert (Path(one["root"]).is_dir(), Path(other["root"]).is_dir()) == (True, True)
    assert one["max_model_len"] == other["max_model_len"]


@pytest.mark.parametrize("likely", [0, 3])
def test_chat_logprobs(ours: httpx.Client, theirs: httpx.Client, demo_model: Path, likely: int) -> None:
    """Bytes are left out: vLLM's are those of its own text of a token."""
    for kind in ("plain", "json"):
        messages = [{"role": "user", "content": question(kind).prompt}]
        body = {
            "model": str(demo_model),
            "messages": messages,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": likely,
        }
        answers = both(ours, theirs, "/v1/chat/completions", body)
        mine, its = (answer["choices"][0]["logprobs"]["content"] for answer in answers)
        assert len(its) - len(mine) <= 1
        for one, other in zip(mine, its, strict=False):
            assert one["token"] == other["token"]
            assert one["logprob"] == near(other["logprob"])
            tops = ([text_of(top["token"]) for top in entry["top_logprobs"]] for entry in (one, other))
            assert next(tops) == next(tops)
