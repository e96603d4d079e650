"""Whose fault it is that vLLM's core gives up a guided sequence: what a client can mend is its own, nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ....kit.api.options import make_settings
from ....kit.api.types import Delta, EngineEvent, Failed, Generation, Sampling, StructuredOutput
from ....kit.engines.backends import NUMBERS, run
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

UNCOMPILED, REFUSED, UNREAD = "no[t] compiled", "re[f]used", "no[t] read"
"""Guides with which the core fails as one that is at fault itself."""


@pytest.fixture(scope="module")
def backend(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Its core, which is forked from this process, has faults."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend, XgrammarGrammar

    patch = pytest.MonkeyPatch()
    compiling, taking, reading = (
        XgrammarBackend.compile_grammar, XgrammarGrammar.accept_tokens, EngineCore.preprocess_add_request,
    )  # fmt: skip

    def compiled(self: Any, kind: Any, source: str, *more: Any, **named: Any) -> Any:
        if source == UNCOMPILED:
            raise ValueError("a fault")
        made: Any = compiling(self, kind, source, *more, **named)
        made.refusing = source == REFUSED
        return made

    def taken(self: Any, name: str, tokens: list[int]) -> bool:
        return not self.refusing and taking(self, name, tokens)

    def read(self: Any, request: Any) -> Any:
        guide = request.sampling_params and request.sampling_params.structured_outputs
        if guide and guide.regex == UNREAD:
            raise ValueError("a fault")
        return reading(self, request)

    patch.setattr(XgrammarBackend, "compile_grammar", compiled)
    patch.setattr(XgrammarGrammar, "accept_tokens", taken)
    patch.setattr(EngineCore, "preprocess_add_request", read)
    folder = model_directory(demo_model, tmp_path_factory.mktemp("guides") / "model", {})
    engine = in_process(make_settings(folder))
    yield engine
    engine.close()
    patch.undo()


def asked(guide: dict[str, Any], *, stream: bool = False, **sampling: Any) -> Generation:
    chosen = {"temperature": 0.0, "max_tokens": 20, **sampling}
    wanted = StructuredOutput(**guide)
    return Generation(request_id="r", prompt="Hi", sampling=Sampling(structured_output=wanted, **chosen), stream=stream)


FIELD = "sampling.structured_output"
NO_TOKEN, NOT_COMPILED = f"{FIELD}: no token of the model matches it", f"{FIELD}: it cannot be compiled"
SERVERS = "the engine failed while generating"

FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no text": ({"grammar": "root ::= root"}, {}, NO_TOKEN),
    "no text, drawn": ({"grammar": "root ::= root"}, {"temperature": 1.0}, NO_TOKEN),
    "no further text": ({"grammar": 'root ::= "a" b\nb ::= b'}, {}, NO_TOKEN),
    "no text within a character": ({"grammar": "root ::= [\\U0001F600] b\nb ::= b"}, {}, NO_TOKEN),
    "an end that min_tokens bars": ({"choice": ("a", "b")}, {"min_tokens": 10}, NO_TOKEN),
    "tokens behind an ignored end": ({"choice": ("a", "b")}, {"ignore_eos": True}, NO_TOKEN),
    "what bad_words bar": ({"choice": ("a",)}, {"bad_words": ("a",)}, NO_TOKEN),
    "the core cannot compile it": ({"regex": UNCOMPILED}, {}, NOT_COMPILED),
    "another token than it takes": ({"regex": REFUSED}, {}, SERVERS),
    "the core cannot read the request": ({"regex": UNREAD}, {}, SERVERS),
}
"""What is asked, and what is said; the server's faults are the last ones."""
ENDED = ("an end that min_tokens bars", "tokens behind an ignored end")
"""Later versions' guides take anything behind the end of their text."""


def takes_more_than_its_text() -> bool:
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    ended: Any = SimpleNamespace(_is_terminated=True, refusing=False)
    return bool(XgrammarGrammar.accept_tokens(ended, "r", [1]))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", FAULTS)
def test_whose_fault_it_is(backend: Any, case: str, stream: bool) -> None:
    guide, sampling, message = FAULTS[case]
    neighbour = Generation(request_id="n", prompt="Count up.", sampling=Sampling(temperature=0.0, max_tokens=60))
    (alone,) = run(backend, neighbour)
    failing, beside = run(backend, asked(guide, stream=stream, **sampling), neighbour)
    if case in ENDED and takes_more_than_its_text():
        assert "".join(event.text for event in failing if isinstance(event, Delta)).startswith("a")
        assert beside == alone
        return
    (failed,) = [event for event in failing if isinstance(event, Failed)]
    assert failed is failing[-1]
    expected = ("GenerationError", None) if message == SERVERS else ("ParameterError", FIELD)
    assert (failed.message, failed.kind, failed.param) == (message, *expected)
    assert beside == alone
    assert backend.core_ends()


def test_one_that_is_aborted_meanwhile_is_forgotten(backend: Any) -> None:
    guide, _, _ = FAULTS["no text"]
    number = next(NUMBERS)
    backend.add(backend.prepare(number, asked(guide)))
    seen: list[EngineEvent] = []
    # Why its core has given it up is found out on a thread of its own, of which the next message tells.
    seen += [event for _, event in backend.step()]
    backend.abort([number])
    assert not backend.busy
    assert backend.core_ends()
    assert not any(isinstance(event, Delta) for event in seen)


def test_a_sequence_that_is_guided_rightly_keeps_its_text(backend: Any) -> None:
    (whole,) = run(backend, asked({"regex": "[a-z]{3,9}"}))
    (streamed,) = run(backend, asked({"regex": "[a-z]{3,9}"}, stream=True))
    texts = ["".join(event.text for event in events if isinstance(event, Delta)) for events in (whole, streamed)]
    assert texts[0] == texts[1] != ""
