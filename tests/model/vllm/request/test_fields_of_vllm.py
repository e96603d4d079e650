"""The fields of vLLM's requests: what its core is sent for a body is what vLLM's own serving layer would send it.

body --a dialect, Requests--> EngineCoreRequest
body --vLLM's protocol, renderer, InputProcessor--> EngineCoreRequest
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.request.budget import ThinkingBudget

from ....demo.model import question
from ....kit.api.dialects import receive
from ....kit.api.engine import EXTRA_OF_VLLM
from ....kit.api.errors import ParameterError, RequestError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Delta, Event, Generation, ParsedRequest, Request, Sampling, Started
from ....kit.engines import backends
from ....kit.engines.start import Front, front
from ....kit.hosts.host import model_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}{{ (documents or []) | length }}"
)
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
TAGS: dict[str, Any] = {
    "type": "structural_tag",
    "triggers": ["<a"],
    "structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}],
}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Who wrote Hamlet?"}], "max_tokens": 8, "temperature": 0.5,
}  # fmt: skip
TEXT: dict[str, Any] = {"prompt": "Who wrote Hamlet?", "max_tokens": 8, "temperature": 0.5}


@pytest.fixture(scope="module")
def model_dir(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directory(demo_model, tmp_path_factory.mktemp("fields") / "model", {})


@pytest.fixture(scope="module")
def vllms(model_dir: Path) -> Front:
    return front(make_settings(model_dir, request_chat_template="true", reasoning_parser="qwen3"))


def asked(body: dict[str, Any]) -> Generation:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    settings = make_settings(request_chat_template="true", unknown_parameters="error")
    received = receive(Request(json.dumps(body).encode(), path=path), settings)
    assert isinstance(received, ParsedRequest), received.failure
    return received.generations[0]


def ours(vllms: Front, body: dict[str, Any]) -> Any:
    return vllms.requests.prepare(1, asked(body)).requests[0]


def theirs(vllms: Front, body: dict[str, Any]) -> Any:
    """What vLLM's server makes of it (entrypoints/openai/*/serving.py, renderers/online_renderer.py)."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    core = vllms.core
    form = ChatCompletionRequest if "messages" in body else CompletionRequest
    request = form(**body)
    tokenize = request.build_tok_params(core.model_config)
    extras = {"cache_salt": request.cache_salt} if request.cache_salt else {}
    if isinstance(request, ChatCompletionRequest):
        params = request.build_chat_params(None, "auto").with_defaults({"tokenize": False})
        _, (prompt,) = core.renderer.render_chat([request.messages], params, tokenize, prompt_extras=extras)
    else:
        parsed = parse_model_prompt(core.model_config, {"prompt": request.prompt})
        (prompt,) = core.renderer.render_cmpl([parsed], tokenize, prompt_extras=extras)
    return core.request(prompt, request.to_sampling_params(body["max_tokens"], {}), request.priority)


def found(request: Any, place: str) -> Any:
    value = request
    for step in place.split("."):
        value = getattr(value, step)
    return list(value) if isinstance(value, tuple) else value


PARAMS = "sampling_params."
GUIDE = f"{PARAMS}structured_outputs.structural_tag"
BOTH: list[tuple[str, Any, str]] = [
    ("cache_salt", "c2FsdA", "cache_salt"),
    ("allowed_token_ids", [5, 6, 7], f"{PARAMS}allowed_token_ids"),
    ("thinking_token_budget", 7, f"{PARAMS}thinking_token_budget"),
    ("thinking_token_budget", 0, f"{PARAMS}thinking_token_budget"),
    ("thinking_token_budget", -1, f"{PARAMS}thinking_token_budget"),
    ("vllm_xargs", {"a": 1, "b": "x", "c": [0.5, 2, "y", True], "d": False}, f"{PARAMS}extra_args"),
    ("logit_bias", {"5": 1.5}, f"{PARAMS}logit_bias"),
    ("bad_words", ["ship"], f"{PARAMS}bad_words_token_ids"),
    ("structured_outputs", {"structural_tag": json.dumps(TAG)}, GUIDE),
    ("response_format", TAG, GUIDE),
    ("response_format", TAGS, GUIDE),
]
"""The field, its value, and where it must arrive in an EngineCoreRequest."""
CHATS = [
    ("truncate_prompt_tokens", 4, "prompt_token_ids"),
    ("truncate_prompt_tokens", -1, "prompt_token_ids"),
    ("chat_template", TEMPLATE, "prompt_token_ids"),
    ("documents", [{"title": "a", "text": "b"}], "prompt_token_ids"),
    ("add_special_tokens", True, "prompt_token_ids"),
]
TEXTS = [("add_special_tokens", False, "prompt_token_ids")]
CASES = [
    *((CHAT, field, value, place) for field, value, place in (*BOTH, *CHATS)),
    *((TEXT, field, value, place) for field, value, place in (*BOTH, *TEXTS)),
]


@each_row(("base", "field", "value", "place"), CASES)
def test_it_arrives_as_from_vllms_server(
    vllms: Front, base: dict[str, Any], field: str, value: Any, place: str
) -> None:
    body = {**base, field: value}
    made, expected = found(ours(vllms, body), place), found(theirs(vllms, body), place)
    if place == GUIDE:
        made, expected = json.loads(made), json.loads(expected)
    assert made == expected


@each_row("side", ["left", "right"])
@each_row("base", [CHAT, TEXT], ids=["chat", "text"])
@each_row("keep", [1, 4, 10_000])
def test_a_prompt_is_cut_at_either_end(vllms: Front, base: dict[str, Any], side: str, keep: int) -> None:
    whole = ours(vllms, base).prompt_token_ids
    body = {**base, "truncate_prompt_tokens": keep, "truncation_side": side}
    made = ours(vllms, body).prompt_token_ids
    assert made == (whole[:keep] if side == "right" else whole[-keep:])
    if keep < vllms.core.model_config.max_model_len:
        assert made == theirs(vllms, body).prompt_token_ids


@pytest.mark.parametrize("side", ["left", "right"])
def test_token_ids_are_cut_at_either_end(vllms: Front, side: str) -> None:
    body = {**TEXT, "prompt": [5, 6, 7, 8], "truncate_prompt_tokens": 3, "truncation_side": side}
    assert ours(vllms, body).prompt_token_ids == ([5, 6, 7] if side == "right" else [6, 7, 8])


def test_a_long_prompt_is_cut_before_it_is_tokenized(vllms: Front) -> None:
    body = {**TEXT, "prompt": "Who wrote Hamlet? " + "word " * 200_000, "truncate_prompt_tokens": 4}
    made = ours(vllms, {**body, "truncation_side": "right"}).prompt_token_ids
    assert made == ours(vllms, TEXT).prompt_token_ids[:4]


def test_a_template_decides_on_the_roles_of_its_request(vllms: Front) -> None:
    """Where a late word of the system's stays is by what the request's own template takes, not the model's."""
    said = (("user", "Hi"), ("system", "Be brief."), ("user", "Well?"))
    messages = [{"role": role, "content": content} for role, content in said]

    def prompt(template: str) -> str:
        made = ours(vllms, {**CHAT, "messages": messages, "chat_template": template})
        return str(vllms.core.get_tokenizer().decode(made.prompt_token_ids))

    assert prompt(TEMPLATE).startswith("<user>Hi<system>Be brief.<user>Well?")
    strict = "{% if messages[1:] | selectattr('role', 'eq', 'system') | list %}{{ raise_exception('late') }}{% endif %}"
    assert prompt(strict + TEMPLATE).startswith("<system>Be brief.<user>Hi\nWell?")


REFUSED: list[tuple[dict[str, Any], type[RequestError], str]] = [
    ({"chat_template": "{% for"}, ParameterError, "prompt.chat_template: "),
    ({"chat_template": "{{ raise_exception('no') }}"}, ParameterError, "prompt.chat_template: "),
    ({"chat_template": "{{ ''.__class__.__mro__ }}"}, ParameterError, "prompt.chat_template: "),
    ({"chat_template": "{% for i in range(10**9) %}{% endfor %}"}, ParameterError, "prompt.chat_template: "),
    ({"allowed_token_ids": [100_000]}, ParameterError, "sampling.allowed_token_ids: "),
    ({"allowed_token_ids": [0], "stop_token_ids": [0], "min_tokens": 2}, ParameterError, "sampling.allowed_token_ids"),
    ({"vllm_xargs": {"kv_transfer_params": "a"}}, UnsupportedError, "sampling.extra_args.kv_transfer_params: "),
    ({"vllm_xargs": {"ec_transfer_params": 1}}, UnsupportedError, "sampling.extra_args.ec_transfer_params: "),
    ({"vllm_xargs": {"lmi_typical_p": "a"}}, UnsupportedError, "sampling.extra_args.lmi_typical_p: "),
    *(({"structured_outputs": {"structural_tag": {"format": tag}}}, ParameterError, "sampling.structured_output: ")
      for tag in (
          {"type": "nothing"},
          {"type": "star", "content": {"type": "regex", "pattern": "a*"}},
          {"type": "token", "token": 5},
          {"type": "any_text", "max_tokens": 5},
          {"type": "regex", "pattern": "((a{1,100}){1,100}){1,100}"},
          {"type": "regex", "pattern": "("},
          {"type": "json_schema", "json_schema": {"items": {"pattern": "((a{99}){99}){99}"}}},
          {"type": "tag", "begin": "<a>", "content": {"type": "grammar", "grammar": "root ::= ("}, "end": "</a>"},
      )),
]  # fmt: skip


@each_row(("fields", "kind", "message"), REFUSED)
def test_it_is_refused_before_it_is_sent(
    vllms: Front, fields: dict[str, Any], kind: type[RequestError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        ours(vllms, {**CHAT, **fields})
    assert caught.value.message.startswith(message)


# --- Budgets of reasoning ---


def test_a_budget_is_refused_where_vllm_does_not_know_reasoning(model_dir: Path) -> None:
    """By name; vLLM's own error names no field."""
    plain = front(make_settings(model_dir))
    with pytest.raises(UnsupportedError, match=r"^sampling\.thinking_token_budget: .*option\.reasoning_parser"):
        ours(plain, {**CHAT, "thinking_token_budget": 5})
    assert ours(plain, {**CHAT, "thinking_token_budget": -1}).sampling_params.thinking_token_budget is None


def test_a_budget_is_refused_where_the_model_runner_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = SimpleNamespace(reasoning_config=SimpleNamespace(enabled=True), use_v2_model_runner=True)
    monkeypatch.setattr("lmi.model.vllm.request.budget.v2_takes_budgets", lambda: False)
    with pytest.raises(UnsupportedError, match="model runner V2"):
        ThinkingBudget(config).check(Sampling(thinking_token_budget=0))
    ThinkingBudget(config).check(Sampling())
    monkeypatch.setattr("lmi.model.vllm.request.budget.v2_takes_budgets", lambda: True)
    ThinkingBudget(config).check(Sampling(thinking_token_budget=0))


# --- What becomes of it ---


@pytest.fixture
def backend(chat_backend: Any) -> Any:
    return chat_backend


def run(backend: Any, **body: Any) -> tuple[Started, str, Any]:
    """What is told of the prompt, the text, and the last Delta."""
    (events,) = backends.run(backend, asked({"temperature": 0, "max_tokens": 200, **body}))
    seen: list[Event] = events
    (started,) = [event for event in seen if isinstance(event, Started)]
    deltas = [event for event in seen if isinstance(event, Delta)]
    return started, "".join(delta.text for delta in deltas), deltas[-1]


def test_only_allowed_tokens_come(backend: Any) -> None:
    _, _, last = run(backend, prompt="Hi", max_tokens=5, allowed_token_ids=[300], return_token_ids=True)
    assert [token.id for token in last.tokens] == [300] * 5


def test_the_prompts_ids_are_told_where_they_are_asked_for(backend: Any) -> None:
    started, _, _ = run(backend, prompt=[5, 6, 7], max_tokens=1, return_token_ids=True)
    assert started.prompt_ids == (5, 6, 7)
    assert run(backend, prompt=[5, 6, 7], max_tokens=1)[0].prompt_ids == ()


def test_a_salt_keeps_caches_apart(backend: Any) -> None:
    prompt = [7, *range(20, 180)]

    def cached(**fields: Any) -> bool:
        return run(backend, prompt=prompt, max_tokens=1, **fields)[0].cached_tokens > 0

    assert [cached(), cached()] == [False, True]
    assert [cached(cache_salt="a"), cached(cache_salt="a")] == [False, True]
    assert [cached(cache_salt="b"), cached()] == [False, True]


def test_a_text_fits_its_structural_tag(backend: Any) -> None:
    form = {"type": "sequence", "elements": [
        {"type": "const_string", "value": "It is "}, {"type": "or", "elements": [
            {"type": "regex", "pattern": "[0-9]{3}"}, {"type": "const_string", "value": "so."}]}]}  # fmt: skip
    _, text, _ = run(backend, prompt="Hi", structured_outputs={"structural_tag": {"format": form}})
    assert text.startswith("It is ")
    assert text[6:] == "so." or (len(text) == 9 and text[6:].isdigit())


def test_reasoning_ends_with_its_budget(backend: Any) -> None:
    messages = [{"role": "user", "content": question("reasoning").prompt}]
    usual = run(backend, messages=messages)[2].finish
    assert usual.reasoning_tokens > 8
    short = run(backend, messages=messages, thinking_token_budget=4)[2].finish
    assert short.reasoning_tokens < usual.reasoning_tokens
    assert short.reasoning_tokens <= 8


def test_names_of_extra_arguments_that_vllms_core_reads_are_refused() -> None:
    """A new version may read another one: a client could tell the scheduler what to do."""
    import vllm

    places = [path for room in ("v1", "distributed") for path in (Path(vllm.__file__).parent / room).rglob("*.py")]
    read = r"extra_args\s*(?:\.get\(|\[)\s*[\"'](\w+)[\"']"
    names = {name for path in places for name in re.findall(read, path.read_text("utf-8"))}
    assert names <= {*EXTRA_OF_VLLM}
    assert "kv_transfer_params" in names
