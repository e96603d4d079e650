"""The transformers backend by itself, stepped by hand, compared with vLLM and with transformers' own `generate`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ...demo.model import JSON_SCHEMA, QUESTIONS, question
from ...kit.api.engine import PROMPT_PIECE as PIECE
from ...kit.api.engine import RESPONSE_TOKEN as TOKEN
from ...kit.api.errors import (
    ContextError,
    GenerationError,
    MemoryShortError,
    OptionError,
    ParameterError,
    RequestError,
    StartError,
    UnsupportedError,
)
from ...kit.api.options import make_settings
from ...kit.api.types import (
    Beams,
    Conversation,
    Delta,
    Event,
    Failed,
    Generation,
    Sampling,
    Started,
    StructuredOutput,
    Token,
)
from ...kit.engines import backends
from ...kit.engines.backends import PICK, run
from ...kit.engines.start import ON_TRANSFORMERS, in_process
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

GREEDY: dict[str, Any] = {"temperature": 0.0}
DRAWN: dict[str, Any] = {"temperature": 2.0, "max_tokens": 30, "ignore_eos": True}
USER: dict[str, Any] = {"role": "user", "content": "Hi"}
ANSWERED = [asked for asked in QUESTIONS if asked.kind != "endless"]


@pytest.fixture(scope="module")
def model_dir(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directory(demo_model, tmp_path_factory.mktemp("transformers") / "model", ON_TRANSFORMERS)


@pytest.fixture(scope="module")
def backend(model_dir: Path) -> Iterator[Any]:
    engine = in_process(make_settings(model_dir))
    yield engine
    assert not engine.busy
    engine.close()


@pytest.fixture(scope="module")
def vllm(model_dir: Path) -> Iterator[Any]:
    """The same model and options on vLLM."""
    engine = in_process(make_settings(model_dir, rolling_batch="vllm"))
    yield engine
    engine.close()


def generation(prompt: Any, *, stream: bool = True, tokens: bool = True, **sampling: Any) -> Generation:
    return Generation(
        request_id="test",
        prompt=prompt,
        sampling=Sampling(**{**GREEDY, **sampling}),
        stream=stream,
        tokens=tokens,
        token_bytes=True,
    )


def deltas(events: list[Event], index: int = 0) -> list[Delta]:
    return backends.deltas(events, index)


def text(events: list[Event], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas(events, index))


def tokens(events: list[Event], index: int = 0) -> list[Token]:
    return [token for delta in deltas(events, index) for token in delta.tokens]


def ids(events: list[Event], index: int = 0) -> list[int]:
    return [token.id for token in tokens(events, index)]


def finish(events: list[Event], index: int = 0) -> Any:
    finished = [delta.finish for delta in deltas(events, index) if delta.finish]
    assert len(finished) == 1
    return finished[0]


def test_every_question_in_one_batch_and_alone(backend: Any) -> None:
    """The answers are the same, and the same as those of transformers' own loop."""
    import torch

    asked = [generation(one.prompt, max_tokens=400) for one in ANSWERED]
    together = run(backend, *asked)
    model = backend._loaded.model
    for one, events, ask in zip(ANSWERED, together, asked, strict=True):
        assert text(events) == one.answer
        assert finish(events).reason == "eos"
        (alone,) = run(backend, ask)
        assert ids(alone) == ids(events)
        prompt = torch.tensor([backend.prepare(0, ask).prompt_ids])
        known = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=400, do_sample=False)
        assert known[0, prompt.shape[1] :].tolist() == ids(events)


def test_agrees_with_vllm(backend: Any, vllm: Any) -> None:
    """Token ids the same; log-probabilities, of the prompt too, within 1e-2 in float32."""
    wanted: dict[str, Any] = {"max_tokens": 120, "logprobs": 3, "prompt_logprobs": 2}
    asked = [generation(one.prompt, **wanted) for one in QUESTIONS]
    for ours, theirs in zip(run(backend, *asked), run(vllm, *asked), strict=True):
        assert text(ours) == text(theirs)
        assert ids(ours) == ids(theirs)
        assert finish(ours).reason == finish(theirs).reason
        assert finish(ours).generated_tokens == finish(theirs).generated_tokens
        assert finish(ours).cumulative_logprob == pytest.approx(finish(theirs).cumulative_logprob, abs=1e-2)
        begun, known = ours[0], theirs[0]
        assert isinstance(begun, Started)
        assert isinstance(known, Started)
        assert begun.ranks == known.ranks
        for mine, other in zip((*begun.prefill, *tokens(ours)), (*known.prefill, *tokens(theirs)), strict=True):
            assert (mine.id, mine.text, mine.special, mine.raw) == (other.id, other.text, other.special, other.raw)
            assert mine.logprob == pytest.approx(other.logprob, abs=1e-2)
            assert [top.logprob for top in mine.top] == pytest.approx([top.logprob for top in other.top], abs=1e-2)


def test_parameters_agree_with_vllm(backend: Any, vllm: Any) -> None:
    """What changes the most likely token changes it as in vLLM."""
    story = question("endless").prompt
    first = ids(run(backend, generation(story, max_tokens=12))[0])
    ways: list[dict[str, Any]] = [
        {"repetition_penalty": 4.0},
        {"frequency_penalty": 2.0},
        {"frequency_penalty": 2.0, "presence_penalty": 2.0},
        {"logit_bias": {first[0]: -100.0, first[5]: 30.0}},
        {"bad_words": (backend._loaded.tokenizer.decode(first[3:5]), "7")},
        {"min_tokens": 50, "stop_token_ids": (first[7],)},
    ]
    asked = [generation(story, max_tokens=60, **way) for way in ways]
    plain = ids(run(backend, generation(story, max_tokens=60))[0])
    for number, (ours, theirs) in enumerate(zip(run(backend, *asked), run(vllm, *asked), strict=True)):
        assert ids(ours) == ids(theirs), number
        assert ids(ours) != plain, number


def test_conversations_are_rendered_as_vllm_does(backend: Any, vllm: Any) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    tools = tuple(dict(tool) for tool in question("tool_call").tools or ())
    assert tools
    talks = [
        Conversation(messages=({"role": "user", "content": "Hi"},)),
        Conversation(messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": parts})),
        Conversation(messages=({"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"})),
        Conversation(messages=({"role": "user", "content": "Hi"},), tools=tools, tool_choice="none"),
        Conversation(
            messages=(
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            ),
        ),
        Conversation(
            messages=({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}),
            add_generation_prompt=False,
            continue_final_message=True,
        ),
        Conversation(messages=({"role": "user", "content": "Hi"},), template_arguments={"enable_thinking": False}),
    ]
    for talk in talks:
        ours = backend.prepare(1, generation(talk)).prompt_ids
        assert ours == vllm.prepare(1, generation(talk)).prompt_ids
        texts = [engine.prompt_text(engine.prepare(1, generation(talk))) for engine in (backend, vllm)]
        # Of token ids what they stand for.
        texts += [engine.prompt_text(engine.prepare(1, generation(tuple(ours)))) for engine in (backend, vllm)]
        assert len({*texts}) == 1
        assert "<|im_start|>" in texts[0]


def test_sixteen_streams_interleave(backend: Any) -> None:
    asked = (QUESTIONS * 2)[:16]
    for number, one in enumerate(asked):
        backend.add(backend.prepare(number, generation(one.prompt, max_tokens=60)))
    events: list[list[Event]] = [[] for _ in asked]
    order: list[int] = []
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
            order.append(number)
    # All have begun before the first has ended, and they take turns.
    ended = next(place for place, number in enumerate(order) if order[place + 1 :].count(number) == 0)
    assert set(order[:ended]) == set(range(16))
    assert sum(one != other for one, other in itertools.pairwise(order)) > len(order) // 2
    for one, found in zip(asked, events, strict=True):
        assert len([delta for delta in deltas(found) if delta.tokens]) == len(tokens(found))
        assert one.kind == "endless" or one.answer.startswith(text(found))
        assert text(found)


def test_a_seed_repeats_itself_alone_and_in_a_batch(backend: Any) -> None:
    ways: list[dict[str, Any]] = [
        {}, {"top_k": 20}, {"top_p": 0.9}, {"top_k": 30, "top_p": 0.8}, {"min_p": 0.05}, {"typical_p": 0.9},
        {"top_p": 0.9, "repetition_penalty": 1.2, "logprobs": 2},
    ]  # fmt: skip
    asked = [generation("Tell me", seed=7, **DRAWN, **way) for way in ways]
    alone = [ids(run(backend, one)[0]) for one in asked]
    others = [generation("Another one", seed=seed, **DRAWN) for seed in range(5)]
    unseeded = [generation("Another one", **DRAWN) for _ in range(3)]
    mixed = run(backend, *others, *asked, *unseeded, generation("Greedy", max_tokens=40), *asked)
    assert [ids(events) for events in mixed[5 : 5 + len(asked)]] == alone
    assert [ids(events) for events in mixed[-len(asked) :]] == alone
    (other,) = run(backend, generation("Tell me", seed=8, **DRAWN))
    assert ids(other) != alone[0]
    assert len({tuple(ids(events)) for events in mixed[5 + len(asked) : 8 + len(asked)]}) == 3


def test_what_narrows_the_choice(backend: Any) -> None:
    """top_k 1, and shares that the first word alone has, leave the most likely token at any temperature."""
    ask = question("plain").prompt
    (greedy,) = run(backend, generation(ask, max_tokens=8))
    narrow: list[dict[str, Any]] = [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-6}]
    for way in narrow:
        for events in run(
            backend, *(generation(ask, seed=seed, **{**DRAWN, "max_tokens": 8, **way}) for seed in range(3))
        ):
            assert ids(events) == ids(greedy)


def test_several_sequences_of_one_prompt(backend: Any) -> None:
    sampling: dict[str, Any] = {**DRAWN, "n": 4, "seed": 11, "stop": ("e",), "max_tokens": 60}
    (together,) = run(backend, generation("Tell me", **sampling))
    assert sum(isinstance(event, Started) for event in together) == 1
    finishes = [event.finish for event in together if isinstance(event, Delta) and event.finish]
    assert [one.last for one in finishes] == [False, False, False, True]
    for index in range(4):
        (alone,) = run(backend, generation("Tell me", **{**sampling, "n": 1, "seed": 11 + index}))
        assert ids(alone) == ids(together, index)
        assert text(alone) == text(together, index)


@pytest.mark.parametrize("include", [False, True], ids=["hidden", "included"])
@pytest.mark.parametrize("kind", ["unicode", "endless"])
def test_stop_strings_streamed_and_whole(backend: Any, kind: str, include: bool) -> None:
    asked = question(kind)
    full = text(run(backend, generation(asked.prompt, max_tokens=120))[0])
    for start, length in [(2, 1), (5, 3), (17, 12)]:
        stop = full[start : start + length]
        given: dict[str, Any] = {"max_tokens": 120, "stop": (stop,), "include_stop": include, "logprobs": 0}
        whole, streamed, bare = run(
            backend,
            generation(asked.prompt, stream=False, **given),
            generation(asked.prompt, **given),
            generation(asked.prompt, stream=False, tokens=False, **{**given, "logprobs": None}),
        )
        end = full.index(stop) + (len(stop) if include else 0)
        assert text(whole) == text(streamed) == text(bare) == full[:end]
        # In a batch a row's logits differ by its place, in the last bits.
        assert finish(whole).cumulative_logprob == pytest.approx(finish(streamed).cumulative_logprob, abs=1e-5)
        assert replace(finish(whole), cumulative_logprob=None) == replace(finish(streamed), cumulative_logprob=None)
        assert (finish(bare).reason, finish(bare).stop) == ("stop", stop)
        assert len(deltas(whole)) == 1
        assert "".join(token.text for token in tokens(streamed)) == full[:end]


def test_ends(backend: Any) -> None:
    asked = question("plain")
    (plain,) = run(backend, generation(asked.prompt, max_tokens=100))
    assert (finish(plain).reason, tokens(plain)[-1].text) == ("eos", "")
    known = ids(plain)
    eos, more, stopped, cut, least = run(
        backend,
        generation(asked.prompt, max_tokens=100, stream=False),
        generation(asked.prompt, max_tokens=len(known) + 5, ignore_eos=True),
        generation(asked.prompt, max_tokens=100, stop_token_ids=(known[4],)),
        generation(asked.prompt, max_tokens=3),
        generation(asked.prompt, max_tokens=100, min_tokens=len(known) + 3),
    )
    assert text(eos) == asked.answer
    assert (finish(more).reason, finish(more).generated_tokens) == ("length", len(known) + 5)
    assert (finish(stopped).reason, finish(stopped).stop, finish(stopped).generated_tokens) == ("stop", known[4], 5)
    assert tokens(stopped)[-1].text == ""
    assert (finish(cut).reason, ids(cut)) == ("length", known[:3])
    assert finish(least).generated_tokens >= len(known) + 3


def test_special_tokens_in_the_text(backend: Any, vllm: Any) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"skip_special_tokens": False},
        {"skip_special_tokens": False, "spaces_between_special_tokens": False},
    ]
    asked = [generation(QUESTIONS[0].prompt, max_tokens=60, ignore_eos=True, **way) for way in ways]
    hidden, visible, close = run(backend, *asked)
    assert [text(events) for events in run(vllm, *asked)] == [text(hidden), text(visible), text(close)]
    assert ids(hidden) == ids(visible) == ids(close)
    assert all(token.text == "" for token in tokens(hidden) if token.special)
    assert any(token.text for token in tokens(visible) if token.special)


def test_abort(backend: Any) -> None:
    endless = question("endless").prompt
    for number in range(4):
        backend.add(backend.prepare(number, generation(endless, max_tokens=400 if number == 2 else 1000)))
    backend.step()
    backend.abort([0, 77])
    backend.step()
    backend.abort([1])
    backend.add(backend.prepare(5, generation(endless, max_tokens=1000)))
    backend.abort([3, 5])
    seen: list[int] = []
    while backend.busy:
        seen += [number for number, _ in backend.step()]
    assert set(seen) == {2}


def test_a_bad_request_harms_only_itself(backend: Any) -> None:
    bad: list[tuple[Generation, type[Exception], str]] = [
        (generation("word " * 8000), ContextError, r"^prompt: prompt is too long: \d{5} tokens > 2047 maximum"),
        (generation((5, 10_000)), RequestError, "^prompt: expected token ids from 0 to 639, got 10000"),
        (generation("x", logprobs=21), ParameterError, "^logprobs: expected at most 20"),
        (generation("x", prompt_logprobs=21), ParameterError, "^prompt_logprobs: expected at most 20"),
        (generation("x", logit_bias={700: 1.0}), ParameterError, "^logit_bias: expected token ids from 0 to 639"),
        (generation("x", stop_token_ids=(700,)), ParameterError, "^stop_token_ids: expected token ids"),
        (generation("x", structured_output=StructuredOutput(grammar="root ::= (", field="grammar")),
         ParameterError, "^grammar: it cannot be"),
        (generation("x", structured_output=StructuredOutput(json_schema="x")),
         ParameterError, "^guide: it cannot be compiled"),
        (generation("x", structured_output=StructuredOutput(json_schema='{"type": "number", "multipleOf": 2}')),
         ParameterError, "^guide: it cannot be compiled: multipleOf is not supported"),
        (generation("x", structured_output=StructuredOutput(regex="(")),
         ParameterError, "^guide: it cannot be compiled"),
        (generation("x", structured_output=StructuredOutput(grammar="")),
         ParameterError, "^guide: it cannot be compiled: it is empty"),
        (generation(Conversation(messages=({"role": "user", "content": [{"type": "image_url"}]},))),
         UnsupportedError, "^messages: the transformers engine takes text only"),
        (generation(Conversation(messages=(USER,), tools=(PICK,), tool_choice="auto")),
         UnsupportedError, "^tools: the transformers engine does not parse tool calls"),
        (generation(Conversation(messages=(USER,), tools=(PICK,), function="pick", tools_field="functions")),
         UnsupportedError, "^functions: the transformers engine does not parse tool calls"),
        (generation("x", beams=Beams(width=2, field="parameters.num_beams")),
         UnsupportedError, r"^parameters\.num_beams: the transformers engine does not support beam search"),
        (Generation(request_id="x", prompt="x", sampling=Sampling(), adapter="poet"), UnsupportedError, "^adapter"),
    ]  # fmt: skip
    asked = question("plain")
    backend.add(backend.prepare(1, generation(asked.prompt)))
    for one, kind, said in bad:
        with pytest.raises(kind, match=said):
            backend.prepare(2, one)
        backend.step()
    while backend.busy:
        backend.step()
    assert text(run(backend, generation(asked.prompt, stream=False))[0]) == asked.answer


def test_a_sequence_whose_token_cannot_be_chosen_fails_alone(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ...kit.api.engine import Row

    choose = Row.choose

    def failing(self: Row, logits: Any) -> Any:
        if self.ids[0] == 99:
            raise RuntimeError("no luck")
        return choose(self, logits)

    monkeypatch.setattr(Row, "choose", failing)
    asked = question("long")
    long, failed = run(
        backend, generation(asked.prompt, max_tokens=300, logprobs=0), generation(tuple([99] * 200), logprobs=0)
    )
    assert text(long) == asked.answer
    (only,) = failed
    assert isinstance(only, Failed)
    assert "no luck" in only.message


def test_one_that_comes_late_does_not_wait_for_the_others(backend: Any) -> None:
    backend.add(backend.prepare(0, generation(question("endless").prompt, max_tokens=1500)))
    first: list[Event] = []
    while not first:
        first = [event for _, event in backend.step()]
    backend.add(backend.prepare(1, generation(ANSWERED[0].prompt, max_tokens=100)))
    late: list[Event] = []
    while backend.busy:
        for number, event in backend.step():
            if number == 1:
                late.append(event)
                if isinstance(event, Delta) and event.finish:
                    assert 0 in backend._groups, "the one that came first had to end"
                    backend.abort([0])
    assert text(late) == ANSWERED[0].answer


def test_when_nothing_can_be_computed_any_more_the_step_raises(model_dir: Path) -> None:
    """The process of the engine ends then, and another one takes its place."""
    engine = in_process(make_settings(model_dir))
    engine.add(engine.prepare(0, generation("Hello", max_tokens=10)))
    engine.close()
    with pytest.raises(GenerationError, match="has ended"):
        engine.step()


@pytest.mark.parametrize("kind", ["text", "messages"])
def test_of_a_prompt_that_is_far_too_long_a_part_is_tokenized(
    backend: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    long = "a " * 10_000_000
    prompt: Any = long if kind == "text" else Conversation(messages=({"role": "user", "content": long},))
    seen = watch(backend, monkeypatch)
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: more than \d{4,5} tokens > 2047 maximum"):
        backend.prepare(1, generation(prompt))
    assert seen
    assert max(seen) <= PIECE
    assert sum(seen) <= 2 * PIECE


def test_of_a_prompt_that_is_cut_the_end_is_tokenized(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question("plain")
    ids = backend.prepare(1, generation("some words, " * 10_000 + asked.prompt, truncate=500)).prompt_ids
    seen = watch(backend, monkeypatch)
    assert backend.prepare(1, generation("some words, " * 1_000_000 + asked.prompt, truncate=500)).prompt_ids == ids
    assert seen
    assert max(seen) <= 8 * 500 + PIECE


def watch(backend: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the texts are that the tokenizer is given, from now on."""
    seen: list[int] = []
    kind = type(backend._loaded.tokenizer)
    call = kind.__call__

    def watching(self: Any, text: str, **named: Any) -> Any:
        seen.append(len(text))
        return call(self, text, **named)

    monkeypatch.setattr(kind, "__call__", watching)
    return seen


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_becomes_too_long_ends_on_its_way(
    backend: Any, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    tokens, n, likely = 20, 2, 5
    one = generation("Count up.", stream=stream, n=n, max_tokens=tokens, ignore_eos=True, logprobs=likely)
    asked = question("plain")
    most = n * tokens * (1 + likely) * TOKEN
    for limit, ended in ((most, False), (most - 1, True)):
        monkeypatch.setattr(backend, "_longest", limit)
        events, beside = run(backend, one, generation(asked.prompt, stream=True, max_tokens=200))
        assert text(beside) == asked.answer
        assert isinstance(events[-1], Failed) is (ended and not stream)
        if isinstance(events[-1], Failed):
            assert "option.max_answer_bytes" in events[-1].message


def test_guides_are_followed(backend: Any) -> None:
    import jsonschema

    plain = question("plain").prompt
    guides = [
        StructuredOutput(json_schema=json.dumps(JSON_SCHEMA)),
        StructuredOutput(json_object=True),
        StructuredOutput(choice=("yes", "no")),
        StructuredOutput(regex="[ab]c"),
        StructuredOutput(grammar='root ::= "one" | "two"'),
        StructuredOutput(grammar='start: "one" | "two"'),
    ]
    asked = [generation(
        question("json").prompt if not n else plain, structured_output=guide, max_tokens=200) for n, guide in
             enumerate(guides)]  # fmt: skip
    free = generation(plain, max_tokens=100)
    schema, whole, choice, regex, grammar, lark, unguided = (text(events) for events in run(backend, *asked, free))
    jsonschema.validate(json.loads(schema), JSON_SCHEMA)
    assert isinstance(json.loads(whole), dict) if whole.endswith("}") else whole.startswith("{")
    assert choice in {"yes", "no"}
    assert regex in {"ac", "bc"}
    assert grammar in {"one", "two"}
    assert lark in {"one", "two"}
    assert unguided == question("plain").answer
    # Drawn at random, each of several, and past the end of sequence: the grammar holds.
    (several,) = run(
        backend, generation(plain, structured_output=guides[3], n=6, temperature=3.0, seed=1, ignore_eos=True)
    )
    assert {text(several, index) for index in range(6)} <= {"ac", "bc"}


def test_truncation_keeps_the_end_of_the_prompt(backend: Any) -> None:
    asked = question("plain")
    whole = backend.prepare(1, generation(asked.prompt)).prompt_ids
    assert backend.prepare(1, generation("word " * 8000 + asked.prompt, truncate=5)).prompt_ids == whole[-5:]
    assert backend.prepare(1, generation(tuple(whole), truncate=3)).prompt_ids == whole[-3:]


def test_a_conversations_prompt_is_what_the_template_made_but_for_its_beginning(backend: Any) -> None:
    asked = question("plain")

    def ids(content: str, **sampling: Any) -> list[int]:
        conversation = Conversation(messages=({"role": "user", "content": content},))
        return list(backend.prepare(1, generation(conversation, **sampling)).prompt_ids)

    whole = ids(asked.prompt)
    assert ids("word " * 8000 + asked.prompt, truncate=7) == ids(asked.prompt, truncate=7) == whole[-7:]
    assert ids(asked.prompt, truncate=len(whole)) == whole


def test_the_seed_after_the_largest_is_the_smallest(backend: Any) -> None:
    prepared = backend.prepare(1, generation("Hello", temperature=1.0, seed=2**63 - 1, n=2))
    # torch shows a negative one as what its 64 bits are without a sign.
    assert [row.generator.initial_seed() for row in prepared.rows] == [2**63 - 1, 2**63]


def test_echo_and_prefill(backend: Any) -> None:
    asked = question("plain")
    ask = Generation(request_id="x", prompt=asked.prompt, sampling=Sampling(max_tokens=2, **GREEDY), echo=True)
    ((started, *_),) = run(backend, ask)
    assert isinstance(started, Started)
    assert started.text.endswith(asked.prompt)
    long = "word " * 150 + asked.prompt
    (events,) = run(backend, generation(long, max_tokens=1, prompt_logprobs=0))
    started = events[0]
    assert isinstance(started, Started)
    assert len(started.prefill) == started.prompt_tokens > 256, "not longer than what is computed at once"
    assert started.prefill[0].logprob is None
    assert all(token.logprob is not None for token in started.prefill[1:])


def test_the_answer_ends_at_the_context(backend: Any) -> None:
    ask = question("endless").prompt
    prompt = len(backend.prepare(0, generation(ask)).prompt_ids)
    (events,) = run(backend, generation("word " * 650 + ask, stream=False, tokens=False, ignore_eos=True))
    started = events[0]
    assert isinstance(started, Started)
    assert finish(events).reason == "length"
    assert started.prompt_tokens + finish(events).generated_tokens == 2048
    refused = Generation(request_id="x", prompt=ask, sampling=Sampling(max_tokens=2047), overflow="refuse")
    with pytest.raises(ContextError, match=rf"^prompt: prompt is too long: {prompt} tokens > 1 maximum \(before 2047 "):
        backend.prepare(1, refused)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_half_precision(model_dir: Path, name: str) -> None:
    """The weights' type on a CPU too: the answers are the same, alone and together, drawn by a seed, with log_probs."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
    engine: Any = in_process(make_settings(model_dir, dtype=name))
    assert {parameter.dtype for parameter in engine._loaded.model.parameters()} == {dtype}
    plain = [asked for asked in ANSWERED if asked.kind in {"plain", "unicode"}]
    answers = run(engine, *(generation(asked.prompt, max_tokens=200, logprobs=0) for asked in plain))
    assert [text(events) for events in answers] == [asked.answer for asked in plain]
    for events in answers:
        assert all(token.logprob is not None and -20 < token.logprob <= 0 for token in tokens(events))
    asked = {**DRAWN, "seed": 3, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.1, "presence_penalty": 0.5}
    (one,), (other,) = run(engine, generation("Tell me", **asked)), run(engine, generation("Tell me", **asked))
    engine.close()
    assert ids(one) == ids(other)
    assert len(ids(one)) == 30


def test_what_fails_the_start(model_dir: Path, tmp_path: Path) -> None:
    small = {"kv_cache_memory_bytes": "64K", "max_model_len": "2048"}
    refusals: list[tuple[Path, dict[str, str], type[Exception], str]] = [
        (model_dir, small, MemoryShortError, "less than the context of 2048"),
        (model_dir, {"max_model_len": "4096"}, OptionError, "expected at most 2048"),
        (model_dir, {"tensor_parallel_degree": "64"}, OptionError, "option.tensor_parallel_degree"),
        (model_dir, {"speculative_config": '{"method": "ngram"}'}, OptionError, "option.speculative_config"),
        (
            model_dir,
            {"tool_call_parser": "hermes"},
            OptionError,
            "tool_call_parser: the transformers engine does not parse",
        ),
    ]
    for path, overrides, kind, said in refusals:
        with pytest.raises(kind, match=said):
            in_process(make_settings(path, **overrides))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "architectures": ["T5"]}))
    with pytest.raises(StartError, match="has an encoder"):
        in_process(make_settings(tmp_path, rolling_batch="scheduler"))


@pytest.mark.parametrize(
    ("option", "package"),
    [({"device_map": "auto"}, "accelerate"), ({"quantize": "bitsandbytes8"}, "bitsandbytes"),
     ({"load_in_4bit": "true"}, "bitsandbytes")],
)  # fmt: skip
def test_what_needs_a_package_names_it(model_dir: Path, option: dict[str, str], package: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(OptionError, match=f"requires the package {package}"):
        in_process(make_settings(model_dir, **option))
