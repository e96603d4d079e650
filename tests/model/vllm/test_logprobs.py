"""Log-probabilities as they are read from the core's arrays: what vLLM's own reader makes of the same arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from lmi.model.vllm.core_outputs import leave_rows

from ...demo.model import question
from ...kit.api.engine import vllm_core
from ...kit.api.types import Generation, Sampling, Started, Token
from ...kit.engines.backends import deltas, run

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


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """vLLM's LogprobsProcessors, which read the outputs that pass, by request."""
    from vllm.v1.engine.logprobs import LogprobsProcessor

    made: dict[str, Any] = {}
    core = vllm_core.Core
    sending, receiving = core.add, core.receive

    def add(self: Any, request: Any) -> None:
        made[request.request_id] = LogprobsProcessor.from_new_request(None, request)
        sending(self, request)

    async def receive(self: Any) -> Any:
        outputs = await receiving(self)
        for output in outputs:
            made[output.request_id].update_from_output(as_vllm_has_it(output))
        return outputs

    monkeypatch.setattr(core, "add", add)
    monkeypatch.setattr(core, "receive", receive)
    return made


def number(token: Token) -> float:
    assert token.logprob is not None
    return token.logprob


def test_log_probabilities_are_those_that_vllm_reads(backend: Any, readers: dict[str, Any]) -> None:
    """Of the chosen tokens, the likeliest and the prompt's, with others in the batch that want more or none."""
    asked_for = batch()
    events = run(backend, *asked_for)
    for index, (one, reader) in enumerate(zip(asked_for, readers.values(), strict=True)):
        tokens = [token for delta in deltas(events[index]) for token in delta.tokens]
        theirs_of_prompt, theirs = reader.prompt_logprobs or [], reader.logprobs or []
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


def test_another_form_is_read_by_vllms_own_decoder(caplog: pytest.LogCaptureFixture) -> None:
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.serial_utils import MsgpackDecoder

    class Shifted(MsgpackDecoder):  # type: ignore[misc, unused-ignore] # untyped in some versions
        """One that makes other numbers of what is sent."""

        def dec_hook(self, t: type, obj: Any) -> Any:
            made = super().dec_hook(t, obj)
            return made + 1 if isinstance(made, np.ndarray) else made

    decoder = Shifted(EngineCoreOutputs)
    own = decoder.decoder
    leave_rows(decoder)
    assert decoder.decoder is own
    (line,) = caplog.messages
    assert line.startswith("vLLM's own decoder reads the core's outputs")


@pytest.mark.parametrize("decoder", [None, SimpleNamespace()], ids=["no decoder", "another one"])
def test_a_client_without_such_a_decoder_is_left_alone(decoder: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = dict(vars(decoder)) if decoder else {}
    leave_rows(decoder)
    (line,) = caplog.messages
    assert line.startswith("vLLM's own decoder reads the core's outputs")
    assert (vars(decoder) if decoder else {}) == before
