"""What makes prompts without vLLM's renderer and transformers' tokenizer makes what they make, and is asked for what
it can make only; prompts of real vocabularies are compared in tests/oracles/test_vocabularies.py.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from .....kit.api.engine import PlainChat, TextEncoder, plain_chat, renderer_of
from .....kit.models.vocabularies import vocabulary

pytestmark = pytest.mark.engine

TEXTS = [
    "",
    " a  b\n\n\tc ",
    "e\u0301 \u65e5\u672c \U0001f469\u200d\U0001f467 \ufeff",
    "<|im_end|><|endoftext|> x",
    "a" * 5000,
]
USER = {"role": "user", "content": " Two\nlines "}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
WITH_ARGUMENTS = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1, 2.0, "<&>"]}}}
DESCRIBED: Any = {"type": "function", "function": {"name": "g", "description": "\u00e9", "parameters": WITH_ARGUMENTS}}


@cache
def config_of(name: str) -> Any:
    from vllm import EngineArgs

    one = {"architectures": ["LlamaForCausalLM"]}
    arguments: Any = {"enforce_eager": True, "load_format": "dummy", "hf_overrides": one}
    return EngineArgs(str(vocabulary(name)), **arguments).create_engine_config()


@cache
def rendering(name: str) -> tuple[Any, Any]:
    config = config_of(name)
    return renderer_of(config), config.model_config


def request(*messages: Any, **fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    given: Any = [*(messages or [USER])]
    return ChatCompletionRequest(messages=given, **fields)


def chat_params(asked: Any, template: str | None = None, form: Any = "auto") -> Any:
    shown = {"tools": [tool.model_dump() for tool in asked.tools]} if asked.tools else {}
    return asked.build_chat_params(template, form).with_defaults({"tokenize": False, **shown})


def made(name: str = "qwen3", template: str | None = None, **fields: Any) -> PlainChat | None:
    renderer, model = rendering(name)
    asked = request(**fields)
    return plain_chat(renderer, model, asked, chat_params(asked, template))


@pytest.mark.parametrize("name", ["qwen3", "llama3", "gemma3", "deepseek_v3"])
def test_the_librarys_tokens_are_transformers(name: str) -> None:
    renderer, _ = rendering(name)
    tokenizer = renderer.get_tokenizer()
    encoder = TextEncoder(renderer)
    assert encoder.direct
    for text in TEXTS:
        for special in (False, True):
            prompt = encoder.prompt(text, special=special)
            ids = tokenizer(text, add_special_tokens=special)["input_ids"]
            assert prompt["prompt_token_ids"] == ids, (text, special)
            assert prompt.get("prompt", "") == text


def tokenizer_of(**methods: Any) -> Any:
    """A tokenizer of bytes, cut after four tokens by what its file says, in a class with methods of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = {sign: number for number, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(signs, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.enable_truncation(4)
    core.enable_padding(length=3)
    return type("Made", (PreTrainedTokenizerFast,), methods)(tokenizer_object=core)


def lowered(self: Any, text: Any, **arguments: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.__call__(self, text.lower(), **arguments)


@pytest.mark.parametrize(("methods", "direct"), [({}, True), ({"__call__": lowered}, False)], ids=["", "own"])
def test_a_tokenizer_with_methods_of_its_own_is_asked_itself(methods: Any, direct: bool) -> None:
    tokenizer = tokenizer_of(**methods)
    encoder = TextEncoder(SimpleNamespace(get_tokenizer=lambda: tokenizer))
    assert encoder.direct == direct
    for text in ("A", "LONGER THAN FOUR"):
        ids = encoder.encode(text, special=False)
        assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(text)


TALKS: dict[str, list[dict[str, str]]] = {
    "a question": [USER],
    "a system's": [{"role": "system", "content": ""}, USER],
    "several turns": [USER, {"role": "assistant", "content": "<think>\nx</think>\n\n{{ 1 }}"}, USER],
}


@pytest.mark.parametrize("kind", TALKS)
def test_a_text_is_that_of_vllms_renderer(kind: str) -> None:
    renderer, _ = rendering("qwen3")
    plain = made()
    assert plain is not None
    for begun in (True, False):
        asked = request(*TALKS[kind], add_generation_prompt=begun)
        _, given = renderer.render_messages(TALKS[kind], chat_params(asked))
        assert plain.text(asked) == given["prompt"]


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_a_text_with_tools_is_that_of_vllms_renderer(name: str) -> None:
    renderer, _ = rendering(name)
    plain = made(name, tools=[TOOL])
    assert plain is not None
    for tools in ([TOOL], [DESCRIBED, TOOL]):
        asked = request(*TALKS["a system's"], tools=tools)
        chat = chat_params(asked)
        _, given = renderer.render_messages(asked.messages, chat)

        assert plain.text(asked, chat.chat_template_kwargs["tools"]) == given["prompt"]


THINKING = {"enable_thinking": False}
OTHERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a template of its own": ([], {"chat_template": "{{ 1 }}"}),
    "an answer continued": ([], {"continue_final_message": True, "add_generation_prompt": False}),
    "variables": ([], {"chat_template_kwargs": THINKING}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], {}),
    "a name": ([{**USER, "name": "b"}], {}),
    "another role": ([{"role": "developer", "content": "a"}], {}),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_more_than_texts_is_left_to_vllms_renderer(kind: str) -> None:
    plain = made()
    assert plain is not None
    messages, fields = OTHERS[kind]
    assert plain.text(request(*messages, **fields)) is None


def test_variables_of_the_options_are_those_of_each_request() -> None:
    renderer, _ = rendering("qwen3")
    plain = made(chat_template_kwargs=THINKING)
    assert plain is not None
    asked = request(chat_template_kwargs=THINKING)
    _, given = renderer.render_messages([USER], chat_params(asked))
    assert "<think>\n\n</think>" in given["prompt"]
    assert plain.text(asked) == given["prompt"]
    assert plain.text(request()) is None


REFUSING = "{% if messages|length > 1 %}{{ raise_exception('one at most') }}{% endif %}{{ messages[0].content }}"
PARTS = "{% for one in messages %}{% for part in one.content %}{{ part.text }}{% endfor %}{% endfor %}"


def test_a_template_that_fails_is_left_to_vllms_renderer() -> None:
    plain = made(template=REFUSING)
    assert plain is not None
    assert plain.text(request()) == USER["content"]
    assert plain.text(request(USER, USER)) is None


def test_a_template_that_takes_parts_is_left_to_vllms_renderer() -> None:
    assert made(template=PARTS) is None


def test_another_renderer_makes_its_prompts_itself() -> None:
    _, model = rendering("qwen3")
    asked = request()
    assert plain_chat(SimpleNamespace(), model, asked, chat_params(asked)) is None
