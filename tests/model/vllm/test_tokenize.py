"""A prompt's tokens without a generation: what a generation counts, whatever the task and the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ...demo.model import question
from ...kit.api.errors import ParameterError, UnsupportedError
from ...kit.api.types import Conversation, Embedding, Generation, Prompt, Sampling, Started, Token
from ...kit.engines.backends import PICK, run
from ...kit.engines.pool import BackendPool
from ...kit.hosts.pool import CHAT

pytestmark = pytest.mark.engine

TEXT = question("unicode").prompt
MESSAGES: Any = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT})
TALKS = {
    "chat": Conversation(messages=MESSAGES),
    "tools": Conversation(messages=MESSAGES, tools=(PICK,), tool_choice="auto"),
    "forced": Conversation(messages=MESSAGES, tools=(PICK,), function="pick"),
    "prefix": Conversation(messages=MESSAGES, add_generation_prompt=False, add_special_tokens=True),
}
PROMPTS: dict[str, Prompt] = {"text": TEXT, "ids": (5, 9, 12), **TALKS}
ENGINES: dict[str, Mapping[str, str]] = {
    "vllm": CHAT,
    "embedding": {"option.task": "text-embedding"},
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, backends: BackendPool) -> tuple[str, Any]:
    return request.param, backends.get(ENGINES[request.param])


def told(backend: Any, prompt: Prompt, **fields: Any) -> Started:
    started = backend.tokenize(Generation(request_id="t", prompt=prompt, tokenize=True, **fields))
    assert isinstance(started, Started)
    return started


def generated(backend: Any, name: str, prompt: Prompt) -> Started:
    """What a generation says of its prompt."""
    kind: dict[str, Any] = {"embedding": Embedding()} if name == "embedding" else {"sampling": Sampling(max_tokens=1)}
    ((started, *_),) = run(backend, Generation(request_id="t", prompt=prompt, **kind))
    assert isinstance(started, Started)
    return started


@pytest.mark.parametrize("kind", PROMPTS)
def test_it_counts_what_a_generation_counts(engine: tuple[str, Any], kind: str) -> None:
    name, backend = engine
    prompt = PROMPTS[kind]
    if isinstance(prompt, Conversation) and name == "embedding":
        with pytest.raises(UnsupportedError, match="prompt: this model makes emb"):
            told(backend, prompt)
        return
    started = told(backend, prompt)
    assert started == Started(generated(backend, name, prompt).prompt_tokens, context=backend.info.context)
    assert not backend.busy


def test_each_token_has_its_name_in_the_vocabulary(engine: tuple[str, Any], demo_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(demo_model)
    _, backend = engine
    ids = tokenizer.encode(TEXT)
    special = {*tokenizer.all_special_ids}
    names = tokenizer.convert_ids_to_tokens(ids)
    expected = tuple(Token(one, name, special=one in special) for one, name in zip(ids, names, strict=True))
    started = told(backend, TEXT, tokens=True, echo=True)
    assert (started.prefill, started.text) == (expected, tokenizer.decode(ids))
    bare = told(backend, TEXT, tokens=True, add_special_tokens=False)
    assert [token.id for token in bare.prefill] == tokenizer.encode(TEXT, add_special_tokens=False)
    assert told(backend, tuple(ids), echo=True).text == started.text


def test_it_may_be_longer_than_the_context_and_empty(engine: tuple[str, Any]) -> None:
    _, backend = engine
    context = backend.info.context
    assert told(backend, (5,) * (context + 1)).prompt_tokens == context + 1
    assert told(backend, "word " * context).prompt_tokens > context
    assert told(backend, (), echo=True) == Started(0, context=context)
    assert told(backend, "", add_special_tokens=False) == Started(0, context=context)


def test_token_ids_that_there_are_not_are_refused(engine: tuple[str, Any]) -> None:
    _, backend = engine
    with pytest.raises(ParameterError, match="prompt: expected token ids from 0 to"):
        told(backend, (1, 10**9))
