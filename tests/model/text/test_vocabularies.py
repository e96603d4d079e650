"""Models of two layers with random weights and the vocabularies of Qwen3, Llama 3.1 and Gemma 3, on vLLM.

Greedily they say what transformers' `generate` says, and the text is what its tokenizer makes of the ids: tokens of
any script, parts of characters, special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.options import make_settings
from ...kit.api.types import Conversation, Generation, Sampling, Started
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.hosts.host import model_directory
from ...kit.models.vocabularies import CONFIGS, tiny_model

pytestmark = pytest.mark.engine

ASKED = Conversation(messages=({"role": "user", "content": "Wie heißt 🦊 auf 中文?"},))
SLOW = ("qwen3", "gemma3")
"""Half a minute each."""
LENGTH = 48
END = 30
"""Of the greedy answer's tokens: from here on the first one that has not come before ends an answer."""


@dataclass
class Served:
    backend: Any
    tokenizer: Any
    said: list[int]
    """What transformers' model says, without an end."""
    prompt: list[int]
    end: int
    """The place of the token in it that the model's generation_config.json has among the ends."""


@pytest.fixture(scope="module", params=["llama3_1", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = tiny_model(request.param)
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    prompt = tokenizer.apply_chat_template([*ASKED.messages], add_generation_prompt=True, return_dict=False)
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LENGTH)
    said: list[int] = whole[0].tolist()[len(prompt) :]
    end = next(place for place in range(END, LENGTH) if said[place] not in said[:place])
    folder: Path = model_directory(source, tmp_path_factory.mktemp("tiny") / "model", {})
    written = folder / "generation_config.json"
    written.unlink()
    usual = CONFIGS[request.param]["eos_token_id"]
    ends = [*(usual if isinstance(usual, list) else [usual]), said[end]]
    written.write_text(json.dumps({"eos_token_id": ends}))
    backend = in_process(make_settings(folder, max_num_seqs="8"))
    yield Served(backend, tokenizer, said, prompt, end)
    backend.close()


def asked(*, stream: bool = False, tokens: bool = True, **sampling: Any) -> Generation:
    chosen = Sampling(**{"temperature": 0.0, "max_tokens": LENGTH, **sampling})
    return Generation(request_id="test", prompt=ASKED, sampling=chosen, stream=stream, tokens=tokens, prompt_ids=True)


def test_a_chat_is_that_of_transformers(served: Served) -> None:
    ways = [
        asked(stream=stream, tokens=tokens, ignore_eos=True) for stream in (False, True) for tokens in (False, True)
    ]
    text = served.tokenizer.decode(served.said, skip_special_tokens=True)
    for way, events in zip(ways, run(served.backend, *ways), strict=True):
        started = events[0]
        assert isinstance(started, Started)
        assert started.prompt_ids == tuple(served.prompt)
        found = deltas(events)
        assert (len(found) > LENGTH // 2) == way.stream
        joined = "".join(delta.text for delta in found)
        assert joined in (text, text.rstrip("�"))
        said = [token for delta in found for token in delta.tokens]
        assert [token.id for token in said] == (served.said if way.tokens else [])
        assert "".join(token.text for token in said) == (joined if way.tokens else "")
        finish = found[-1].finish
        assert finish is not None
        assert (finish.reason, finish.generated_tokens) == ("length", LENGTH)


def test_an_end_of_the_generation_config_ends_it_and_is_not_told(served: Served) -> None:
    before = served.tokenizer.decode(served.said[: served.end], skip_special_tokens=True)
    for stream in (False, True):
        (events,) = run(served.backend, asked(stream=stream))
        found = deltas(events)
        assert "".join(delta.text for delta in found) == before
        finish = found[-1].finish
        assert finish is not None
        assert (finish.reason, finish.stop, finish.generated_tokens) == ("eos", None, served.end + 1)


@pytest.mark.parametrize("skip", [True, False], ids=["skipped", "shown"])
def test_special_tokens_among_parts_of_characters(served: Served, *, skip: bool) -> None:
    """At random, of nothing else."""
    tokenizer = served.tokenizer
    allowed = tuple({*tokenizer.all_special_ids, *tokenizer.encode("🦊中é", add_special_tokens=False)})
    chosen: dict[str, Any] = {"temperature": 1.0, "seed": 3, "allowed_token_ids": allowed, "ignore_eos": True}
    (whole,) = run(served.backend, asked(skip_special_tokens=skip, **chosen))
    (streamed,) = run(served.backend, asked(skip_special_tokens=skip, stream=True, **chosen))
    ids = [token.id for delta in deltas(whole) for token in delta.tokens]
    assert set(ids) <= set(allowed)
    assert set(ids) & set(tokenizer.all_special_ids)
    text = "".join(delta.text for delta in deltas(whole))
    assert "".join(delta.text for delta in deltas(streamed)) == text
    assert [token.id for delta in deltas(streamed) for token in delta.tokens] == ids
    by_transformers = tokenizer.decode(ids, skip_special_tokens=skip)
    assert by_transformers in (text, f"{text}�")
    assert any(token in text for token in tokenizer.all_special_tokens) == (not skip)
