"""Log-probabilities as they are read from the core's arrays: what vLLM's own reader makes of the same arrays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from lmi.model.vllm.core_outputs import leave_rows

from ...demo.model import question
from ...kit.api.options import make_settings
from ...kit.api.types import Generation, Sampling, Started, Token
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


@pytest.fixture
def backend(plain_backend: Any) -> Any:
    """Three tokens a step where streamed: several rows of numbers at once."""
    return plain_backend


def asked(kind: str, logprobs: int | None, *, stream: bool = True, **sampling: Any) -> Generation:
    chosen = Sampling(**{"temperature": 0.0, "max_tokens": 40, "logprobs": logprobs, **sampling})
    return Generation(request_id="test", prompt=question(kind).prompt, sampling=chosen, stream=stream, tokens=True)


def batch() -> list[Generation]:
    """Requests of all kinds side by side, so that the arrays have columns for others."""
    return [
        asked("long", 0),
        asked("unicode", 0, stream=False),
        asked("long", 4),
        asked("plain", None),
        asked("plain", 2, prompt_logprobs=3),
        asked("endless", 0, stop=(question("endless").answer[20:24],)),
    ]


def as_vllm_has_it(output: Any) -> Any:
    """An EngineCoreOutput with the arrays that vLLM's decoder makes of what comes."""
    from vllm.v1.outputs import LogprobsLists

    if (rows := output.new_logprobs) is None:
        return output
    ids, logprobs, ranks = (
        np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in (rows.ids, rows.logprobs, rows.ranks)
    )
    return msgspec.structs.replace(output, new_logprobs=LogprobsLists(ids, logprobs, ranks))


class Read:
    """What vLLM's LogprobsProcessor reads of the outputs that pass, by request: of its prompt and of its tokens."""

    def __init__(self, core: Any) -> None:
        self._receive, self._add = core.receive, core.add
        self._readers: dict[str, Any] = {}

    def add(self, request: Any) -> None:
        from vllm.v1.engine.logprobs import LogprobsProcessor

        self._readers[request.request_id] = LogprobsProcessor.from_new_request(None, request)
        self._add(request)

    async def receive(self) -> Any:
        outputs = await self._receive()
        for output in outputs:
            self._readers[output.request_id].update_from_output(as_vllm_has_it(output))
        return outputs

    def told(self, number: int) -> tuple[list[Any], list[Any]]:
        """Of the n-th request."""
        reader = [*self._readers.values()][number]
        return reader.prompt_logprobs or [], reader.logprobs or []


def number(token: Token) -> float:
    assert token.logprob is not None
    return token.logprob


def test_log_probabilities_are_those_that_vllm_reads(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the chosen tokens, the likeliest and the prompt's, with others in the batch that want more or none."""
    read = Read(backend._core)
    monkeypatch.setattr(backend._core, "add", read.add)
    monkeypatch.setattr(backend._core, "receive", read.receive)
    asked_for = batch()
    events = run(backend, *asked_for)
    for index, one in enumerate(asked_for):
        tokens = [token for delta in deltas(events[index]) for token in delta.tokens]
        theirs_of_prompt, theirs = read.told(index)
        wanted = one.sampling.logprobs
        if wanted is None:
            assert not theirs
            assert all(token.logprob is None for token in tokens)
            continue
        # What follows a stop string is not shown.
        assert len(theirs) >= len(tokens) >= 10
        for token, entry in zip(tokens, theirs, strict=False):
            assert number(token) == entry[token.id].logprob
            likely = sorted((known.logprob for known in entry.values()), reverse=True)[:wanted]
            assert [top.logprob for top in token.top] == likely
            assert all(entry[top.id].logprob == top.logprob for top in token.top)
        begun = events[index][0]
        assert isinstance(begun, Started)
        prefilled = one.sampling.prompt_logprobs
        assert len(begun.prefill) == (0 if prefilled is None else len(theirs_of_prompt))
        for token, rank, entry in zip(begun.prefill, begun.ranks, theirs_of_prompt, strict=True):
            if entry is None:
                assert (token.logprob, rank, token.top) == (None, None, ())
                continue
            assert (token.logprob, rank) == (entry[token.id].logprob, entry[token.id].rank)
            assert len(token.top) == prefilled
            assert all(entry[top.id].logprob == top.logprob for top in token.top)


def _other_places(decoder: Any) -> Any:
    """Of a core that has the token ids where the log-probabilities are read."""
    names: Any = [("request_id", str), ("new_logprobs", Any, None), ("new_token_ids", Any, ())]
    output = msgspec.defstruct("Output", names, array_like=True)
    several: Any = [("engine_index", int), ("outputs", list[output])]  # type: ignore[valid-type]
    outputs = msgspec.defstruct("Outputs", several, array_like=True)
    return msgspec.msgpack.Decoder(outputs, ext_hook=decoder.ext_hook, dec_hook=decoder.dec_hook)


def _no_hooks(decoder: Any) -> Any:
    raise AttributeError(f"{type(decoder).__name__!r} object has no attribute 'dec_hook'")


@pytest.mark.parametrize("other", [_other_places, _no_hooks])
def test_another_form_is_read_by_vllms_own_decoder(
    other: Any,
    backend: Any,
    demo_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("lmi.model.vllm.core_outputs._row_decoder", other)
    engine = in_process(make_settings(model_directory(demo_model, tmp_path / "model", {}), stream_interval="3"))
    try:
        assert [line for line in caplog.messages if line.startswith("vLLM's own decoder reads the core's outputs")]
        for one in batch():
            assert run(engine, one) == run(backend, one)
    finally:
        engine.close()


@pytest.mark.parametrize("decoder", [None, SimpleNamespace()], ids=["no decoder", "another one"])
def test_a_client_without_such_a_decoder_is_left_alone(decoder: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = dict(vars(decoder)) if decoder else {}
    leave_rows(decoder)
    (line,) = caplog.messages
    assert line.startswith("vLLM's own decoder reads the core's outputs")
    assert (vars(decoder) if decoder else {}) == before
