"""Embeddings in the dialects: what is asked of the engine, and the answers, with vectors fed by hand.

LMI's `inputs` (its embedding user guide: `[[...], ...]`), OpenAI's `input` (its API reference,
Create embeddings).
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters import ParsedRequest, Request, Response, receive
from lmi.formatters.base import ResponseEncoder

from ..kit.api.errors import ContextError, GenerationError, LmiError, OptionError
from ..kit.api.handler import load_extensions
from ..kit.api.options import settings_of
from ..kit.api.types import Conversation, Delta, Embedding, Event, Failed, Finish, Message, Settings, Started
from ..kit.rows import each_row

NAMES: dict[str, Any] = {"model_dir": "/opt/ml/model", "model_id": "/opt/ml/model", "model_name": "/opt/ml/model"}
SETTINGS = Settings(**NAMES, task="embed")
DYNAMIC = Settings(**NAMES, task="embed", rolling_batch="disable")
STRICT = Settings(**NAMES, task="embed", unknown_parameters="error")
GENERATES = Settings(**NAMES)
PATH = "/v1/embeddings"
HI = [{"role": "user", "content": "hi"}]
TEXTS = ["What is Deep Learning", "How many ways can I peel an orange"]
FLOATS = (0.0059961616, -1.0498056, 0.040412642, -0.2044975, 0.8382087)
"""Of the embedding user guide's example."""


def call(body: object, settings: Settings = SETTINGS, path: str = "/invocations") -> ParsedRequest:
    received = receive(Request(json.dumps(body).encode(), path=path, request_id="7"), settings)
    assert isinstance(received, ParsedRequest), received
    return received


def refused(body: object, settings: Settings = SETTINGS, path: str = "/invocations") -> Response:
    received = receive(Request(json.dumps(body).encode(), path=path), settings)
    assert isinstance(received, Response)
    return received


def vector(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def singles(*numbers: float) -> list[float]:
    """The numbers as float32 holds them."""
    return [*struct.unpack(f"<{len(numbers)}f", vector(*numbers))]


def events(*numbers: float, tokens: int = 3) -> list[Event]:
    return [Started(tokens), Delta(0, "", finish=Finish("eos"), vector=vector(*numbers))]


def feed(reply: ResponseEncoder, *fed: tuple[int, list[Event]]) -> list[bytes]:
    records: list[bytes] = []
    for prompt, events_of_prompt in fed:
        for event in events_of_prompt:
            assert not reply.finished
            records += reply.feed(event, prompt)
    assert all(records)
    return records


def whole(asked: ParsedRequest, *vectors: tuple[float, ...]) -> Any:
    """OpenAI's answer."""
    (body,) = feed(asked.reply, *((number, events(*one)) for number, one in enumerate(vectors)))
    return json.loads(body)


# --- LMI ---


@each_row("settings", [SETTINGS, DYNAMIC], ids=["lmi", "dynamic"])
def test_inputs(settings: Settings) -> None:
    """One text is a list of one vector; several come in the order of the texts, not of the vectors."""
    asked = call({"inputs": "What is Deep Learning?"}, settings)
    (generation,) = asked.generations
    assert (generation.prompt, generation.embedding) == ("What is Deep Learning?", Embedding())
    assert (asked.fields.name("prompt"), generation.request_id, generation.stream) == ("inputs", "7", False)
    (body,) = feed(asked.reply, (0, events(*FLOATS)))
    assert json.loads(body) == [singles(*FLOATS)]
    assert (asked.reply.status, asked.reply.content_type, asked.reply.finished) == (200, "application/json", True)

    asked = call({"inputs": TEXTS, "parameters": None, "stream": False}, settings)
    assert [generation.prompt for generation in asked.generations] == TEXTS
    assert [asked.fields.name("prompt", number) for number in range(len(asked.generations))] == [
        "inputs[0]",
        "inputs[1]",
    ]
    (body,) = feed(asked.reply, (1, events(2, 3)), (0, events(0.5, 1)))
    assert json.loads(body) == [[0.5, 1], [2, 3]]


@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), min_size=1), st.data()
)
def test_numbers_are_exact_in_any_order(vectors: list[list[float]], data: st.DataObject) -> None:
    asked = call({"inputs": ["x"] * len(vectors)})
    order = data.draw(st.permutations(range(len(vectors))))
    (body,) = feed(asked.reply, *((prompt, events(*vectors[prompt])) for prompt in order))
    assert json.loads(body) == vectors


@each_row(
    ("fields", "embedding"),
    [
        ({"normalize": False}, Embedding(normalize=False)),
        ({"normalize": True, "truncate": True}, Embedding(normalize=True, truncate=True)),
        ({"truncate": 8, "truncation_direction": "Left"}, Embedding(truncate=8, cut="left")),
        ({"truncate": False, "truncation_direction": "right"}, Embedding()),
        ({"truncate": 1}, Embedding(truncate=1)),
        ({"dimensions": 256}, Embedding(dimensions=256)),
        ({"normalize": None, "truncate": None, "prompt_name": None, "dimensions": None}, Embedding()),
        ({"encoding_format": "float"}, Embedding()),
    ],
    ids=str,
)
@each_row("beside", [True, False], ids=["beside", "parameters"])
def test_fields(fields: dict[str, Any], embedding: Embedding, beside: bool) -> None:
    """Those of text-embeddings containers, beside `inputs` as there, or in `parameters`."""
    body = {"inputs": "a", **fields} if beside else {"inputs": "a", "parameters": fields}
    (generation,) = call(body, STRICT).generations
    assert generation.embedding == embedding
    assert generation.embedding is not None
    # 1 and true are equal, but not the same.
    assert isinstance(generation.embedding.truncate, bool) is isinstance(embedding.truncate, bool)


@each_row("option", [True, False])
def test_normalize_of_the_endpoint_and_of_a_request(option: bool) -> None:
    settings = Settings(**NAMES, task="embed", normalize=option)
    for body in ({"inputs": "a"}, {"input": "a"}):
        assert call(body, settings).generations[0].embedding == Embedding(normalize=option)
        said = call({**body, "normalize": not option}, settings)
        assert said.generations[0].embedding == Embedding(normalize=not option)


WRONG_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"inputs": ""}, "inputs: expected a non-empty string or a list of them, got ''"),
    ({"inputs": []}, "inputs: expected a non-empty string or a list of them, got []"),
    ({"inputs": ["a", ""]}, "inputs[1]: expected a non-empty string, got ''"),
    ({"inputs": ["a", 5]}, "inputs[1]: expected a non-empty string, got 5"),
    ({"inputs": ["a"] * 1025}, "inputs: expected at most 1024 texts, got 1025"),
    (
        {"inputs": "a", "stream": True},
        "stream: expected False, the only value that is supported (vectors are not streamed), got True",
    ),
    ({"inputs": "a", "truncate": "yes"}, "truncate: expected true, false, or an integer >= 1, got 'yes'"),
    ({"inputs": "a", "truncate": 0}, "truncate: expected an integer >= 1, got 0"),
    ({"inputs": "a", "truncation_direction": "up"}, "truncation_direction: expected Left or Right, got 'up'"),
    ({"inputs": "a", "prompt_name": "query"}, "prompt_name: not supported"),
    (
        {"inputs": "a", "encoding_format": "base64"},
        "encoding_format: expected float, the only value that is supported, got 'base64'",
    ),
    (
        {"inputs": "a", "normalize": False, "parameters": {"normalize": True}},
        "normalize: the same parameter as parameters.normalize, which has another value; set only one of them",
    ),
    # As many tokens as fit are not one token.
    (
        {"inputs": "a", "truncate": True, "parameters": {"truncate": 1}},
        "truncate: the same parameter as parameters.truncate, which has another value; set only one of them",
    ),
    (
        {"inputs": "a", "parameters": {"max_new_tokens": 9}},
        "parameters.max_new_tokens: this model makes embeddings and generates no text",
    ),
    ({"parameters": {}}, "unknown dialect: expected a field inputs"),
]


@each_row(("body", "message"), WRONG_INPUTS, ids=[message for _, message in WRONG_INPUTS])
def test_wrong_inputs(body: dict[str, Any], message: str) -> None:
    """LMI's 424, in the form of the mode."""
    answer = refused(body)
    assert (answer.status, answer.content_type) == (424, "application/json")
    told = json.loads(answer.body)
    assert list(told) == ["error", "code"]
    assert told["error"].startswith(message)
    assert told["code"] == 424
    answer = refused(body, DYNAMIC)
    told = json.loads(answer.body)
    assert (set(told), answer.status) == ({"code", "error", "message"}, 424)
    assert told["error"].startswith(message)


# --- OpenAI ---


def test_openai() -> None:
    """The documented answer: a list of embedding objects, the model, the usage of all inputs."""
    asked = call({"input": TEXTS, "model": "text-embedding-ada-002", "encoding_format": "float", "user": "u"}, STRICT)
    assert [generation.prompt for generation in asked.generations] == TEXTS
    assert [asked.fields.name("prompt", number) for number in range(len(asked.generations))] == ["input[0]", "input[1]"]
    (body,) = feed(asked.reply, (1, events(2, 3, tokens=7)), (0, events(*FLOATS, tokens=5)))
    answer = json.loads(body)
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": singles(*FLOATS)},
            {"object": "embedding", "index": 1, "embedding": [2.0, 3.0]},
        ],
        "model": "/opt/ml/model",
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    }
    types = {name: type(value) for name, value in answer["data"][0].items()}
    assert types == {"object": str, "index": int, "embedding": list}
    assert all(isinstance(number, float) for number in answer["data"][0]["embedding"])


@each_row("path", ["/invocations", PATH])
@each_row(
    ("fields", "changed"),
    [
        ({}, {}),
        ({"add_generation_prompt": True}, {"add_generation_prompt": True}),
        ({"continue_final_message": True}, {"continue_final_message": True}),
        ({"add_special_tokens": True}, {"add_special_tokens": True}),
        ({"chat_template_kwargs": {"a": 1}}, {"template_arguments": {"a": 1}}),
        ({"dimensions": 2, "truncate_prompt_tokens": 3}, {}),
    ],
)
def test_a_conversation_is_embedded(fields: dict[str, Any], changed: dict[str, Any], path: str) -> None:
    """vLLM's form of the body; without the beginning of an answer, unless the request says so."""
    asked = call({"messages": HI, **fields}, path=path)
    (one,) = asked.generations
    plain: dict[str, Any] = {"messages": (Message("user", "hi"),), "add_generation_prompt": False}
    assert one.prompt == Conversation(**{**plain, **changed})
    assert one.embedding is not None
    assert (one.embedding.dimensions, one.embedding.truncate) == ((2, 3) if "dimensions" in fields else (None, False))
    assert asked.fields.name("prompt") == "messages"
    assert len(whole(asked, FLOATS)["data"]) == 1


@each_row(
    ("numbers", "fields", "sent"),
    [
        ((1.0, -2.0), {}, "0000803f000000c0"),
        ((1.0, -2.0), {"endianness": "native"}, "0000803f000000c0"),
        ((1.0, -2.0), {"endianness": "big"}, "3f800000c0000000"),
        ((1.0, 1e9), {"embed_dtype": "float16"}, "003c007c"),
        ((1.0, 0.1), {"embed_dtype": "float16", "endianness": "big"}, "3c002e66"),
        # Halfway between two: the even one.
        ((1.00390625, 1.01171875, 0.1), {"embed_dtype": "bfloat16"}, "803f823fcd3d"),
        ((-0.1,), {"embed_dtype": "bfloat16", "endianness": "big"}, "bdcd"),
    ],
)
def test_numbers_in_base64(numbers: tuple[float, ...], fields: dict[str, Any], sent: str) -> None:
    """As torch makes them for vLLM's server (utils/serial_utils.py, tensor2binary)."""
    asked = call({"input": "a", "encoding_format": "base64", **fields}, path=PATH)
    (entry,) = whole(asked, numbers)["data"]
    assert base64.b64decode(entry["embedding"]).hex() == sent
    (entry,) = whole(call({"input": "a", **fields}, path=PATH), numbers)["data"]
    assert entry["embedding"] == pytest.approx(numbers)


def test_a_model_whose_name_looks_like_json() -> None:
    settings = Settings(**{**NAMES, "model_name": '"data":[]'}, task="embed")
    (body,) = feed(call({"input": "a"}, settings).reply, (0, events(1)))
    assert json.loads(body)["model"] == '"data":[]'
    assert len(json.loads(body)["data"]) == 1


@each_row(
    ("fields", "embedding"),
    [
        ({"dimensions": 256}, Embedding(dimensions=256)),
        ({"use_activation": False}, Embedding(normalize=False)),
        ({"truncate_prompt_tokens": -1}, Embedding(truncate=True)),
        ({"truncate_prompt_tokens": 1, "truncation_side": "left"}, Embedding(truncate=1, cut="left")),
        ({"dimensions": None, "encoding_format": None, "user": None}, Embedding()),
        ({"embed_dtype": "float32", "endianness": "little", "priority": 0, "request_id": "x"}, Embedding()),
    ],
    ids=str,
)
def test_openai_fields(fields: dict[str, Any], embedding: Embedding) -> None:
    (generation,) = call({"input": "a", **fields}, STRICT, PATH).generations
    assert generation.embedding == embedding
    assert generation.embedding is not None
    assert isinstance(generation.embedding.truncate, bool) is isinstance(embedding.truncate, bool)


@each_row("given", [True, False, None])
def test_special_tokens_may_be_left_out(given: bool | None) -> None:
    (generation,) = call({"input": "a", "add_special_tokens": given}).generations
    assert generation.add_special_tokens is (given is not False)


def test_tgi_compat_is_for_generated_text() -> None:
    settings = Settings(**NAMES, task="embed", tgi_compat=True)
    assert call({"inputs": "a"}, settings).generations[0].embedding == Embedding()


WRONG_INPUT: list[tuple[dict[str, Any], str, str]] = [
    (
        {},
        "input",
        "input: expected a non-empty string, a list of token ids, or a list of either, or a field messages, but there",
    ),
    ({"input": [1, -1]}, "input[1]", "input[1]: expected an integer >= 0, got -1"),
    ({"input": ["a"] * 2049}, "input", "input: expected at most 2048 of them, got 2049"),
    ({"input": "a", "messages": HI}, "messages", "messages: cannot be combined with input"),
    (
        {"messages": HI, "continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
        "continue_final_message: cannot be combined with add_generation_prompt",
    ),
]


@each_row(("body", "param", "message"), WRONG_INPUT, ids=[message for _, _, message in WRONG_INPUT])
def test_wrong_input(body: dict[str, Any], param: str, message: str) -> None:
    """OpenAI's error object, status 400."""
    answer = refused(body, path=PATH)
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].startswith(message)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


# --- Which model does what ---


@each_row(
    ("body", "path"),
    [
        ({"messages": HI}, "/v1/chat/completions"),
        ({"prompt": "hi"}, "/invocations"),
        ({"prompt": "hi", "input": "hi"}, "/v1/completions"),
    ],
    ids=str,
)
def test_a_model_that_embeds_generates_nothing(body: dict[str, Any], path: str) -> None:
    answer = refused(body, path=path)
    error = json.loads(answer.body)["error"]
    assert answer.status == 400
    assert error["message"] == "this model makes embeddings and generates no text: expected a field inputs or input"
    assert error["code"] == "unsupported"


@each_row(("path", "given"), [("/invocations", ["hi"]), (PATH, "hi")])
def test_a_model_that_generates_embeds_nothing(path: str, given: Any) -> None:
    answer = refused({"input": given}, GENERATES, path)
    error = json.loads(answer.body)["error"]
    assert answer.status == 400
    assert (
        error["message"] == "this model generates text and makes no embeddings (option.task=text-embedding is not set)"
    )


def test_a_model_that_generates_refuses_a_list_of_inputs() -> None:
    answer = refused({"inputs": TEXTS}, GENERATES)
    assert answer.status == 424
    assert "inputs: a list of prompts is not supported" in json.loads(answer.body)["error"]


def test_the_dialect_may_be_named() -> None:
    for name in ("lmi", "dynamic"):
        asked = receive(Request(b'{"inputs": "a"}', attributes={"dialect": name}), SETTINGS)
        assert isinstance(asked, ParsedRequest)
        assert asked.generations[0].embedding == Embedding()
    asked = receive(Request(b'{"input": "a"}', attributes={"dialect": "openai"}), SETTINGS)
    assert isinstance(asked, ParsedRequest)


def test_output_formatters_are_for_generated_text(tmp_path: Path) -> None:
    tmp_path.joinpath("mine_of_vectors.py").write_text("def answer(response):\n    return response\n")
    settings = settings_of(
        {"task": "text-embedding", "output_formatter": "mine_of_vectors:answer"}, model_dir=str(tmp_path)
    )
    with pytest.raises(OptionError, match="expected none with"):
        load_extensions(settings)


# --- What goes wrong later ---

FAILURES: list[tuple[LmiError, int]] = [
    (ContextError("inputs[1]: expected a text of 1 to 64 tokens, got 70 tokens", "inputs[1]"), 400),
    (GenerationError("no luck"), 500),
]


@each_row(("error", "status"), FAILURES, ids=str)
def test_one_input_that_fails_ends_the_request(error: LmiError, status: int) -> None:
    expected: list[tuple[Settings, str, int, Any]] = [
        (SETTINGS, "inputs", 424, {"error": error.message, "code": 424}),
        (DYNAMIC, "inputs", 424, {"error": error.message, "code": 424, "message": "invoke handler failure"}),
    ]
    for settings, name, code, body in expected:
        reply = call({name: TEXTS}, settings).reply
        assert feed(reply, (0, events(1))) == []
        (record,) = reply.feed(Failed.of(error), 1)
        assert json.loads(record) == body
        assert (reply.status, reply.finished) == (code, True)
        assert reply.failure is not None
        assert reply.failure.message == error.message
    reply = call({"input": TEXTS}).reply
    (record,) = reply.feed(Failed.of(error), 1)
    assert json.loads(record)["error"]["message"] == error.message
    assert (reply.status, reply.finished) == (status, True)


@each_row("delta", [Delta(0, "", finish=Finish("abort")), Delta(0, "", finish=Finish("eos"))], ids=str)
def test_an_embedding_that_was_cut_off(delta: Delta) -> None:
    reply = call({"inputs": "a"}).reply
    (record,) = reply.feed(delta)
    assert json.loads(record) == {"error": "the vector was cut off before its end", "code": 424}
