"""What a generation asks of vLLM besides text: token bytes, ranks, special tokens, KV transfer, names in errors."""

from __future__ import annotations

from typing import Any

import pytest

from ...demo.model import question
from ...kit.api.dialects import CHAT_TABLE, TEXT_TABLE
from ...kit.api.engine import ranked
from ...kit.api.errors import ParameterError
from ...kit.api.types import EngineEvent, Event, Generation, Sampling, Started, StructuredOutput, Token
from ...kit.engines import backends
from ...kit.engines.backends import deltas

pytestmark = pytest.mark.engine


@pytest.fixture
def backend(chat_backend: Any) -> Any:
    return chat_backend


def generation(prompt: Any, *, sampling: dict[str, Any] | None = None, **fields: Any) -> Generation:
    asked = Sampling(**{"temperature": 0.0, "max_tokens": 200, **(sampling or {})})
    return Generation(request_id="test", prompt=prompt, sampling=asked, **fields)


def run(backend: Any, one: Generation) -> list[Event]:
    (events,) = backends.run(backend, one)
    return events


def tokens(events: list[Event]) -> list[Token]:
    return [token for delta in deltas(events) for token in delta.tokens]


def started(events: list[Event]) -> Started:
    (one,) = [event for event in events if isinstance(event, Started)]
    return one


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("likely", [0, 2])
def test_bytes_of_tokens_where_they_are_wanted(backend: Any, likely: int, stream: bool) -> None:
    """Parts of characters have theirs too."""
    asked = question("unicode")
    fields: dict[str, Any] = {"tokens": True, "stream": stream, "sampling": {"logprobs": likely}}
    with_bytes = tokens(run(backend, generation(asked.prompt, token_bytes=True, **fields)))
    assert b"".join(token.raw for token in with_bytes[:-1]).decode() == asked.answer
    assert any(token.raw and not token.text for token in with_bytes), "no character spans tokens"
    assert all(len(token.top) == likely and all(top.raw for top in token.top) for token in with_bytes)
    without = tokens(run(backend, generation(asked.prompt, **fields)))
    assert [token.text for token in without] == [token.text for token in with_bytes]
    assert not any(token.raw or any(top.raw for top in token.top) for token in without)


def test_ranks_of_the_prompts_tokens(backend: Any) -> None:
    asked = question("plain")
    begun = started(run(backend, generation(asked.prompt, sampling={"prompt_logprobs": 2, "max_tokens": 1})))
    assert len(begun.ranks) == len(begun.prefill) == begun.prompt_tokens
    assert begun.ranks[0] is None
    for token, rank in zip(begun.prefill[1:], begun.ranks[1:], strict=True):
        assert rank is not None
        among = [top.id for top in token.top]
        assert (among.index(token.id) + 1 == rank) if token.id in among else rank > 2
    assert any(rank is not None and rank > 2 for rank in begun.ranks)


def test_the_text_of_an_echo_has_the_special_tokens_that_were_given(backend: Any) -> None:
    prompt = question("plain").prompt
    ids = tuple(backend.prepare(1, generation(prompt)).prompt_ids)
    begun = started(run(backend, generation(ids, echo=True, sampling={"max_tokens": 1, "prompt_logprobs": 0})))
    assert begun.text == backend.core.get_tokenizer().bos_token + prompt
    assert begun.text == "".join(token.text for token in begun.prefill)


def test_the_best_of_several(backend: Any) -> None:
    """The sequences are those that n gives: seeds seed, seed + 1 ..."""
    sampling = {"temperature": 2.0, "seed": 3, "max_tokens": 12, "n": 5}
    every = deltas(run(backend, generation("Tell me", sampling={**sampling, "logprobs": 0})))
    finishes = {delta.index: delta.finish for delta in every}
    likelihood = {index: finish.cumulative_logprob or 0.0 for index, finish in finishes.items() if finish}
    best = sorted(likelihood, key=lambda index: -likelihood[index])[:2]
    assert best != [0, 1], "the first ones are the best: nothing is shown"
    texts = {delta.index: delta.text for delta in every}
    events: list[EngineEvent] = []
    asked = generation("Tell me", sampling={**sampling, "n": 2, "best_of": 5})
    wider, sink = ranked(asked, events.append)
    for event in run(backend, wider):
        sink(event)
    assert [(delta.index, delta.text) for delta in deltas(events)] == [(0, texts[best[0]]), (1, texts[best[1]])]
    last = deltas(events)[-1].finish
    assert last is not None
    total = sum(finish.generated_tokens for finish in finishes.values() if finish)
    shown = sum(delta.finish.generated_tokens for delta in deltas(events) if delta.finish)
    assert shown + last.discarded_tokens == total


# --- KV transfer ---

TOLD = {"do_remote_decode": True, "remote_engine_id": None, "remote_block_ids": [[1, 2]]}


def test_without_a_connector_transfer_parameters_change_nothing(backend: Any) -> None:
    asked = question("plain")
    (plain,) = deltas(run(backend, generation(asked.prompt)))
    prepared = backend.prepare(1, generation(asked.prompt, kv_transfer_params=TOLD))
    assert prepared.requests[0].sampling_params.extra_args is None
    assert deltas(run(backend, generation(asked.prompt, kv_transfer_params=TOLD))) == [plain]
    assert plain.finish is not None
    assert plain.finish.kv_transfer_params is None


# --- Guided decoding: what is wrong ---

GUIDE = "sampling.structured_output"
BROKEN = [
    StructuredOutput(json_schema='{"type": "nonsense"}'),
    StructuredOutput(json_schema='{"type": "array", "uniqueItems": true}'),
    StructuredOutput(regex="("),
    StructuredOutput(grammar="root ::= ("),
    StructuredOutput(grammar=""),
]


@pytest.mark.parametrize("guide", BROKEN, ids=str)
def test_a_broken_guide_is_named(backend: Any, guide: StructuredOutput) -> None:
    with pytest.raises(ParameterError, match=f"^{GUIDE}: it cannot be compiled: .") as caught:
        backend.prepare(1, generation("Hello", sampling={"structured_output": guide}))
    assert caught.value.param == GUIDE
    assert "\n" not in caught.value.message


# --- Names ---


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "text"])
def test_every_field_of_vllms_own_requests_is_known(chat: bool) -> None:
    """Honoured, without effect, or refused by name; never taken for a misspelling."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    table = CHAT_TABLE if chat else TEXT_TABLE
    theirs = ChatCompletionRequest if chat else CompletionRequest
    assert set(theirs.model_fields) - {row.name for row in table} == set()
