"""Several sequences of one prompt on vLLM: each is a request of its own there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ...kit.api.options import make_settings
from ...kit.api.types import Event, Generation, Sampling, Started
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


def generation(prompt: str, *, stream: bool = True, **sampling: Any) -> Generation:
    return Generation(request_id="test", prompt=prompt, sampling=Sampling(**sampling), stream=stream, tokens=True)


def text(events: list[Event], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas(events, index))


def test_the_prompt_of_several_sequences_is_told_once(demo_model: Path, tmp_path: Path) -> None:
    """By the first sequence, which computes it without the prefix cache and so may come after the others."""
    directory = model_directory(demo_model, tmp_path / "model", {})
    engine = in_process(make_settings(directory, max_num_batched_tokens="64", max_rolling_batch_size="8"))
    try:
        prompt = "Once upon a time there was. " * 20
        asked = {"max_tokens": 4, "temperature": 1.0, "seed": 5, "logprobs": 0}
        (plain,) = run(engine, generation(prompt, n=3, **asked))
        alone = [run(engine, generation(prompt, prompt_logprobs=2, **{**asked, "seed": 5 + i}))[0] for i in range(3)]
        prepared = engine.prepare(1, generation(prompt, n=3, prompt_logprobs=2, **asked))
        assert [params.prompt_logprobs for params in prepared.params] == [2, None, None]
        assert [params.skip_reading_prefix_cache for params in prepared.params] == [True, False, False]
        for stream in (True, False):
            order: list[str] = []
            step = engine._llm.step

            def noting(step: Any = step, order: list[str] = order) -> Any:
                outputs = step()
                order += [output.request_id for output in outputs]
                return outputs

            engine._llm.step = noting
            (together,) = run(engine, generation(prompt, n=3, prompt_logprobs=2, stream=stream, **asked))
            engine._llm.step = step
            assert order[0] != "0.0", "the first one is the first to come: nothing is shown"
            assert [isinstance(event, Started) for event in together] == [True] + [False] * (len(together) - 1)
            begun = together[0]
            assert begun == msgspec.structs.replace(alone[0][0], cached_tokens=begun.cached_tokens)
            finishes = [delta.finish for delta in deltas(together) if delta.finish]
            assert [finish.last for finish in finishes] == [False, False, True]
            for index in range(3):
                assert text(together, index) == text(alone[index]) == text(plain, index)
    finally:
        engine.close()
