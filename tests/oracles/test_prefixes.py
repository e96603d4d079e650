"""From turn to turn an agent's prompt only grows: what was computed for one is there for the next (prefix caching).

The history that a client sends back is made of our answers, in its dialect's form; the model's own template, with its
own vocabulary, makes the prompts, in vLLM's renderer; and vLLM's parsers read what a model would have generated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ..kit.answers.events import end, feed
from ..kit.api.dialects import parse
from ..kit.api.engine import ChatRenderer, Splitter, renderer_of, split, split_whole
from ..kit.api.options import typed_settings
from ..kit.api.types import Conversation, Delta, Started, Token
from ..kit.models.vocabularies import vocabulary

pytestmark = [pytest.mark.engine, pytest.mark.once]

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
LOOK = {"name": "look", "description": "Looks at a place", "parameters": SCHEMA}
SYSTEM, ASKED = "You are an agent. Be brief.", "What is at the places 0 to 9?"
SETTINGS = typed_settings(model_name="served", tool_call_parser="hermes", reasoning_parser="qwen3")
TURNS = 10


def generated(turn: int) -> str:
    """What the model writes in a turn: some turns without a text, one with two calls."""
    text = "" if turn % 3 == 2 else f"I look at {turn}.\n"
    calls = [turn, turn + 100] if turn == 4 else [turn]
    written = [f'<tool_call>\n{{"name": "look", "arguments": {{"at": {at}}}}}\n</tool_call>' for at in calls]
    return f"<think>\nPlace {turn} is next.\n</think>\n\n{text}" + "\n".join(written) + "<|im_end|>"


# --- Clients, by their dialects: what they send first, and after an answer with the results of its calls ---

Body = dict[str, Any]
Results = dict[str, str]


def chat(answer: Body | None, results: Results) -> list[Any]:
    if answer is None:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}]
    message = answer["choices"][0]["message"]
    return [message, *({"role": "tool", "tool_call_id": key, "content": text} for key, text in results.items())]


def anthropic(answer: Body | None, results: Results) -> list[Any]:
    if answer is None:
        return [{"role": "user", "content": ASKED}]
    told = [{"type": "tool_result", "tool_use_id": key, "content": text} for key, text in results.items()]
    return [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": told}]


def responses(answer: Body | None, results: Results) -> list[Any]:
    if answer is None:
        return [{"role": "user", "content": ASKED}]
    told = [{"type": "function_call_output", "call_id": key, "output": text} for key, text in results.items()]
    return [*answer["output"], *told]


OPENAI = {"tools": [{"type": "function", "function": LOOK}]}
ANTHROPIC = {
    "max_tokens": 99,
    "system": SYSTEM,
    "tools": [{"name": "look", "description": LOOK["description"], "input_schema": SCHEMA}],
}
RESPONSES = {"instructions": SYSTEM, "tools": [{"type": "function", **LOOK}]}
OMITTED = {"thinking": {"type": "adaptive", "display": "omitted"}}
CARRIED = {"include": ["reasoning.encrypted_content"], "store": False}

Client = tuple[str, str, Callable[[Body | None, Results], list[Any]], Body]
CLIENTS: dict[str, Client] = {
    "chat": ("openai", "messages", chat, OPENAI),
    "azure": ("azure", "messages", chat, OPENAI),
    "anthropic": ("anthropic", "messages", anthropic, ANTHROPIC),
    "anthropic, thinking omitted": ("anthropic", "messages", anthropic, ANTHROPIC | OMITTED),
    "responses": ("responses", "input", responses, RESPONSES),
    "responses, reasoning carried": ("responses", "input", responses, RESPONSES | CARRIED),
}


@pytest.fixture(scope="module")
def rendering() -> tuple[ChatRenderer, Any]:
    """What makes prompts of conversations, and the model's tokenizer."""
    from vllm import EngineArgs

    folder = str(vocabulary("qwen3"))
    config = EngineArgs(model=folder, enforce_eager=True, load_format="dummy").create_engine_config()
    made = renderer_of(config)
    core: Any = SimpleNamespace(
        get_tokenizer=made.get_tokenizer,
        model_config=config.model_config,
        renderer=made,
        images=None,
        end_ids=frozenset[int],
    )
    settings = msgspec.structs.replace(SETTINGS, model_dir=folder, model_id=folder)
    return ChatRenderer(core, settings), made.get_tokenizer()


def calls_of(answer: Body) -> list[str]:
    """The ids of the calls of an answer, in whichever dialect."""
    if "choices" in answer:
        return [call["id"] for call in answer["choices"][0]["message"]["tool_calls"]]
    blocks = answer["content"] if "content" in answer else answer["output"]
    return [one.get("call_id") or one["id"] for one in blocks if one["type"] in ("tool_use", "function_call")]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_begins_with_the_one_before_it_and_its_answer(
    client: str, rendering: tuple[ChatRenderer, Any], *, streamed: bool
) -> None:
    dialect, field, sends, more = CLIENTS[client]
    renderer, tokenizer = rendering
    history, seen = sends(None, {}), list[int]()
    for turn in range(TURNS):
        made = parse(dialect, {field: history, **more}, SETTINGS)
        prompt = made.generations[0].prompt
        assert isinstance(prompt, Conversation)
        request = renderer.request(prompt)
        ids: list[int] = renderer.render(request)["prompt_token_ids"]
        assert tokenizer.decode(ids[: len(seen)]) == tokenizer.decode(seen)
        assert ids[: len(seen)] == seen
        written = tokenizer.encode(generated(turn), add_special_tokens=False)
        text = generated(turn).removesuffix("<|im_end|>")
        splitter = renderer.splitter(prompt, request, ids)
        if streamed:
            tokens = tuple(Token(token, tokenizer.decode([token])) for token in written[:-1])
            delta = split(splitter, Delta(0, text, tokens, end()), shown=True)
        else:
            assert isinstance(splitter, Splitter)
            delta = split_whole(splitter, Delta(0, text, finish=end()), written)
        answer = json.loads(feed(made.reply, Started(len(ids)), delta)[-1])
        assert "think>" not in json.dumps(answer)
        results = {key: f"At {key} there is a tree." for key in calls_of(answer)}
        assert results
        # Clients run calls at once: the last may be done first.
        history += sends(answer, dict(reversed(results.items())))
        seen = ids + written
    assert len(seen) > 800
