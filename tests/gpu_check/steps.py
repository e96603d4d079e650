"""What an NVIDIA device must be seen to do: `make gpu-check` runs it, and tests of every mode beside it (report.py).

The engines are behind the local server; of what they chose, vLLM's configuration and its log are asked. What a CPU has
none of is tried otherwise there, as the step tells.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx
import pytest

from ..demo.model import QUESTIONS, question
from ..kit.faults.kills import ENDLESS, alive, ask, end, engine_core, family, in_flight, well
from ..kit.hosts.host import Server, client, engine_process, eventually
from ..kit.models.adapted import BASE
from .bench import bench
from .engines import Engines

Tell = Callable[[str], None]

SOON = 2.0
"""Seconds within which each request in flight has its error when the engine dies."""
BACK = 300.0
"""Seconds that the engine may take to be back."""
TOGETHER = 3
"""How often each question is asked at once."""
LONG = 400
"""Tokens of the endless answer that speculative decoding is to write."""
KNOWN = [one for one in QUESTIONS if not one.endless]
PERIOD = question("endless").answer


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """What a step has seen, for the report."""
    return partial(record_property, "seen")


def test_device(engines: Engines, tell: Tell) -> None:
    """What vLLM chooses by itself; that it runs there at all is the fixture's."""
    tell(", ".join(f"{name} {value}" for name, value in engines.chosen.items()))


def test_cuda_graphs(engines: Engines, tell: Tell) -> None:
    """CUDA graphs are captured, and the answers are those that the model was taught."""
    log = engines.get("whole").log_text()
    assert "enforce_eager=False" in log, "the core's configuration is not in the log, or it is eager"
    answered = _known(engines.get("whole"))
    if engines.device == "cpu":
        _said(log, r"Warming up model for the compilation")
        tell(f"no graphs on a CPU, compiled alone; {answered}")
        return
    assert engines.chosen["cuda_graphs"] != "NONE", engines.chosen
    captured = _said(log, r"Graph capturing finished in .+ secs, took .+ GiB")
    attention = _said(log, r"Using \w+ attention backend")
    tell(f"{engines.chosen['cuda_graphs']}: {captured}; {attention}; {answered}")


def test_model_runner(engines: Engines, tell: Tell) -> None:
    """The model runner that vLLM says it uses is the one whose lines are in the log; V2 on a GPU."""
    log = engines.get("whole").log_text()
    second = engines.chosen["v2_runner"]
    if engines.device == "cpu":
        assert second is False, engines.chosen
        tell(f"V1, by vLLM: “{_said(log, r'Model Runner V2 requires Triton; using the V1 model runner instead')}”")
        return
    fallen = re.findall(r"[^\n]*using the V1 model runner instead", log)
    assert not fallen, fallen[0]
    assert second is True, engines.chosen
    said = _said(log, r"Using V2 Model Runner")
    first = _said(engines.get("plain").log_text(), r"\[gpu_model_runner\.py:\d+\] [^\n]+")
    tell(f"vLLM's configuration says V2; log: `{said}`; of the engine that is told to use V1: `{first}`")


def test_asynchronous_scheduling(engines: Engines, tell: Tell) -> None:
    """With asynchronous scheduling many streams at once are what an engine without it says of each alone.

    Only vLLM's configuration tells: on a CPU its log says that it is enabled, and its platform then turns it off.
    """
    assert engines.chosen["async_scheduling"] is (engines.device == "gpu"), engines.chosen
    whole, plain = engines.get("whole"), engines.get("plain")
    _said(plain.log_text(), r"Asynchronous scheduling is disabled")
    prompts = [one.prompt for one in KNOWN]
    alone = [_stream(asyncio.run(_streamed(plain, [prompt]))[0]) for prompt in prompts]
    assert alone == [one.answer for one in KNOWN]
    together = [_stream(one) for one in asyncio.run(_streamed(whole, prompts * TOGETHER))]
    assert together == alone * TOGETHER
    tell(f"{len(together)} streams at once, each the text of the engine without it (eager, runner V1)")


def test_prefix_caching(engines: Engines, tell: Tell) -> None:
    """A prompt that was there before is found in the cache: told by `usage` and counted by vLLM."""
    whole = engines.get("whole")
    # What goes on without an end: the next period is known, and the prompt is longer than a block of any size.
    prompt = ENDLESS + PERIOD * 15
    counter = "vllm:prefix_cache_hits_total"
    engines.metric(counter, "whole")  # vLLM's metrics count from the first scrape on
    cached: list[int] = []
    tokens = 0
    for _ in range(2):
        body = {"prompt": prompt, "max_tokens": 20, "temperature": 0}
        answer = httpx.post(f"{whole.url}/v1/completions", json=body, timeout=120).raise_for_status().json()
        text, usage = answer["choices"][0]["text"], answer["usage"]
        assert text, answer
        assert PERIOD.startswith(text), answer
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        tokens = usage["prompt_tokens"]
    assert cached[0] < cached[1], cached
    assert cached[1] > tokens // 2, (cached, tokens)
    counted = engines.metric(counter, "whole")
    assert counted == sum(cached), (counted, cached)
    tell(f"of {tokens} tokens {cached[0]} came from the cache at first, then {cached[1]}; vLLM counted {counted:.0f}")


def test_adapters(engines: Engines, tell: Tell) -> None:
    """Each adapter's answers are those of transformers with it merged into the weights, and not the model's own."""
    server, made = engines.get("adapters"), engines.adapted
    for name, answers in made.answers.items():
        for wanted in answers:
            # Tokens that are asked for are as many as transformers gave, unless it ended there.
            given = _adapted(server, wanted.prompt, len(wanted.ids), name)
            assert given == wanted.text, f"adapter {name!r}, {wanted.prompt!r}: got {given!r}, expected {wanted.text!r}"
            if name != BASE:
                own = _adapted(server, wanted.prompt, len(wanted.ids), BASE)
                assert own != given, f"adapter {name!r} changes nothing of {wanted.prompt!r}: {given!r}"
    asked = sum(map(len, made.answers.values()))
    tell(f"{asked} answers of {', '.join(made.folders)} and the model itself, each that of the merged weights")


def _adapted(server: Server, prompt: str, tokens: int, name: str) -> str:
    body: dict[str, Any] = {"inputs": prompt, "parameters": {"max_new_tokens": tokens, "do_sample": False}}
    if name != BASE:
        body["adapters"] = name
    answer = httpx.post(f"{server.url}/invocations", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["generated_text"])


def test_speculative_decoding(engines: Engines, tell: Tell) -> None:
    """Tokens are drafted and accepted, and the text is what it is without."""
    server = engines.get("speculative")
    names = [f"vllm:spec_decode_num_{what}_tokens_total" for what in ("draft", "accepted")]
    before = [engines.metric(name, "speculative") for name in names]
    answered = _known(server)
    body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": LONG}}
    texts: list[str] = []
    for one in (server, engines.get("plain")):
        answer = httpx.post(f"{one.url}/invocations", json=body, timeout=300)
        assert answer.status_code == 200, answer.text
        texts.append(answer.json()["generated_text"])
    assert texts[0] == texts[1]
    drafted, accepted = (engines.metric(name, "speculative") - first for name, first in zip(names, before, strict=True))
    assert drafted >= accepted > 0, (drafted, accepted)
    counts = f"{drafted:.0f} tokens drafted, {accepted:.0f} of them accepted ({100 * accepted / drafted:.0f} %)"
    tell(f"{counts}; {answered}, and {LONG} tokens more as without")


def test_a_killed_engine_is_back(engines: Engines, tell: Tell) -> None:
    """vLLM's core is killed in mid-stream: everything in flight has its error soon, and the engine comes back."""
    tell(asyncio.run(_death(engines.get("whole"))))


def test_bench_against_vllm_serve(engines: Engines, tell: Tell) -> None:
    tell(bench(engines))


async def _death(host: Server) -> str:
    async with client(host) as http:

        async def served() -> bool:
            await asyncio.sleep(0.2)
            return well(await ask(http))

        engine = engine_process(host)
        gone = family(engine)
        flight = await in_flight(http, "stream")
        killed = end(engine_core(host), signal.SIGKILL)
        answers = await asyncio.gather(*flight.tasks)
        for answer in answers:
            assert "ended by signal SIGKILL" in answer.error, answer
        slowest = max(answer.ended - killed for answer in answers)
        assert slowest < SOON, f"an error came after {slowest:.1f} s"
        await eventually(served, BACK)
        back = time.monotonic() - killed
    assert engine_process(host).pid != engine.pid
    assert not alive(gone), gone
    return (
        f"{len(answers)} requests in flight had their errors within {slowest:.2f} s (limit {SOON:.0f} s); "
        f"the next answer came after {back:.1f} s; nothing of the dead engine is left"
    )


def _known(server: Server) -> str:
    """The answers that the model was taught, asked for one by one."""
    for one in KNOWN:
        body = {"inputs": one.prompt, "parameters": {"max_new_tokens": 200}}
        answer = httpx.post(f"{server.url}/invocations", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.json()["generated_text"] == one.answer, one.prompt
    return f"{len(KNOWN)} answers word for word"


async def _streamed(server: Server, prompts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The lines of each prompt's stream, all asked for at once."""
    bodies = [{"inputs": prompt, "parameters": {"max_new_tokens": 200}, "stream": True} for prompt in prompts]
    async with client(server) as http:
        return [one.documents for one in await asyncio.gather(*map(http.stream, bodies))]


def _stream(documents: Sequence[dict[str, Any]]) -> str:
    """The text of a stream, which its last line repeats."""
    text = "".join(document["token"]["text"] for document in documents)
    assert documents[-1].get("generated_text") == text, documents[-1]
    return text


def _said(log: str, pattern: str) -> str:
    """What of the log matches; an error where nothing does."""
    found = re.search(pattern, log)
    assert found, f"nothing in the log is like {pattern!r}; its end:\n{log[-1500:]}"
    return found[0]
