"""Every bound of vLLM's model runner V2: what is at it V2 takes; what is one beyond it V2 raises for, in the worker,
which ends the core, and ours refuses it before.

The tables of V2 (vllm/v1/worker/gpu/sample/, 0.23.0 and 0.32.0) are vLLM's own; only the memory that a CPU and a GPU
share is a CPU's alone here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm.request.bounds import RunnerBounds

from ....kit.api.errors import ParameterError
from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Generation, Sampling
from ....kit.engines.start import Front, front
from ....kit.hosts.host import model_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

VOCABULARY = 4096
ENDS = [VOCABULARY - 1, VOCABULARY - 2]
"""What the model ends with, besides its tokenizer's own."""


@pytest.fixture(scope="module")
def model_dir(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of more tokens, that nobody loads."""
    model = model_directory(demo_model, tmp_path_factory.mktemp("bounds") / "model", {})
    changes: dict[str, dict[str, Any]] = {
        "config.json": {"vocab_size": VOCABULARY},
        "generation_config.json": {"eos_token_id": ENDS},
    }
    for name, fields in changes.items():
        file = model / name
        given = json.loads(file.read_text()) if file.exists() else {}
        file.unlink(missing_ok=True)
        file.write_text(json.dumps(given | fields))
    return model


@pytest.fixture(scope="module")
def vllms(model_dir: Path) -> Front:
    return front(make_settings(model_dir, max_logprobs=str(2 * VOCABULARY)))


class CpuBuffer:
    """In place of UvaBuffer (buffer_utils.py of 0.26; later versions have one for a machine without such memory)."""

    def __init__(self, size: Any, dtype: Any) -> None:
        import torch

        self.cpu = self.uva = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()


@pytest.fixture
def take(vllms: Front, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """V2's own way to take a request's SamplingParams; raises as it does."""
    import torch
    from vllm.v1.worker.gpu import buffer_utils
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.states import RequestState

    if hasattr(buffer_utils, "NonUvaBuffer"):
        monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)
    else:
        monkeypatch.setattr(buffer_utils, "UvaBuffer", CpuBuffer)
    device = torch.device("cpu")
    sampler_class: Any = Sampler
    states = RequestState(2, 64, 64, 0, VOCABULARY, device)
    given = {"max_num_reqs": 2, "vocab_size": VOCABULARY, "device": device, "req_states": states}
    if "vllm_config" in inspect.signature(Sampler).parameters:
        given["vllm_config"] = vllms.core.vllm_config
    sampler = sampler_class(**given)
    # Some versions are given the prompt's length too.
    more = (3,) if "prompt_len" in inspect.signature(sampler.add_request).parameters else ()
    return lambda params: sampler.add_request(0, *more, params) and None


HAN = 0x4E00
"""From here on each character is three of the demo tokenizer's tokens, and four after a blank."""


def ids(count: int) -> list[int]:
    """Token ids, none of which the model ends with."""
    return [*range(100, 100 + count)]


def words(count: int) -> list[str]:
    return [chr(HAN + number) for number in range(count)]


OWN = len(ENDS) + 1
LONG = chr(HAN) * 341
"""1,023 tokens."""

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # logit_bias.py: MAX_NUM_STOP_TOKEN_IDS, with what the model ends with.
    "stop ids": (
        "stop_token_ids",
        {"min_tokens": 1, "stop_token_ids": ids(128 - OWN)},
        {"min_tokens": 1, "stop_token_ids": ids(129 - OWN)},
    ),
    "stop ids that end nothing": (
        "stop_token_ids",
        {"min_tokens": 1, "stop_token_ids": ids(128 - OWN), "ignore_eos": True},
        {"min_tokens": 1, "stop_token_ids": ids(129 - OWN), "ignore_eos": True},
    ),
    "biases": (
        "logit_bias",
        {"logit_bias": dict.fromkeys(ids(1024), 1.0)},
        {"logit_bias": dict.fromkeys(ids(1025), 1.0)},
    ),
    "allowed ids": ("allowed_token_ids", {"allowed_token_ids": ids(1024)}, {"allowed_token_ids": ids(1025)}),
    # bad_words.py: MAX_NUM_BAD_WORDS and MAX_BAD_WORDS_TOTAL_TOKENS, later VLLM_MAX_... in envs.py.
    "bad words": ("bad_words", {"bad_words": words(128)}, {"bad_words": words(129)}),
    # "a" is one token, and another one after a blank.
    "bad words that count twice": ("bad_words", {"bad_words": [*words(126), "a"]}, {"bad_words": [*words(127), "a"]}),
    "tokens of bad words": ("bad_words", {"bad_words": [LONG, "%"]}, {"bad_words": [LONG, "%%"]}),
    "tokens that count twice": ("bad_words", {"bad_words": ["a" * 512]}, {"bad_words": ["a" * 512, "%"]}),
}
"""The field; what is at the bound; what is one beyond it."""


def completed(vllms: Front, arguments: dict[str, Any]) -> Any:
    """SamplingParams as they go to the core."""
    from vllm import SamplingParams

    # Some versions compare it with what the tokenizer knows.
    allowed = arguments.get("allowed_token_ids")
    asked = {name: value for name, value in arguments.items() if name != "allowed_token_ids"}
    params = SamplingParams(max_tokens=20, detokenize=False, **asked)
    made = vllms.core.request({"type": "token", "prompt_token_ids": [5]}, params).sampling_params
    made.allowed_token_ids = allowed
    return made


def refused_by_vllms_front(vllms: Front, arguments: dict[str, Any]) -> str:
    """What it says of them; nothing where it takes them."""
    import vllm.exceptions

    try:
        completed(vllms, arguments)
    except (ValueError, getattr(vllm.exceptions, "VLLMClientError", ValueError)) as error:
        return str(error)
    return ""


@each_row("case", CASES)
def test_what_is_at_a_bound_is_taken(vllms: Front, take: Callable[[Any], None], case: str) -> None:
    params = completed(vllms, CASES[case][1])
    take(params)
    RunnerBounds(VOCABULARY).check(params)


@each_row("case", CASES)
def test_what_is_beyond_it_is_refused_before_v2_raises(vllms: Front, take: Callable[[Any], None], case: str) -> None:
    field, _, beyond = CASES[case]
    if refusal := refused_by_vllms_front(vllms, beyond):
        # From a later version on it counts some itself.
        assert "Too many bad words" in refusal
        return
    params = completed(vllms, beyond)
    with pytest.raises(ValueError, match=r"^Too many "):
        take(params)
    named = f"sampling.{field}"
    with pytest.raises(ParameterError, match=rf"^{named}: expected at most \d+ .+, got \d+$") as caught:
        RunnerBounds(VOCABULARY).check(params)
    assert caught.value.param == named


def test_stop_ids_without_min_tokens_have_no_bound(vllms: Front, take: Callable[[Any], None]) -> None:
    params = completed(vllms, {"stop_token_ids": ids(1024)})
    take(params)
    RunnerBounds(VOCABULARY).check(params)


def generation(**fields: Any) -> Generation:
    sampling = {name: fields.pop(name) for name in [*fields] if name in Sampling.__struct_fields__}
    given = {"prompt": (5,), "sampling": Sampling(**{"max_tokens": 20, **sampling}), **fields}
    return Generation(request_id="test", **given)


REFUSED: dict[str, tuple[Generation, str]] = {
    "what is beyond a bound": (generation(stop_token_ids=tuple(ids(126)), min_tokens=1), "sampling.stop_token_ids"),
    "allowed ids, of which none may come": (
        generation(allowed_token_ids=(5,), stop_token_ids=(5,), min_tokens=1),
        "sampling.allowed_token_ids",
    ),
    # option.max_logprobs is beyond the vocabulary here: torch.topk raises.
    "log-probabilities": (generation(logprobs=VOCABULARY + 1), "sampling.logprobs"),
    "log-probabilities of the prompt": (generation(prompt_logprobs=VOCABULARY + 1), "sampling.prompt_logprobs"),
    "a token id": (generation(prompt=(5, VOCABULARY)), "prompt"),
    "a token id below 0": (generation(prompt=(5, -1)), "prompt"),
    "a blank bad word": (generation(bad_words=("a", " ")), "sampling.bad_words"),
}


@each_row("case", REFUSED)
def test_what_ends_a_core_is_not_sent(vllms: Front, case: str) -> None:
    asked, path = REFUSED[case]
    # From a later version on vLLM counts bad words itself.
    with pytest.raises(ParameterError, match=rf"^{path}: (expected|Too many bad words) ") as caught:
        vllms.requests.prepare(1, asked)
    assert caught.value.param == path
    assert "\n" not in caught.value.message


TOKENS = 640
"""Of the demo model."""
BEYOND = "<|beyond|>"
"""A token of the tokenizer alone."""


@pytest.fixture(scope="module")
def tokenizer_with_more(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer has a token for which there is no row of weights, and which the model ends with."""
    model = model_directory(demo_model, tmp_path_factory.mktemp("more") / "model", {})
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": TOKENS, "content": BEYOND})
    for name, content in {
        "tokenizer.json": tokenizer,
        "generation_config.json": {"eos_token_id": [633, TOKENS]},
    }.items():
        (model / name).unlink()
        (model / name).write_text(json.dumps(content))
    return model


FOREIGN: dict[str, tuple[Generation, str]] = {
    "a bad word": (generation(bad_words=(BEYOND,)), "sampling.bad_words"),
    "a text": (generation(prompt=f"a{BEYOND}"), "prompt"),
    "token ids": (generation(prompt=(5, TOKENS)), "prompt"),
    "a conversation": (
        generation(prompt=Conversation(messages=({"role": "user", "content": BEYOND},))),
        "prompt",
    ),
    "an end": (generation(min_tokens=1), "sampling.min_tokens"),
    "an allowed token": (generation(allowed_token_ids=(5, TOKENS)), "sampling.allowed_token_ids"),
}


def test_a_token_that_the_model_does_not_have_is_not_sent(tokenizer_with_more: Path) -> None:
    requests = front(make_settings(tokenizer_with_more)).requests
    for asked, field in FOREIGN.values():
        # Of allowed tokens 0.32 says it itself.
        with pytest.raises(ParameterError, match=rf"^{field}: (expected token.* {TOKENS}|contains out-of)") as caught:
            requests.prepare(1, asked)
        assert caught.value.param == field
    assert requests.prepare(1, generation(prompt="a", bad_words=("b",))).prompt_ids[-1] == 64


def test_what_is_at_the_bounds_is_prepared(vllms: Front) -> None:
    asked = generation(
        stop_token_ids=tuple(ids(125)), min_tokens=1, bad_words=(LONG, "%"), logprobs=VOCABULARY,
        logit_bias=dict.fromkeys(ids(1024), 1.0), prompt=(5, VOCABULARY - 1),
    )  # fmt: skip
    assert vllms.requests.prepare(1, asked).tokens == 22
