"""What an engine finds wrong with a request, as its client reads it: each fault, and each place in a body that has it.

What a path of a Generation is called in each dialect: tests/formatters/test_client_fields.py.

body --the dialect--> Generation --vLLM's front, pooling backends, the images' threads--> error --the dialect--> words

No engine is started: what tokenizes and checks is in front of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ....kit.api.engine import RequestPreparer
from ....kit.api.errors import LmiError
from ....kit.api.handler import Service
from ....kit.api.options import MediaRules, make_settings
from ....kit.api.types import EngineInfo, Failed, Generation, Request, Settings
from ....kit.engines.spoken_for import engine_spoken_for
from ....kit.engines.start import front
from ....kit.hosts.host import model_directory
from ....kit.models import vision
from ....kit.models.embedding import build_sentence_bert
from ....kit.models.pictures import png
from ....kit.models.scoring import build_causal, build_cross_encoder
from ....kit.rows import each_row
from ....kit.user_code.engine import ScriptedEngine

pytestmark = pytest.mark.engine

TEMPLATE = (
    "{% for message in messages %}{% if 'volcano' in message.content | string %}{{ raise_exception('no volcanoes') }}"
    "{% endif %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
)


class PreparingEngine(ScriptedEngine):
    """Prepares what it is given, and says what was wrong with it."""

    def __init__(self, backend: Any, images: int = 0) -> None:
        super().__init__()
        shape: Any = SimpleNamespace(
            info=EngineInfo(engine="vllm", version="0", context=256, images=images),
            prepare=backend.prepare,
            tokenize=backend.tokenize if hasattr(backend, "tokenize") else backend.prompt_ids,
            prompt_text=lambda prepared: "",
        )
        self._ended: dict[int, threading.Event] = {}
        self._errors: dict[int, BaseException | None] = {}
        self._preparer = RequestPreparer(shape, MediaRules(max_bytes=1 << 20), 0.0, self._take, self._take, self._end)

    def _take(self, number: int, *_: Any) -> None:
        self._end(number, None)

    def _end(self, number: int, error: BaseException | None) -> None:
        self._errors[number] = error
        self._ended[number].set()

    def submit(self, generation: Generation, sink: Any) -> int:
        ticket = super().submit(generation, sink)
        self._ended[ticket] = threading.Event()
        self._preparer.take(ticket, generation)
        assert self._ended[ticket].wait(60)
        error = self._errors[ticket]
        if error is not None:
            assert isinstance(error, LmiError), error
            self.say(ticket, Failed.of(error))
        return ticket


@pytest.fixture(scope="module")
def fronts(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """Services on vLLM's front, or on a pooling backend, by kind."""
    folder = tmp_path_factory.mktemp("named")
    made: dict[str, Service] = {}

    def settings(name: str, source: Path, **options: str) -> Settings:
        return make_settings(model_directory(source, folder / name, {}), **options)

    text = settings("text", demo_model, max_model_len="256", chat_template=TEMPLATE, max_logprobs="5")
    requests = front(text).requests
    made["text"] = Service(text, PreparingEngine(requests))
    made["images"] = Service(text, PreparingEngine(requests, images=2))
    sighted = settings("sighted", vision.build(folder / "vision", demo_model), limit_mm_per_prompt='{"image": 3}')
    made["sighted"] = Service(sighted, PreparingEngine(front(sighted).requests, images=3))
    started: list[Any] = []
    kinds = {
        "embeds": (build_sentence_bert(folder / "bert"), "text-embedding"),
        "ranks": (build_cross_encoder(folder / "ranker"), "text-ranking"),
        "ranks by a prompt": (build_causal(folder / "qwen3", "qwen3"), "text-ranking"),
        "classifies": (build_cross_encoder(folder / "classes", ("bad", "good")), "text-classification"),
    }
    for name, (source, task) in kinds.items():
        more = {"reranker": "qwen3"} if name == "ranks by a prompt" else {}
        made_settings = settings(name, source, task=task, max_model_len="", **more)
        backend, _ = engine_spoken_for(made_settings, "embed" if name == "embeds" else "classify")
        started.append(backend)
        made[name] = Service(made_settings, PreparingEngine(backend))
    for service in made.values():
        service.start()
    yield made
    for backend in started:
        backend.close()


# --- Requests: where each dialect's go, and the least that they have ---

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
AZURE = {"query": {"api-version": "2024-05-01-preview"}, "headers": {"extra-parameters": "pass-through"}}
FORMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "openai chat": ("/v1/chat/completions", {}, CHAT),
    "openai text": ("/v1/completions", {}, {"prompt": "Hello"}),
    "openai embeddings": ("/v1/embeddings", {}, {"input": "Hello"}),
    "responses": ("/v1/responses", {}, {"input": "Hello"}),
    "anthropic": ("/v1/messages", {}, {**CHAT, "max_tokens": 8}),
    "anthropic count": ("/v1/messages/count_tokens", {}, CHAT),
    "azure": ("/chat/completions", AZURE, CHAT),
    "lmi": ("/invocations", {"attributes": {"dialect": "lmi"}}, {"inputs": "Hello"}),
    "tgi": ("/generate", {}, {"inputs": "Hello"}),
    "rerank": ("/rerank", {}, {"query": "what?", "documents": ["a", "b"]}),
    "score": ("/score", {}, {"text_1": "what?", "text_2": ["a", "b"]}),
    "classify": ("/classify", {}, {"input": "a"}),
    "predict": ("/predict", {}, {"inputs": "a"}),
    "tokenize": ("/tokenize", {}, {"prompt": "a"}),
    "detokenize": ("/detokenize", {}, {"tokens": [1]}),
}

LONG = "word and " * 600
SAID = {"role": "user", "content": LONG}
ERUPTION = "a volcano"
BAD: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
GOOD: dict[str, Any] = {"type": "object", "properties": {}}


def function(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "parameters": schema}


def tool(name: str, schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": function(name, schema)}


NO_IMAGE = "data:image/png;base64,aGVsbG8="
OPENAIS_IMAGE = {"type": "image_url", "image_url": {"url": NO_IMAGE}}
SHORT_IMAGE = {"type": "image_url", "image_url": NO_IMAGE}
AZURES_IMAGE = {"type": "image", "content": NO_IMAGE}
RESPONSES_IMAGE = {"type": "input_image", "image_url": NO_IMAGE}
ANTHROPICS_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
ANTHROPICS_URL = {"type": "image", "source": {"type": "url", "url": NO_IMAGE}}


def saying(*content: Any) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": [*content]},
        ]
    }


TEXT = {"type": "text", "text": "a"}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [TEXT, ANTHROPICS_IMAGE]}
CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}


def items(*content: Any) -> dict[str, Any]:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"role": "assistant", "content": "Hi"}
    return {"input": [{"role": "user", "content": "Hi"}, reasoning, said, {"role": "user", "content": [*content]}]}


def schema_of(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


def given(form: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields where a form has them."""
    return {"parameters": fields} if form in ("lmi", "tgi") else fields


def field(form: str, name: str) -> str:
    return f"parameters.{name}" if form in ("lmi", "tgi") else name


Case = tuple[str, str, dict[str, Any], str]
"""The kind of engine, the form, fields over the form's, and the client's name of the field that is at fault."""

CASES: list[Case] = [
    # The prompt is too long.
    ("text", "openai chat", {"messages": [SAID]}, "messages"),
    ("text", "openai text", {"prompt": ["a", LONG]}, "prompt[1]"),
    ("embeds", "openai embeddings", {"input": ["a", LONG]}, "input[1]"),
    ("embeds", "rerank", {"query": LONG}, "query"),
    ("embeds", "rerank", {"documents": ["a", LONG]}, "documents[1]"),
    ("embeds", "score", {"text_2": LONG}, "text_2"),
    ("ranks", "rerank", {"query": LONG}, "query"),
    ("ranks", "rerank", {"documents": ["a", LONG]}, "query"),
    ("ranks by a prompt", "rerank", {"documents": ["a", LONG * 40]}, "documents[1]"),
    ("ranks by a prompt", "score", {"text_1": ["a", LONG * 40]}, "text_1[1]"),
    ("classifies", "classify", {"input": ["a", LONG]}, "input[1]"),
    ("classifies", "predict", {"inputs": [["a"], [LONG]]}, "inputs[1]"),
    # It is none, or has tokens that there are not.
    ("text", "openai text", {"prompt": "", "add_special_tokens": False}, "prompt"),
    ("text", "openai text", {"prompt": [5, 99999]}, "prompt"),
    ("text", "detokenize", {"tokens": [5, 99999]}, "tokens"),
    ("embeds", "openai embeddings", {"input": [[5], [99999]]}, "input[1]"),
    ("embeds", "detokenize", {"tokens": [99999]}, "tokens"),
    ("embeds", "tokenize", {"prompt": None, **CHAT}, "messages"),
    ("classifies", "classify", {"input": [[5], [99999]]}, "input[1]"),
    # The template refuses it.
    ("text", "openai chat", {"messages": [{"role": "user", "content": ERUPTION}]}, "messages"),
    ("text", "anthropic count", {"messages": [{"role": "user", "content": ERUPTION}]}, "messages"),
    ("text", "tokenize", {"prompt": None, "messages": [{"role": "user", "content": ERUPTION}]}, "messages"),
    ("ranks by a prompt", "rerank", {"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
    ("ranks", "rerank", {"instruction": "x"}, "instruction"),
    ("ranks", "rerank", {"chat_template_kwargs": {"tone": "x"}}, "chat_template_kwargs.tone"),
    # More tokens than there is room for.
    ("text", "openai chat", {"max_tokens": 5000}, "max_tokens"),
    ("text", "tgi", {"parameters": {"max_new_tokens": 5000}}, "parameters.max_new_tokens"),
    # What this engine does not do, or nobody may ask for.
    *(
        ("text", form, given(form, {name: value}), field(form, name) + rest)
        for form in ("openai chat", "lmi")
        for name, value, rest in (
            ("thinking_token_budget", 5, ""),
            ("allowed_token_ids", [99999], ""),
            ("vllm_xargs", {"kv_transfer_params": 1}, ".kv_transfer_params"),
        )
    ),
    ("text", "anthropic", {"vllm_xargs": {"ec_transfer_params": 1}}, "vllm_xargs.ec_transfer_params"),
    # Tokens and words of sampling.
    ("text", "openai chat", {"stop_token_ids": [99999]}, "stop_token_ids"),
    ("text", "openai text", {"bad_words": [" "]}, "bad_words"),
    ("text", "lmi", {"parameters": {"bad_sequences": [" "]}}, "parameters.bad_sequences"),
    ("text", "lmi", {"parameters": {"bad_words": [" "]}}, "parameters.bad_words"),
    ("text", "openai chat", {"logit_bias": {"99999": 1}}, "logit_bias"),
    # Log-probabilities.
    ("text", "openai chat", {"logprobs": True, "top_logprobs": 9}, "top_logprobs"),
    ("text", "responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 9}, "top_logprobs"),
    ("text", "openai text", {"logprobs": 9, "echo": True, "max_tokens": 0}, "logprobs"),
    ("text", "openai chat", {"prompt_logprobs": 9}, "prompt_logprobs"),
    ("text", "lmi", {"parameters": {"logprobs": 9, "details": True}}, "parameters.logprobs"),
    ("text", "lmi", {"parameters": {"top_n_tokens": 9, "details": True}}, "parameters.top_n_tokens"),
    # What this engine does not do.
    ("text", "lmi", {"parameters": {"typical_p": 0.5, "do_sample": True}}, "parameters.typical_p"),
    # What the text is to conform to.
    ("text", "openai chat", schema_of(BAD), "response_format.json_schema.schema"),
    ("text", "openai chat", {"response_format": {"type": "json_object", "schema": BAD}}, "response_format.schema"),
    ("text", "openai chat", {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ("text", "openai text", {"guided_grammar": "root ::= ("}, "guided_grammar"),
    (
        "text",
        "responses",
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": BAD}}},
        "text.format.schema",
    ),
    (
        "text",
        "anthropic",
        {"output_config": {"format": {"type": "json_schema", "schema": BAD}}},
        "output_config.format.schema",
    ),
    ("text", "anthropic", {"output_format": {"type": "json_schema", "schema": BAD}}, "output_format.schema"),
    ("text", "tgi", {"parameters": {"grammar": {"type": "regex", "value": "("}}}, "parameters.grammar"),
    ("text", "tgi", {"parameters": {"grammar": {"type": "json", "value": BAD}}}, "parameters.grammar"),
    # Tools.
    (
        "text",
        "openai chat",
        {"tools": [tool("good", GOOD), tool("bad", BAD)], "tool_choice": "required"},
        "tools[1].function.parameters",
    ),
    (
        "text",
        "openai chat",
        {"functions": [function("good", GOOD), function("bad", BAD)], "function_call": {"name": "bad"}},
        "functions[1].parameters",
    ),
    (
        "text",
        "openai chat",
        {
            "tools": [tool("good", GOOD), tool("bad", BAD)],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "bad"}}]},
            },
        },
        "tools[1].function.parameters",
    ),
    (
        "text",
        "anthropic",
        {
            "tools": [{"name": "good", "input_schema": GOOD}, {"name": "bad", "input_schema": BAD}],
            "tool_choice": {"type": "any"},
        },
        "tools[1].input_schema",
    ),
    (
        "text",
        "responses",
        {"tools": [{"type": "web_search"}, {"type": "function", **function("bad", BAD)}], "tool_choice": "required"},
        "tools[1].parameters",
    ),
    (
        "text",
        "responses",
        {
            "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", **function("bad", BAD)}]}],
            "tool_choice": "required",
        },
        "tools[0].tools[0].parameters",
    ),
    ("text", "openai chat", {"tools": [tool("good", GOOD)]}, "tool_choice"),
    # Images, of a model that takes none.
    ("text", "openai chat", saying(TEXT, OPENAIS_IMAGE), "messages[2].content[1].type"),
    ("text", "azure", saying(TEXT, AZURES_IMAGE), "messages[2].content[1].type"),
    ("text", "anthropic", {"system": "s", **saying(TEXT, ANTHROPICS_IMAGE)}, "messages[2].content[1].type"),
    ("text", "responses", items({"type": "input_text", "text": "a"}, RESPONSES_IMAGE), "input[3].content[1].type"),
    # Images that are none.
    ("images", "openai chat", saying(TEXT, OPENAIS_IMAGE), "messages[2].content[1].image_url.url"),
    ("images", "openai chat", saying(TEXT, SHORT_IMAGE), "messages[2].content[1].image_url"),
    ("images", "azure", saying(TEXT, AZURES_IMAGE), "messages[2].content[1].content"),
    ("images", "anthropic", {"system": "s", **saying(TEXT, ANTHROPICS_IMAGE)}, "messages[2].content[1].source.data"),
    ("images", "anthropic", saying(TEXT, ANTHROPICS_URL), "messages[2].content[1].source.url"),
    (
        "images",
        "anthropic",
        {"messages": [*CHAT["messages"], CALLED, {"role": "user", "content": [RESULT]}]},
        "messages[2].content[0].content[1].source.data",
    ),
    (
        "images",
        "responses",
        items({"type": "input_text", "text": "a"}, RESPONSES_IMAGE),
        "input[3].content[1].image_url",
    ),
    # Too many.
    ("images", "openai chat", saying(*[OPENAIS_IMAGE] * 3), "messages[2].content[2]"),
    # Images and a prompt that is to be cut.
    (
        "sighted",
        "openai chat",
        {**saying(TEXT, {"type": "image_url", "image_url": {"url": "PICTURE"}}), "truncate_prompt_tokens": 3},
        "truncate_prompt_tokens",
    ),
    # Vectors.
    ("embeds", "openai embeddings", {"dimensions": 9999}, "dimensions"),
    ("embeds", "lmi", {"parameters": {"dimensions": 9999}}, "parameters.dimensions"),
    ("embeds", "lmi", {"dimensions": 9999}, "dimensions"),
]


def answer(service: Service, form: str, fields: dict[str, Any]) -> tuple[LmiError | None, bytes]:
    """What becomes of a request, which the dialect itself finds no fault with."""
    import base64

    path, more, least = FORMS[form]
    given = {name: value for name, value in {**least, **fields}.items() if value is not None}
    picture = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    body = json.dumps(given).replace("PICTURE", picture).encode()
    opened = service.open(Request(body, path=path, request_id="7", **more))
    return opened.failure, opened.take_all()


@each_row("case", CASES, ids=lambda case: f"{case[1]}, {case[0]}: {case[3]}")
def test_an_error_names_the_clients_own_field(fronts: dict[str, Service], case: Case) -> None:
    kind, form, fields, field = case
    failure, body = answer(fronts[kind], form, fields)
    assert failure is not None
    assert failure.message.startswith(f"{field}: ")
    assert failure.param == field
    assert json.dumps(failure.message)[1:-1].encode() in body or failure.message.encode() in body
