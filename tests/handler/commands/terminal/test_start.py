"""How far a start is, by lines that vLLM 0.23 and 0.32, transformers and this handler were seen to log."""

from __future__ import annotations

import pytest

from lmi.handler.commands.terminal.start import Start, Step

SHARDS = "(EngineCore pid=1) Loading safetensors checkpoint shards:  {:3}% Completed | {}/4 [00:00<00:00, 9.1it/s]"


class Clock:
    """Each look at it is a second later."""

    now = -1.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_steps() -> None:
    """One after the other; a bar is the progress of its own, and what it had begun is not begun again."""
    start = Start(Clock())
    assert start.steps == [Step("starting the engine", 0)]
    start.take("INFO 11-25 01:50:46 [model.py:611] Resolved architecture: LlamaForCausalLM")
    start.take("INFO 11-25 01:50:46 [model.py:611] Resolved architecture: LlamaDrafter")
    start.take(SHARDS.format(0, 0))
    start.take(SHARDS.format(50, 2))
    assert start.steps[-1] == Step("loading weights", 2, None, 2, 4)
    start.take(SHARDS.format(100, 4))
    start.take("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 5/10 [00:00<00:00]")
    start.end()
    start.end()
    assert start.steps == [
        Step("starting the engine", 0, 1),
        Step("reading the model's configuration", 1, 2),
        Step("loading weights", 2, 3, 4, 4),
        Step("preparing the engine", 3, 4),
        Step("capturing CUDA graphs", 4, 5, 5, 10),
    ]


@pytest.mark.parametrize(
    ("line", "done", "total"),
    [
        ("Loading pt checkpoint shards:  33% Completed | 1/3 [00:01<00:02,  1.00s/it]", 1, 3),
        ("Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:02,  1.00s/it]", None, None),
        ("Loading safetensors using Runai Model Streamer:  50% Completed | 1/2 [00:01<00:02]", 1, 2),
        ("Loading weights:  50%|█████     | 10/20 [00:00<00:00, 9000.00it/s]", 10, 20),
        ("Loading weights took 0.01 seconds", None, None),
    ],
)
def test_bars(line: str, done: int | None, total: int | None) -> None:
    start = Start()
    start.take(line)
    step = start.steps[-1]
    assert (step.name, step.done, step.total) == (
        ("starting the engine", 0, 0) if done is None else ("loading weights", done, total)
    )


def test_facts() -> None:
    start = Start()
    for line in (
        "(EngineCore pid=1) INFO 11-25 [gpu_model_runner.py:5187] Model loading took 14.99 GiB memory and 2.1 seconds",
        "(EngineCore pid=1) INFO 11-25 [gpu_worker.py:480] Available KV cache memory: 52.5 GiB",
        "INFO::lmi.model.vllm.cache_room the KV cache holds 2097152 tokens: 10.0 requests of max_model_len=4096",
        "INFO::lmi.model.process.client engine vllm 0.23.0 is ready, context 2048 tokens",
        "INFO::lmi.handler.service ready after 43.5 s",
    ):
        start.take(line)
    assert start.facts == {
        "memory of the weights": "14.99 GiB",
        "memory of the KV cache": "52.5 GiB",
        "KV cache": "2,097,152 tokens: 10.0 requests of max_model_len=4096",
        "engine": "vllm 0.23.0",
        "context": "2,048 tokens",
    }
