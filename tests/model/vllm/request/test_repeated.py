"""A request of a sampling that came before is what vLLM makes of it when it comes for the first time.

The oracle is vLLM's InputProcessor: by a second front, which has never had the sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Generation, Message, Sampling
from ....kit.engines.start import front
from ....kit.hosts.host import model_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.0, max_tokens=7),
    Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, seed=3, max_tokens=20),
    Sampling(repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=-0.5),
    Sampling(max_tokens=9, min_tokens=4, stop_token_ids=(5, 6), stop=("x",)),
    Sampling(ignore_eos=True, logprobs=2),
    Sampling(logit_bias={3: 1.5}, extra_args={"a": 1}),
    Sampling(bad_words=("cat",), allowed_token_ids=(4, 5, 6)),
    # More than are kept.
    *(Sampling(seed=seed) for seed in range(12)),
)
PLAIN = Generation(request_id="r", prompt="one two three")
DIFFERENT: dict[str, Generation] = {
    "its cache salt": msgspec.structs.replace(PLAIN, cache_salt="s"),
    "its priority": msgspec.structs.replace(PLAIN, priority=3),
    "several sequences": msgspec.structs.replace(PLAIN, sampling=Sampling(n=3, seed=1)),
    "the prompt's log-probabilities": msgspec.structs.replace(PLAIN, sampling=Sampling(prompt_logprobs=1)),
    "token ids": msgspec.structs.replace(PLAIN, prompt=(5, 6, 7)),
}


def _chat(text: str) -> Conversation:
    return Conversation(messages=(Message("user", text),))


PROMPTS: dict[str, tuple[Any, Any]] = {
    "texts": ("one two three", "four five six seven"),
    "conversations": (_chat("one two three"), _chat("four five")),
}


@pytest.fixture(scope="module")
def requests_of(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Any]:
    """Makes what prepares generations and has had none."""
    folder = tmp_path_factory.mktemp("repeated")
    settings = make_settings(
        model_directory(demo_model, folder / "model", {}), max_model_len="256", scheduling_policy="priority"
    )
    return lambda: front(settings).requests


def _requests(requests: Any, generation: Generation) -> list[Any]:
    made = requests.prepare(1, generation).requests
    for one in made:
        one.arrival_time = 0.0
    return list(made)


@each_row(("first", "second"), [*PROMPTS.values()], ids=[*PROMPTS])
def test_repeated_samplings(requests_of: Callable[[], Any], first: Any, second: Any) -> None:
    repeating, fresh = requests_of(), requests_of()
    for sampling in SAMPLINGS:
        before = Generation(request_id="r", prompt=first, sampling=sampling)
        again = msgspec.structs.replace(before, prompt=second)
        theirs = _requests(fresh, again)
        (sent,) = _requests(repeating, before)
        kept = msgspec.json.encode(sent)
        (ours,) = _requests(repeating, again)
        assert [ours] == theirs, sampling
        # Nothing of it is another's: the one that came first stays what it was.
        ours.sampling_params.max_tokens = 1
        assert msgspec.json.encode(sent) == kept


@each_row("generation", [*DIFFERENT.values()], ids=[*DIFFERENT])
def test_what_is_not_alike(requests_of: Callable[[], Any], generation: Generation) -> None:
    """After requests with the same sampling, one that differs in more than its prompt is vLLM's to make."""
    repeating, fresh = requests_of(), requests_of()
    for _ in range(2):
        _requests(repeating, msgspec.structs.replace(PLAIN, sampling=generation.sampling))
    assert _requests(repeating, generation) == _requests(fresh, generation)
