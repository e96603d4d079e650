"""typical_p on vLLM: what is kept against transformers' warper, the processors of both runners, and the engine."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi.model.vllm import typical as vllm_typical
from lmi.model.vllm.typical import ARGUMENT, Typical

from ...kit.api.engine import v2_takes_processors
from ...kit.api.errors import OptionError, UnsupportedError
from ...kit.api.options import make_settings, typed_settings
from ...kit.api.types import Beams, Delta, EngineEvent, Failed, Generation, Sampling
from ...kit.engines import backends
from ...kit.engines.backends import deltas
from ...kit.engines.start import own_process
from ...kit.faults.kills import WORKER_APART
from ...kit.hosts.host import model_directory

SETTINGS = typed_settings()
PROMPT = "Tell me"


# --- Where it is allowed ---


def config(*, second: bool = False, asynchronous: bool = False, speculative: bool = False, given: Any = None) -> Any:
    """What is asked of a VllmConfig."""
    return SimpleNamespace(
        use_v2_model_runner=second,
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        speculative_config=object() if speculative else None,
        model_config=SimpleNamespace(logits_processors=given),
    )


def decided(wanted: str, vllm: Any) -> Typical:
    typical = Typical(msgspec.structs.replace(SETTINGS, enable_typical_p=wanted))
    typical.decide(vllm)
    return typical


V1 = "lmi.model.vllm.typical:V1"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it chooses a model runner."""
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)


@pytest.fixture(params=[False, True], ids=["without", "with"])
def interface(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether vLLM's model runner V2 takes processors."""
    monkeypatch.setattr(vllm_typical, "v2_takes_processors", lambda: request.param)
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["", "forced"])
def forced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether vLLM's environment insists on model runner V2."""
    monkeypatch.setattr(vllm_typical, "v2_is_forced", lambda: request.param)
    return bool(request.param)


@pytest.mark.parametrize("wanted", ["auto", "true", "false"])
@pytest.mark.parametrize("given", [None, ["mine:Own"]], ids=["none", "own"])
def test_what_is_asked_of_vllm_from_the_start(wanted: str, given: Any, interface: bool, forced: bool) -> None:
    """The first runner's processor where it alone makes a second one that takes none go; else nothing."""
    arguments = {"model": "/model"} if given is None else {"model": "/model", "logits_processors": given}
    before = dict(arguments)
    Typical(msgspec.structs.replace(SETTINGS, enable_typical_p=wanted)).ask(arguments)
    if wanted == "true" and not interface and not forced:
        assert arguments == {**before, "logits_processors": [*(given or []), V1]}
    else:
        assert arguments == before


def test_what_was_asked_from_the_start_is_not_added_again(interface: bool) -> None:
    """vLLM's configuration then says that it runs V1."""
    made = config(given=["mine:Own", V1], asynchronous=True)
    typical = decided("true", made)
    assert made.model_config.logits_processors == ["mine:Own", V1]
    assert typical.arguments(Sampling(typical_p=0.5)) == {ARGUMENT: 0.5}


NO_INTERFACE = "vLLM's model runner V2 takes no logits processors in this version"


@pytest.mark.parametrize("speculative", [False, True], ids=["", "speculative"])
def test_a_second_runner_that_takes_no_processors(
    speculative: bool, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to vLLM 0.28. typical_p is refused, naming the option where that helps; asked for, the start fails."""
    monkeypatch.setattr(vllm_typical, "v2_takes_processors", lambda: False)
    made = config(second=True, asynchronous=True, speculative=speculative)
    helps = "" if speculative or forced else "; option.enable_typical_p=true goes back to V1"
    typical = decided("auto", made)
    assert typical.refusal == NO_INTERFACE + helps
    assert made.model_config.logits_processors is None
    with pytest.raises(UnsupportedError):
        typical.arguments(Sampling(typical_p=0.5))
    with pytest.raises(OptionError, match=f"got 'true': {NO_INTERFACE}"):
        decided("true", config(second=True, asynchronous=True, speculative=speculative))


def test_a_second_runner_that_takes_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of 0.32, beside asynchronous scheduling and speculative decoding."""
    monkeypatch.setattr(vllm_typical, "v2_takes_processors", lambda: True)
    for wanted in ("auto", "true"):
        made = config(second=True, asynchronous=True, speculative=True)
        assert not decided(wanted, made).refusal
        assert made.model_config.logits_processors == ["lmi.model.vllm.typical:V2"]


@pytest.mark.engine
def test_vllm_goes_back_to_its_first_runner(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own configuration of the demo model, a dense Llama, as it would be where there is Triton."""
    import vllm.config.vllm
    from vllm import EngineArgs

    monkeypatch.setattr(vllm.config.vllm, "HAS_TRITON", True)
    chosen: dict[str, tuple[bool, str, Any]] = {}
    for wanted in ("auto", "true"):
        typical = Typical(msgspec.structs.replace(SETTINGS, enable_typical_p=wanted))
        arguments: dict[str, Any] = {"model": str(demo_model), "runner": "generate", "max_model_len": 256}
        typical.ask(arguments)
        made = EngineArgs(**arguments).create_engine_config()
        typical.decide(made)
        chosen[wanted] = (bool(made.use_v2_model_runner), typical.refusal, made.model_config.logits_processors)
    if v2_takes_processors():
        second = (True, "", ["lmi.model.vllm.typical:V2"])
        assert chosen == {"auto": second, "true": second}
    else:
        refused = f"{NO_INTERFACE}; option.enable_typical_p=true goes back to V1"
        assert chosen == {"auto": (True, refused, None), "true": (False, "", [V1])}


@pytest.mark.parametrize(
    ("wanted", "vllm", "processors"),
    [
        ("auto", {}, [V1]),
        ("auto", {"given": ["mine:Own"]}, ["mine:Own", V1]),
        ("true", {"asynchronous": True}, [V1]),
    ],
)
def test_the_processor_is_added(wanted: str, vllm: dict[str, Any], processors: list[str]) -> None:
    made = config(**vllm)
    typical = decided(wanted, made)
    assert made.model_config.logits_processors == processors
    assert typical.arguments(Sampling(typical_p=0.5)) == {ARGUMENT: 0.5}


@pytest.mark.parametrize(
    ("wanted", "vllm", "reason"),
    [
        ("false", {}, "option.enable_typical_p is false"),
        ("auto", {"asynchronous": True}, "it slows down vLLM's asynchronous scheduling; option.enable_typical_p=true"),
        ("auto", {"speculative": True}, "vLLM takes no logits processors together with speculative decoding"),
    ],
)
def test_where_it_is_not_it_is_refused_by_name(wanted: str, vllm: dict[str, Any], reason: str) -> None:
    """vLLM's configuration is left alone; a value that changes nothing passes."""
    made = config(**vllm)
    typical = decided(wanted, made)
    assert made.model_config.logits_processors is None
    with pytest.raises(UnsupportedError) as caught:
        typical.arguments(Sampling(typical_p=0.5))
    assert caught.value.message.startswith(f"sampling.typical_p: not supported here ({reason}")
    assert caught.value.param == "sampling.typical_p"
    assert typical.arguments(Sampling(typical_p=1.0)) == typical.arguments(Sampling()) == {}


def test_an_option_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="enable_typical_p: expected false or auto, got 'true': vLLM takes no logits"):
        decided("true", config(speculative=True))


# --- What is kept ---


@pytest.mark.engine
@pytest.mark.parametrize("mass", [0.05, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("masked", [False, True])
def test_like_transformers(mass: float, masked: bool) -> None:
    """The same tokens as TypicalLogitsWarper keeps, in rows with a mass of their own beside rows without."""
    import torch
    from transformers import TypicalLogitsWarper

    from lmi.model.vllm.typical import keep_typical

    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(3)) * torch.arange(1, 7).unsqueeze(1)
    if masked:
        logits[:, ::3] = -torch.inf
    column = torch.full((6, 1), mass)
    column[2] = 1.0
    column[4] = 0.5
    warper: Any = TypicalLogitsWarper
    kept = keep_typical(logits.clone(), column)
    for row in range(6):
        own = float(column[row])
        expected = logits[row : row + 1] if own == 1 else warper(own)(None, logits[row : row + 1])
        assert torch.equal(kept[row], expected[0])
        assert torch.isfinite(kept[row]).any()


def params(mass: float | None, temperature: float = 1.0) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=temperature, extra_args=None if mass is None else {ARGUMENT: mass})


@pytest.mark.engine
def test_the_first_runners_processor_follows_its_requests() -> None:
    """As they come, move and go, the rows are theirs and nobody else's."""
    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    from lmi.model.vllm import typical as vllm_typical

    processor = vllm_typical.V1(None, torch.device("cpu"), False)
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(5))

    def rows() -> list[int]:
        out = processor.apply(logits.clone())
        return [row for row in range(4) if torch.isinf(out[row]).any()]

    processor.update_state(None)
    assert rows() == []
    added: list[Any] = [(0, params(None), None, []), (1, params(0.3), None, []), (3, params(0.5), None, [])]
    processor.update_state(BatchUpdate(4, removed=[], added=added, moved=[]))
    assert rows() == [1, 3]
    assert torch.equal(
        processor.apply(logits.clone())[1], vllm_typical.keep_typical(logits[1:2], torch.tensor([[0.3]]))[0]
    )
    processor.update_state(BatchUpdate(3, removed=[1], added=[], moved=[(3, 2, MoveDirectionality.UNIDIRECTIONAL)]))
    assert rows() == [2]
    processor.update_state(BatchUpdate(3, removed=[], added=[(2, params(None), None, [])], moved=[]))
    assert rows() == []


@pytest.mark.engine
def test_the_second_runners_processor() -> None:
    """It sees logits ahead of the temperature, by slot."""
    import numpy as np
    import torch

    from lmi.model.vllm import typical as vllm_typical

    if not v2_takes_processors():
        pytest.skip("this vLLM's model runner V2 takes no logits processors")
    made = config(second=True, asynchronous=True, speculative=True)
    assert not decided("auto", made).refusal
    assert made.model_config.logits_processors == ["lmi.model.vllm.typical:V2"]
    processor: Any = vllm_typical.V2(None, SimpleNamespace(max_num_reqs=8, device=torch.device("cpu")))
    asked = [params(0.3, 2.0), params(None), params(0.3, 0.0), params(0.6)]
    assert [processor.add_request(slot, one) for slot, one in zip((5, 1, 2, 7), asked, strict=True)] == [
        True,
        False,
        False,
        True,
    ]
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(5))

    def apply(*slots: int) -> Any:
        context = SimpleNamespace(idx_mapping_np=np.array(slots), expanded_idx_mapping=torch.tensor(slots).int())
        return processor.apply(logits[: len(slots)].clone(), context)

    assert torch.equal(apply(1, 2), logits[:2])
    out = apply(1, 5, 7)
    assert torch.equal(out[0], logits[0])
    for row, (mass, temperature) in ((1, (0.3, 2.0)), (2, (0.6, 1.0))):
        kept = vllm_typical.keep_typical(logits[row : row + 1] / temperature, torch.tensor([[mass]]))[0]
        assert torch.equal(torch.isfinite(out[row]), torch.isfinite(kept))
        assert torch.isinf(out[row]).any()
    # A slot's next request begins anew.
    assert not processor.add_request(5, params(None))
    assert torch.equal(apply(5), logits[:1])


# --- On the engine ---


@pytest.fixture
def backend(plain_backend: Any) -> Any:
    return plain_backend


def generation(**sampling: Any) -> Generation:
    given = {"temperature": 2.0, "seed": 4, "max_tokens": 40, "ignore_eos": True, **sampling}
    return Generation(request_id="test", prompt=PROMPT, sampling=Sampling(**given), tokens=True)


def run(backend: Any, *generations: Generation) -> list[list[int]]:
    """The token ids of each."""
    answers = backends.run(backend, *generations)
    return [[token.id for delta in deltas(events) for token in delta.tokens] for events in answers]


@pytest.mark.engine
def test_every_token_drawn_is_typical(backend: Any, demo_model: Path) -> None:
    """Of what transformers' model and warper leave at each place, one was drawn; without it some would not be."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TypicalLogitsWarper

    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32).eval()
    prompt = AutoTokenizer.from_pretrained(demo_model)(PROMPT)["input_ids"]
    typical, free = run(backend, generation(typical_p=0.2, logprobs=0), generation(logprobs=0))
    warper: Any = TypicalLogitsWarper(0.2)
    outside: list[int] = []
    for ids in (typical, free):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / 2.0
        kept = warper(None, logits)
        outside.append(sum(not torch.isfinite(kept[place, token]) for place, token in enumerate(ids)))
    assert outside[0] == 0
    assert outside[1] > 5


@pytest.mark.engine
def test_seeds_and_neighbours(backend: Any) -> None:
    """The same seed, the same tokens, alone or beside others; who does not ask for it is not touched."""
    (alone,) = run(backend, generation(typical_p=0.8))
    (plain,) = run(backend, generation())
    # On a CPU vLLM 0.26 and 0.32 forget the seeds of all where one request has none, so that these have theirs.
    together = run(
        backend, generation(), generation(typical_p=0.8), generation(typical_p=0.05), generation(typical_p=1.0)
    )
    assert together[:2] == [plain, alone]
    assert together[3] == plain
    assert len({tuple(ids) for ids in together}) == 3


@pytest.mark.engine
def test_greedy_is_greedy(backend: Any) -> None:
    """Alone and beside requests that draw their tokens."""
    greedy = generation(temperature=0.0)
    (alone,) = run(backend, greedy)
    assert run(backend, generation(temperature=0.0, typical_p=0.05), generation(typical_p=0.05), greedy)[::2] == [
        alone,
        alone,
    ]


@pytest.mark.slow
@pytest.mark.engine
def test_a_model_in_a_process_of_its_own(
    backend: Any, demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads the processor by its name. Beam search feeds it from outside, too."""
    asked = [
        generation(typical_p=0.3),
        Generation(
            request_id="test",
            prompt=PROMPT,
            sampling=Sampling(temperature=0.0, max_tokens=12, n=3, beams=Beams(width=3)),
            tokens=True,
        ),
    ]
    alone = [run(backend, one)[0] for one in asked]
    for name, value in WORKER_APART.items():
        monkeypatch.setenv(name, value)
    model_dir = model_directory(demo_model, tmp_path / "model", {"option.enable_typical_p": "true"})
    engine = own_process(make_settings(model_dir))
    ended = [threading.Event() for _ in asked]
    events: list[list[EngineEvent]] = [[] for _ in asked]

    def sink(number: int, event: EngineEvent) -> None:
        events[number].append(event)
        if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish and event.finish.last):
            ended[number].set()

    try:
        engine.start()
        for number, one in enumerate(asked):
            engine.submit(one, functools.partial(sink, number))
            assert ended[number].wait(60)
    finally:
        engine.close()
    for expected, found in zip(alone, events, strict=True):
        assert [token.id for event in found if isinstance(event, Delta) for token in event.tokens] == expected
