"""What is counted of single requests is what vLLM's OutputProcessor counts of the same outputs."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily

from lmi.model.vllm.stats.requests import MAX_ADAPTERS, CountedRequests

pytestmark = pytest.mark.engine

ADAPTER = "mine#1"
"""As vLLM is told of it: with the number of its registration."""


def request(
    name: str, *, prompt: int = 5, most: int | None = 8, adapter: str | None = None, pools: bool = False
) -> Any:
    """As the input processor makes it; it arrived at 100 s."""
    from vllm import PoolingParams, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine import EngineCoreRequest

    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=[1] * prompt,
        mm_features=None,
        sampling_params=None if pools else SamplingParams(max_tokens=most, detokenize=False),
        pooling_params=PoolingParams(task="embed") if pools else None,
        arrival_time=100.0,
        lora_request=LoRARequest(lora_name=adapter, lora_int_id=1, lora_path="/") if adapter else None,
        cache_salt=None,
        data_parallel_rank=None,
        external_req_id=name,
    )


def output(name: str, tokens: int, *, events: str = "", cached: int | None = None, ends: str | None = None) -> Any:
    """`events`: words of EngineCoreEventType, one a second; `cached`: this ends the prefill, with so many tokens of it
    from the cache."""
    from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, FinishReason
    from vllm.v1.metrics.stats import PrefillStats

    prefill = None if cached is None else PrefillStats(5, 5 - cached, cached, cached)
    made = [
        EngineCoreEvent(type=EngineCoreEventType[word], timestamp=10.0 + second)
        for second, word in enumerate(events.split())
    ]
    return EngineCoreOutput(
        request_id=name,
        new_token_ids=[7] * tokens,
        finish_reason=None if ends is None else FinishReason[ends],
        events=made or None,
        prefill_stats=prefill,
    )


def steps() -> list[tuple[float, list[Any]]]:
    """Outputs, with the core's time: two sequences of one request, one with an adapter, one preempted, one aborted."""
    return [
        (12.0, [output("p-1.0", 1, events="QUEUED SCHEDULED", cached=2), output("p-1.1", 1, cached=0)]),
        (13.0, [output("p-1.0", 2), output("p-2.0", 1, events="QUEUED SCHEDULED", cached=0), output("p-1.1", 1)]),
        (13.5, [output("p-1.0", 1, ends="STOP"), output("p-2.0", 1, events="PREEMPTED SCHEDULED")]),
        (15.0, [output("p-3.0", 1, events="QUEUED SCHEDULED", cached=5), output("p-2.0", 1)]),
        (16.0, [output("p-1.1", 3, ends="LENGTH"), output("p-2.0", 1, ends="STOP")]),
    ]


def test_as_vllm_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.engine.output_processor import OutputProcessor
    from vllm.v1.engine.parallel_sampling import ParentRequest
    from vllm.v1.metrics import stats

    theirs, ours = OutputProcessor(None, log_stats=True), CountedRequests(max_loras=2)
    asked = {name: request(name) for name in ("p-1.0", "p-1.1", "p-3.0")}
    asked["p-2.0"] = request("p-2.0", prompt=3, most=None, adapter=ADAPTER)
    parent: Any = object.__new__(ParentRequest)
    parent.request_id, parent.external_req_id, parent.max_num_generation_tokens = "p-1", "p-1", 0
    parent.child_requests, parent.output_aggregator = {"p-1.0", "p-1.1"}, []
    params: Any = asked["p-1.0"].sampling_params.clone()
    params.n = 2
    parent.sampling_params = params
    for index, (name, one) in enumerate(asked.items()):
        theirs.add_request(one, None, parent if name.startswith("p-1") else None, index)
        ours.begin(one)
    for at, outputs in steps():
        monkeypatch.setattr("vllm.v1.metrics.stats.time.time", lambda at=at: 90.0 + at)
        expected = stats.IterationStats()
        # It changes what it is given.
        theirs.process_outputs([*outputs], at, expected)
        found = ours.iteration(EngineCoreOutputs(outputs=outputs, timestamp=at))
        assert vars(found) == vars(expected), at
        known = theirs.lora_states.requests
        assert [*map(adapters_of, ours.adapters())] == [("2", *names(known))], at
    theirs.abort_requests(["p-3.0"], internal=True)
    ours.drop(["p-3.0", "p-9.0"])
    assert not theirs.request_states
    left = ours.iteration(EngineCoreOutputs(outputs=[output("p-3.0", 1, ends="STOP")], timestamp=17.0))
    assert (left.finished_requests, left.num_generation_tokens, left.inter_token_latencies_iter) == ([], 1, [])


def adapters_of(family: GaugeMetricFamily) -> tuple[str, ...]:
    (sample,) = family.samples
    assert sample.name == "vllm:lora_requests_info"
    return tuple(sample.labels[name] for name in ("max_lora", "waiting_lora_adapters", "running_lora_adapters"))


def names(known: Any) -> tuple[str, str]:
    """As vLLM's PrometheusStatLogger labels them."""
    return (
        ",".join(name.partition("#")[0] for name, states in known.items() if states.waiting),
        ",".join(name.partition("#")[0] for name, states in known.items() if states.running),
    )


def test_what_a_label_names_is_bounded() -> None:
    from vllm.v1.engine import EngineCoreOutputs

    ours = CountedRequests(max_loras=200)
    for number in range(MAX_ADAPTERS + 20):
        name = f"p-{number}.0"
        ours.begin(request(name, adapter=f"a{number}#1"))
        outputs = [output(name, 1, events="QUEUED SCHEDULED", cached=0)]
        ours.iteration(EngineCoreOutputs(outputs=outputs, timestamp=12.0))
    ((_, waiting, running),) = map(adapters_of, ours.adapters())
    assert (waiting, len(running.split(","))) == ("", MAX_ADAPTERS)


def test_vectors() -> None:
    from vllm.v1.engine import EngineCoreOutputs

    ours = CountedRequests(max_loras=None)
    ours.begin(request("p-1.0", pools=True))
    outputs = EngineCoreOutputs(outputs=[output("p-1.0", 0, cached=0, ends="STOP")], timestamp=12.0)
    (finished,) = ours.iteration(outputs).finished_requests
    assert (finished.num_prompt_tokens, finished.max_tokens_param) == (5, None)
    assert not [*ours.adapters()]
