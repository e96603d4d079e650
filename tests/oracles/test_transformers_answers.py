"""Answers of transformers, which vLLM gives too, with transformers' modelling (`model_impl=transformers`) and its own.

transformers_answers.json was recorded from the engine on transformers that this project had: transformers 5.23.0, its
continuous batching and its logits processors, on torch 2.11.0 and a CPU; the cases of one engine ran in one batch. It
has that engine's options and parameters, all that run on a CPU without other packages. `weights` is the SHA-256 of the
demo model's model.safetensors: one that was trained elsewhere may be rounded otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import QUESTIONS
from ..kit.api.options import make_settings
from ..kit.api.types import Conversation, Generation, Sampling, Started, StructuredOutput
from ..kit.engines.backends import deltas, run
from ..kit.engines.start import in_process
from ..kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

RECORD = json.loads(Path(__file__).with_name("transformers_answers.json").read_text("utf-8"))
KNOWN = {asked.answer for asked in QUESTIONS}
"""What any demo model answers, however it was rounded while it was trained."""
CLOSE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2}
"""By how much log-probabilities may differ."""
ENGINES = [
    pytest.param(engine, marks=[pytest.mark.slow] * bool(number), id=" ".join(engine["options"])[:60])
    for number, engine in enumerate(RECORD["engines"])
]
"""The first has all the parameters, the others options."""


def plain(value: Any) -> Any:
    """A value of the record as Generation has it."""
    return tuple(value) if isinstance(value, list) else value


def generation(case: Mapping[str, Any]) -> Generation:
    prompt: Any = case["prompt"]
    if isinstance(prompt, dict):
        prompt = Conversation(**{name: plain(value) for name, value in prompt.items()})
    sampling = {name: plain(value) for name, value in case["sampling"].items()}
    if "logit_bias" in sampling:
        sampling["logit_bias"] = {int(token): value for token, value in sampling["logit_bias"].items()}
    if "structured_output" in case:
        guide = {name: plain(value) for name, value in case["structured_output"].items()}
        sampling["structured_output"] = StructuredOutput(**guide)
    return Generation(
        request_id="test", prompt=plain(prompt), sampling=Sampling(**{"temperature": 0.0, **sampling}), tokens=True
    )


def differences(case: Mapping[str, Any], events: list[Any], same: bool, close: float) -> list[str]:
    """What of an answer is not as recorded. Of a model that is not the `same`: whether it knows its answers."""
    if not isinstance(events[0], Started):
        return [f"{events}"]
    found: list[str] = []
    for index in range(case["sampling"].get("n", 1)):
        (whole,) = deltas(events, index)
        assert whole.finish is not None
        seen: dict[str, Any] = {"text": whole.text, "reason": whole.finish.reason}
        if same:
            seen |= {"stop": whole.finish.stop, "ids": [token.id for token in whole.tokens]}
        if same or case["text"] in KNOWN:
            found += [f"{name}: {seen[name]}, not {case.get(name)}" for name in seen if seen[name] != case.get(name)]
        numbers: dict[str, list[Any]] = {
            "logprobs": [token.logprob for token in whole.tokens],
            "likely": [[top.logprob for top in token.top] for token in whole.tokens],
            "prompt_logprobs": [token.logprob for token in events[0].prefill],
        }
        for name in numbers.keys() & case.keys() if same and not found else ():
            pairs = zip(numbers[name], case[name], strict=True)
            found += [f"{name}: {one}, not {other}" for one, other in pairs if one != pytest.approx(other, abs=close)]
    return found


@pytest.mark.parametrize("modelling", ["transformers", "vllm"])
@pytest.mark.parametrize("recorded", ENGINES)
def test_answers(recorded: dict[str, Any], modelling: str, demo_model: Path, tmp_path: Path) -> None:
    options = {name: str(demo_model) if text == "TOKENIZER" else text for name, text in recorded["options"].items()}
    close = CLOSE[options.get("option.dtype", "fp32")]
    if modelling == "vllm":
        options |= {"option.rolling_batch": "vllm", "option.backend": "vllm"}
    weights = hashlib.sha256((demo_model / "model.safetensors").read_bytes()).hexdigest()
    backend = in_process(make_settings(model_directory(demo_model, tmp_path / "model", options)))
    try:
        assert backend._core.model_config.using_transformers_backend() is (modelling == "transformers")
        answers = run(backend, *map(generation, recorded["cases"]))
    finally:
        backend.close()
    found: dict[str, list[str]] = {}
    for case, events in zip(recorded["cases"], answers, strict=True):
        if wrong := differences(case, events, weights == RECORD["weights"], close):
            found[case["name"]] = wrong
    assert not found
