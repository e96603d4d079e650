"""Every generation parameter of LMI's schema: what it does on the demo model.

A request goes through the LMI dialect, an engine and the dialect's reply: what is compared is what a client sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ..demo.model import question
from ..kit.api.dialects import parse
from ..kit.api.engine import Tokenizer, limits, ranked
from ..kit.api.errors import ParameterError
from ..kit.api.options import make_settings
from ..kit.api.types import Backend, Event, Generation, Sampling, Settings
from ..kit.engines.start import in_process
from ..kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

Given = dict[str, Any]

PLAIN, ENDLESS, UNKNOWN = question("plain"), question("endless"), "Tell me"
SEEDS = range(5)
SAID, UNSURE = PLAIN.prompt + PLAIN.answer, {"min_length": 12, "max_new_tokens": 12}
"""After the end of what it was taught the model is not sure of anything."""


class Endpoint:
    """The demo model on an engine, asked in the LMI dialect."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.backend = backend
        self._settings = settings
        # As in use: the core may still send a token of a request that a stop string ended.
        self._numbers = count(1)

    def ask(self, inputs: str, schema: str = "vllm", **given: Any) -> dict[str, Any]:
        """The whole answer."""
        (body,) = self._run(inputs, schema, False, given)
        return body

    def lines(self, inputs: str, **given: Any) -> list[dict[str, Any]]:
        """The lines of a stream."""
        return self._run(inputs, "vllm", True, given)

    def _run(self, inputs: str, schema: str, stream: bool, given: Given) -> list[dict[str, Any]]:
        settings = msgspec.structs.replace(self._settings, rolling_batch=schema)
        made = parse("lmi", {"inputs": inputs, "parameters": given, "stream": stream}, settings)
        records: list[bytes] = []
        asked, sink = ranked(made.generations[0], lambda event: records.extend(made.reply.feed(cast(Event, event))))
        self.backend.add(self.backend.prepare(next(self._numbers), asked))
        while self.backend.busy:
            for _, event in self.backend.step():
                sink(event)
        assert made.reply.failure is None
        return [msgspec.json.decode(record) for record in records]

    def field(self, error: ParameterError) -> str:
        """What the client calls what an engine refuses."""
        return parse("lmi", {"inputs": "a"}, self._settings).fields.name(str(error.param))

    def text(self, inputs: str, **given: Any) -> str:
        return str(self.ask(inputs, **given)["generated_text"])

    def details(self, inputs: str, **given: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(inputs, details=True, **given)["details"]
        return found

    def drawn(self, **given: Any) -> list[str]:
        """What is drawn with each of some seeds, from a wide distribution."""
        return [
            self.text(UNKNOWN, **{"temperature": 2.0, "max_new_tokens": 12, "seed": seed, **given}) for seed in SEEDS
        ]

    def repeated(self, **given: Any) -> int:
        """How many tokens of such answers came before in them."""
        ids = [
            [
                token["id"]
                for token in self.details(UNKNOWN, temperature=2.0, max_new_tokens=40, seed=seed, **given)["tokens"]
            ]
            for seed in SEEDS
        ]
        return sum(len(one) - len(set(one)) for one in ids)


Effect = Callable[[Endpoint], None]
EFFECTS: dict[str, Effect] = {}


def effect(name: str) -> Callable[[Effect], Effect]:
    def keep(function: Effect) -> Effect:
        assert name not in EFFECTS
        EFFECTS[name] = function
        return function

    return keep


@effect("do_sample")
def do_sample(at: Endpoint) -> None:
    greedy = at.text(UNKNOWN, max_new_tokens=12)
    assert set(at.drawn(do_sample=False)) == {greedy}
    drawn = [at.text(SAID, do_sample=True, seed=seed, **UNSURE) for seed in SEEDS]
    assert len(set(drawn)) > 1
    assert drawn == [at.text(SAID, temperature=1.0, seed=seed, **UNSURE) for seed in SEEDS]


@effect("seed")
def seed(at: Endpoint) -> None:
    assert at.drawn() == at.drawn()
    assert len(set(at.drawn())) == len(SEEDS)
    assert len({at.text(UNKNOWN, temperature=2.0) for _ in range(3)}) == 3, "no seed is the same seed"


@effect("temperature")
def temperature(at: Endpoint) -> None:
    greedy = at.text(UNKNOWN, max_new_tokens=12)
    assert set(at.drawn(temperature=0)) == set(at.drawn(temperature=0.01)) == {greedy}

    def likelihood(value: float) -> float:
        tokens = [at.details(SAID, temperature=value, seed=seed, **UNSURE)["tokens"] for seed in SEEDS]
        return float(sum(token["log_prob"] for one in tokens for token in one) / sum(map(len, tokens)))

    assert likelihood(0.1) > likelihood(1.0) > likelihood(2.0)


@effect("repetition_penalty")
def repetition_penalty(at: Endpoint) -> None:
    assert at.repeated(repetition_penalty=3.0) < at.repeated() < at.repeated(repetition_penalty=0.5)


@effect("presence_penalty")
def presence_penalty(at: Endpoint) -> None:
    assert at.repeated(presence_penalty=2) < at.repeated(presence_penalty=-2)
    assert at.drawn(presence_penalty=2) != at.drawn()


@effect("frequency_penalty")
def frequency_penalty(at: Endpoint) -> None:
    assert at.repeated(frequency_penalty=2) < at.repeated(frequency_penalty=-2)
    assert at.drawn(frequency_penalty=2) != at.drawn()


def _narrows(at: Endpoint, name: str, narrowest: float, neutral: float) -> None:
    """The narrowest value leaves the likeliest token alone, the neutral one leaves all."""
    greedy = at.text(UNKNOWN, max_new_tokens=12)
    assert set(at.drawn(**{name: narrowest})) == {greedy}
    assert at.drawn(**{name: neutral}) == at.drawn()
    assert greedy not in at.drawn()


@effect("top_k")
def top_k(at: Endpoint) -> None:
    _narrows(at, "top_k", 1, 0)
    _narrows(at, "top_k", 1, -1)


@effect("top_p")
def top_p(at: Endpoint) -> None:
    _narrows(at, "top_p", 1e-6, 1.0)


@effect("min_p")
def min_p(at: Endpoint) -> None:
    _narrows(at, "min_p", 1.0, 0.0)


@effect("max_new_tokens")
def max_new_tokens(at: Endpoint) -> None:
    for given, expected in (({}, 30), ({"max_new_tokens": 5}, 5)):
        details = at.details(ENDLESS.prompt, **given)
        assert (details["generated_tokens"], details["finish_reason"]) == (expected, "length")


@effect("details")
def details(at: Endpoint) -> None:
    assert at.ask(PLAIN.prompt) == {"generated_text": PLAIN.answer}
    found = at.ask(PLAIN.prompt, details=True)["details"]
    assert found["inputs"] == PLAIN.prompt
    assert "".join(token["text"] for token in found["tokens"]) == PLAIN.answer


@effect("return_full_text")
def return_full_text(at: Endpoint) -> None:
    assert at.text(PLAIN.prompt, return_full_text=True) == PLAIN.prompt + PLAIN.answer


def _stops(at: Endpoint, name: str) -> None:
    word = PLAIN.answer.split()[3]
    assert at.text(PLAIN.prompt, **{name: [word]}) == PLAIN.answer.partition(word)[0]
    assert at.details(PLAIN.prompt, **{name: ["nowhere", word]})["finish_reason"] == "stop_sequence"


@effect("stop_sequences")
def stop_sequences(at: Endpoint) -> None:
    _stops(at, "stop_sequences")


@effect("stop")
def stop(at: Endpoint) -> None:
    """Documented as a boolean of no effect, and sent as a list."""
    for flag in (True, False):
        assert at.ask(PLAIN.prompt, schema="trtllm", stop=flag, details=True) == at.ask(PLAIN.prompt, details=True)
    _stops(at, "stop")


@effect("decoder_input_details")
def decoder_input_details(at: Endpoint) -> None:
    prefill = at.details(PLAIN.prompt, decoder_input_details=True)["prefill"]
    assert "".join(token["text"] for token in prefill).endswith(PLAIN.prompt)
    assert [token["log_prob"] is None for token in prefill] == [True] + [False] * (len(prefill) - 1)
    assert "prefill" not in at.details(PLAIN.prompt)


@effect("truncate")
def truncate(at: Endpoint) -> None:
    whole = at.details(PLAIN.prompt, decoder_input_details=True)["prefill"]
    kept = at.details(PLAIN.prompt, decoder_input_details=True, truncate=3)["prefill"]
    assert [token["id"] for token in kept] == [token["id"] for token in whole[-3:]]
    assert at.text(PLAIN.prompt, truncate=3) != PLAIN.answer
    assert at.text(PLAIN.prompt, truncate=1000) == PLAIN.answer


@effect("ignore_eos_token")
def ignore_eos_token(at: Endpoint) -> None:
    found = at.details(PLAIN.prompt, ignore_eos_token=True, max_new_tokens=40)
    assert (found["generated_tokens"], found["finish_reason"]) == (40, "length")
    assert at.details(PLAIN.prompt, max_new_tokens=40)["finish_reason"] == "eos_token"


@effect("stop_token_ids")
def stop_token_ids(at: Endpoint) -> None:
    tokens = at.details(PLAIN.prompt)["tokens"]
    found = at.details(PLAIN.prompt, stop_token_ids=[tokens[5]["id"]])
    assert (found["generated_tokens"], found["finish_reason"]) == (6, "stop_sequence")


@effect("include_stop_str_in_output")
def include_stop_str_in_output(at: Endpoint) -> None:
    word = PLAIN.answer.split()[3]
    kept = at.text(PLAIN.prompt, stop_sequences=[word], include_stop_str_in_output=True)
    assert kept == PLAIN.answer.partition(word)[0] + word


@effect("skip_special_tokens")
def skip_special_tokens(at: Endpoint) -> None:
    given = {"ignore_eos_token": True, "max_new_tokens": 40}
    assert "<|im_end|>" in at.text(PLAIN.prompt, skip_special_tokens=False, **given)
    assert "<|im_end|>" not in at.text(PLAIN.prompt, **given)


@effect("min_length")
def min_length(at: Endpoint) -> None:
    usual = at.details(PLAIN.prompt)["generated_tokens"]
    assert at.details(PLAIN.prompt, min_length=usual + 2)["generated_tokens"] >= usual + 2
    # After the whole answer the model would end at once, which TensorRT-LLM's default of 1 forbids.
    assert at.details(SAID)["generated_tokens"] == 1
    assert at.text(SAID) == ""
    assert at.text(SAID, schema="trtllm") != ""
    assert at.ask(SAID, schema="trtllm", details=True) == at.ask(SAID, min_length=1, details=True)
    assert at.text(SAID, schema="trtllm", min_length=0) == ""


@effect("bad_sequences")
def bad_sequences(at: Endpoint) -> None:
    assert "networks" in PLAIN.answer
    assert "networks" not in at.text(PLAIN.prompt, bad_sequences=["networks"])


@effect("n")
def n(at: Endpoint) -> None:
    given: Given = {"temperature": 2.0, "seed": 3, "max_new_tokens": 12}
    found = at.ask(UNKNOWN, details=True, n=3, **given)
    others = found["details"]["best_of_sequences"]
    texts = [found["generated_text"], *(other["generated_text"] for other in others)]
    assert sorted(texts) == sorted(at.text(UNKNOWN, **{**given, "seed": 3 + index}) for index in range(3))
    sums = [sum(token["log_prob"] for token in one["tokens"]) for one in (found["details"], *others)]
    assert sums == sorted(sums, reverse=True)


def _near(found: Any) -> Any:
    """In a batch a row's logits may differ by its place, and by which rows share its step, in the last bits."""
    if isinstance(found, dict):
        return {name: _near(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_near(value) for value in found]
    return pytest.approx(found, abs=1e-5) if isinstance(found, float) else found


@effect("best_of")
def best_of(at: Endpoint) -> None:
    given: Given = {"temperature": 2.0, "seed": 3, "max_new_tokens": 12, "details": True}
    every = _near(at.ask(UNKNOWN, n=5, **given))
    assert at.ask(UNKNOWN, best_of=5, **given) == every
    two = at.ask(UNKNOWN, n=2, best_of=5, **given)
    assert two["generated_text"] == every["generated_text"]
    assert two["details"]["best_of_sequences"] == every["details"]["best_of_sequences"][:1]


@effect("num_beams")
def num_beams(at: Endpoint) -> None:
    given: Given = {"max_new_tokens": 8, "ignore_eos_token": True}
    found, greedy = at.details(UNKNOWN, num_beams=3, **given), at.details(UNKNOWN, **given)
    best, *others = (_likelihood(one) for one in (found, *found["best_of_sequences"]))
    assert len(others) == 2
    assert best >= others[0] >= others[1]
    assert best >= _likelihood(greedy) - 1e-3


def _likelihood(sequence: dict[str, Any]) -> float:
    return float(sum(token["log_prob"] for token in sequence["tokens"]))


@effect("length_penalty")
def length_penalty(at: Endpoint) -> None:
    lengths = [
        at.details(SAID, num_beams=4, length_penalty=penalty, max_new_tokens=25)["generated_tokens"]
        for penalty in (-5.0, 1.0, 5.0)
    ]
    assert lengths == [1, 1, 25]


@effect("early_stopping")
def early_stopping(at: Endpoint) -> None:
    """What is longer is better here: who stops early does not find it."""
    given: Given = {"num_beams": 3, "length_penalty": 5.0, "max_new_tokens": 25}
    early = at.details(SAID, early_stopping=True, **given)["generated_tokens"]
    assert early < at.details(SAID, early_stopping="never", **given)["generated_tokens"] == 25


@effect("typical_p")
def typical_p(at: Endpoint) -> None:
    assert at.drawn(typical_p=1.0) == at.drawn()
    assert at.drawn(typical_p=0.05) != at.drawn()
    assert at.text(PLAIN.prompt, typical_p=0.05) == PLAIN.answer


@effect("logprobs")
def logprobs(at: Endpoint) -> None:
    found = at.details(PLAIN.prompt, logprobs=3)
    likely = found.pop("top_tokens")
    assert found == at.details(PLAIN.prompt) == at.details(PLAIN.prompt, logprobs=0)
    assert [len(top) for top in likely] == [3] * found["generated_tokens"]
    for token, top in zip(found["tokens"], likely, strict=True):
        assert len({one["id"] for one in top}) == 3
        assert [one["log_prob"] for one in top] == sorted((one["log_prob"] for one in top), reverse=True)
        # What was chosen here is the likeliest. An end has no text where it ends the answer.
        assert (top[0]["id"], top[0]["log_prob"]) == (token["id"], token["log_prob"])
    assert [top[0]["text"] for top in likely[:-1]] == [token["text"] for token in found["tokens"][:-1]]
    assert at.details(PLAIN.prompt, logprobs=1)["top_tokens"] == [top[:1] for top in likely]
    assert at.details(PLAIN.prompt, top_n_tokens=3)["top_tokens"] == likely
    lines = at.lines(PLAIN.prompt, logprobs=3)
    assert [line.pop("top_tokens") for line in lines] == likely
    assert lines == at.lines(PLAIN.prompt)
    # What was drawn need not be among them; the likeliest are those of the model itself, at any temperature.
    drawn = at.details(UNKNOWN, logprobs=2, temperature=2.0, seed=3, max_new_tokens=12, n=2)
    greedy = at.details(UNKNOWN, logprobs=2, max_new_tokens=1)
    for one in (drawn, *drawn["best_of_sequences"]):
        # In a batch a row's logits may differ by its place, in the last bits.
        wanted = [{**top, "log_prob": pytest.approx(top["log_prob"], abs=1e-5)} for top in greedy["top_tokens"][0]]
        assert one["top_tokens"][0] == wanted
        pairs = [*zip(one["tokens"], one["top_tokens"], strict=True)]
        assert all(token["log_prob"] <= top[0]["log_prob"] for token, top in pairs)
        assert any(token["id"] not in {two["id"] for two in top} for token, top in pairs)
    # Nothing shows them there.
    assert at.ask(PLAIN.prompt, logprobs=3) == {"generated_text": PLAIN.answer}
    for given in ({}, {"num_beams": 2}):
        with pytest.raises(ParameterError, match="20") as caught:
            at.details(PLAIN.prompt, logprobs=21, **given)
        assert at.field(caught.value) == "parameters.logprobs"
    best = at.details(UNKNOWN, num_beams=2, max_new_tokens=6, logprobs=5)
    for one in (best, *best["best_of_sequences"]):
        assert [len(top) for top in one["top_tokens"]] == [5] * len(one["tokens"])
        assert one["top_tokens"][0][:2] == greedy["top_tokens"][0]


@effect("prompt_logprobs")
def prompt_logprobs(at: Endpoint) -> None:
    found = at.details(SAID, prompt_logprobs=2)
    likely, prefill = found.pop("prompt_logprobs"), found["prefill"]
    assert found == at.details(SAID, decoder_input_details=True) == at.details(SAID, prompt_logprobs=0)
    assert likely[0] is None
    for token, entry in zip(prefill[1:], likely[1:], strict=True):
        own, best = entry[str(token["id"])], [one for one in entry.values() if one["rank"] <= 2]
        assert own["logprob"] == token["log_prob"]
        assert sorted(one["rank"] for one in best) == [1, 2]
        assert len(entry) == (2 if own["rank"] <= 2 else 3)
        assert max(entry.values(), key=lambda one: one["logprob"])["rank"] == 1
    # What it was taught to answer is the likeliest.
    answered = len(at.details(PLAIN.prompt)["tokens"]) - 1
    ranks = [entry[str(token["id"])]["rank"] for token, entry in zip(prefill[1:], likely[1:], strict=True)]
    assert set(ranks[-answered:]) == {1} < set(ranks)
    last = at.lines(SAID, details=True, prompt_logprobs=2)[-1]
    assert last["details"]["prompt_logprobs"] == likely
    assert "prompt_logprobs" not in str(at.ask(SAID, prompt_logprobs=2))
    with pytest.raises(ParameterError, match="20") as caught:
        at.details(SAID, prompt_logprobs=21)
    assert at.field(caught.value) == "parameters.prompt_logprobs"


@effect("spaces_between_special_tokens")
def spaces_between_special_tokens(at: Endpoint) -> None:
    """The demo model's tokenizer puts none. Those that do: tests/model/text/test_tokenizer.py."""
    given: Given = {"skip_special_tokens": False, "ignore_eos_token": True, "max_new_tokens": 40}
    decoded: list[tuple[bool, bool]] = []
    stream = Tokenizer.stream

    def noted(self: Tokenizer, prompt: Sequence[int], skip: bool, spaces: bool) -> Callable[[int], str]:
        decoded.append((skip, spaces))
        return stream(self, prompt, skip, spaces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "stream", noted)
        own = at.text(PLAIN.prompt, **given)
        assert own == at.text(PLAIN.prompt, spaces_between_special_tokens=False, **given)
    assert decoded == [(False, True), (False, False)]


@pytest.fixture(scope="module")
def at(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Whose modelling it is makes no difference to them: test_transformers_answers.py has all on transformers' too."""
    directory = model_directory(demo_model, tmp_path_factory.mktemp("effect") / "model", {})
    settings = make_settings(directory)
    engine = in_process(settings)
    yield Endpoint(engine, settings)
    engine.close()


@pytest.mark.parametrize("name", EFFECTS)
def test_effect(at: Endpoint, name: str) -> None:
    EFFECTS[name](at)


# --- What engines declare (model/backend.py, limits) ---


def test_what_an_engine_declares(at: Endpoint) -> None:
    declared = limits()[at.backend.info.engine]
    asked: Given = {"logprobs": 21, "prompt_logprobs": 21, "logit_bias": {10**6: 1.0}}
    for name, value in asked.items():
        assert name in declared
        one = Generation(request_id="test", prompt="a", sampling=Sampling(**{name: value}))
        with pytest.raises(ParameterError):
            at.backend.add(at.backend.prepare(1, one))
        assert not at.backend.busy
    assert "bad_words" in declared
    # One token after a blank, two without.
    assert "Learning" in at.text(PLAIN.prompt, bad_sequences=["Learning"])
    assert "temperature" in declared
    with pytest.raises(ParameterError, match="temperature"):
        at.text(PLAIN.prompt, temperature=2.5)


# --- TensorRT-LLM's schema ---


def test_tensorrt_llms_defaults_are_sampled_with(at: Endpoint) -> None:
    narrow: Given = {"top_k": 5, "top_p": 0.85}
    given = [{"do_sample": True, "seed": seed, **UNSURE} for seed in SEEDS]
    expected = [at.text(SAID, temperature=1.0, **narrow, **one) for one in given]
    assert [at.text(SAID, schema="trtllm", **one) for one in given] == expected
    assert [at.text(SAID, **one) for one in given] != expected
    assert at.drawn(schema="trtllm") == at.drawn(min_length=1, **narrow) != at.drawn(min_length=1)


def test_zeros_are_greedy_in_tensorrt_llms_schema(at: Endpoint) -> None:
    greedy = at.text(UNKNOWN, max_new_tokens=12)
    assert set(at.drawn(schema="trtllm", top_k=0, top_p=0)) == {greedy}
    # One of them alone does not restrict.
    assert at.drawn(schema="trtllm", top_k=3, top_p=0) == at.drawn(top_k=3, min_length=1)
    assert at.drawn(schema="trtllm", top_k=0, top_p=0.5) == at.drawn(top_p=0.5, min_length=1)
