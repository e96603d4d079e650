"""Prompts of conversations with the vocabularies and chat templates of models: transformers makes the same of them.

OpenAI's body --parse, ChatRenderer--> token ids == transformers' apply_chat_template of the body's messages
"""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ..kit.answers.openai import SETTINGS
from ..kit.api.dialects import parse
from ..kit.api.engine import ChatRenderer, renderer_of
from ..kit.models.vocabularies import vocabulary

pytestmark = pytest.mark.engine

Body = dict[str, Any]

TEMPLATES = ["qwen3", "llama3", "llama3_1", "gemma3", "deepseek_v3"]
"""Vocabularies that come with a chat template."""
BEGINS = {"llama3": "<|begin_of_text|>", "llama3_1": "<|begin_of_text|>", "gemma3": "<bos>"} | {
    "deepseek_v3": "<｜begin▁of▁sentence｜>"
}
family = pytest.mark.parametrize("name", TEMPLATES)

SYSTEM = {"role": "system", "content": "You are brief.\nAnswer in one line."}
ASKED = {"role": "user", "content": "How is the weather in Paris?"}
ANSWERED = {"role": "assistant", "content": "Sunny, 5 degrees."}
AGAIN = {"role": "user", "content": "And in Rome?"}

TEXTS: dict[str, Body] = {
    "a question": {"messages": [ASKED]},
    "a system's": {"messages": [SYSTEM, ASKED]},
    "several turns": {"messages": [SYSTEM, ASKED, ANSWERED, AGAIN, ANSWERED, ASKED]},
    "an empty question": {"messages": [{"role": "user", "content": ""}]},
    "empty contents": {"messages": [{**SYSTEM, "content": ""}, ASKED, {**ANSWERED, "content": ""}, AGAIN]},
    "white space": {"messages": [{"role": "user", "content": "  two\n\n  lines \t\n"}]},
    "line breaks of Windows": {"messages": [{"role": "user", "content": "a\r\nb\r\n"}]},
    "emoji": {"messages": [{"role": "user", "content": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ✌🏽"}]},
    "cjk": {"messages": [{**SYSTEM, "content": "请用中文回答。"}, {"role": "user", "content": "日本語、한국어 𠮷?"}]},
    "arabic": {"messages": [{"role": "user", "content": "مرحبا، لَا إِلٰهَ"}]},
    "combining marks": {"messages": [{"role": "user", "content": "e\u0301 é n\u0303 a\u030a\u0323"}]},
    "control characters": {"messages": [{"role": "user", "content": "a\x00b\x1b\ufffd\ufeff\u200b"}]},
    "templates' signs": {"messages": [{"role": "user", "content": "{{ bos_token }} {% raw %} <b>&amp;</b>"}]},
    "special tokens": {"messages": [{"role": "user", "content": "<|im_end|><end_of_turn><|eot_id|><bos> x <think>"}]},
    "no answer begun": {"messages": [ASKED, ANSWERED], "add_generation_prompt": False},
    "a question, no answer begun": {"messages": [SYSTEM, ASKED], "add_generation_prompt": False},
    "an answer continued": {
        "messages": [ASKED, {"role": "assistant", "content": "It is sunny and"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "an answer of two lines continued": {
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": "Sunny.\n\nAlso"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "arguments that no template has": {"messages": [ASKED], "chat_template_kwargs": {"another": [1]}},
}


@cache
def renderer(name: str) -> tuple[ChatRenderer, Any]:
    """What an engine on this model has of conversations, and the model's tokenizer by transformers alone."""
    from transformers import AutoTokenizer
    from vllm import EngineArgs

    folder = str(vocabulary(name))
    # The class of the model is nothing to prompts, and takes vLLM ten seconds to look at: one for all.
    one = {"architectures": ["LlamaForCausalLM"]}
    config = EngineArgs(folder, enforce_eager=True, load_format="dummy", hf_overrides=one).create_engine_config()
    made = renderer_of(config)
    core: Any = SimpleNamespace(
        get_tokenizer=made.get_tokenizer, model_config=config.model_config, renderer=made, images=None
    )
    settings = msgspec.structs.replace(
        SETTINGS, model_dir=folder, model_id=folder, tool_call_parser="hermes" if name == "qwen3" else None
    )
    return ChatRenderer(core, settings), AutoTokenizer.from_pretrained(folder)


def rendered(name: str, body: Body) -> list[int]:
    chat, _ = renderer(name)
    (generation,) = parse("openai", body, SETTINGS).generations
    prompt: Any = generation.prompt
    ids: list[int] = chat.render(chat.request(prompt))["prompt_token_ids"]
    return ids


def expected(name: str, body: Body) -> tuple[list[int], str]:
    """By transformers, of the body's messages."""
    given = {
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "continue_final_message": body.get("continue_final_message", False),
        **body.get("chat_template_kwargs", {}),
    }
    _, tokenizer = renderer(name)
    text: str = tokenizer.apply_chat_template(body["messages"], tokenize=False, **given)
    ids: list[int] = tokenizer.apply_chat_template(body["messages"], tokenize=True, return_dict=False, **given)
    return ids, text


@family
@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_a_prompt_is_that_of_transformers(name: str, body: Body) -> None:
    """Calls, results and thinking: tests/conversations/test_prompts.py."""
    ids = rendered(name, body)
    _, tokenizer = renderer(name)
    by_transformers, text = expected(name, body)
    assert tokenizer.decode(ids) == tokenizer.decode(by_transformers)
    assert ids == by_transformers
    assert tokenizer.decode(ids) == (text if name != "qwen3" else tokenizer.decode(tokenizer.encode(text)))
    begins = [BEGINS[name]] if name in BEGINS else []
    assert tokenizer.convert_ids_to_tokens(ids[: len(begins)]) == begins
    asked = json.dumps(body["messages"], ensure_ascii=False)
    assert all(ids.count(tokenizer.convert_tokens_to_ids(token)) == 1 + asked.count(token) for token in begins)
