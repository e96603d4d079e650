"""A vLLM whose API differs is told at start, with the name of what failed, and never as a client's mistake. And what is
to be seen of a start with other options: priorities."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ...kit.api.errors import ParameterError, StartError
from ...kit.api.types import Conversation, Generation, Sampling, StructuredOutput
from ...kit.engines.said import SaidEngine

pytestmark = pytest.mark.engine


def _render_text(
    self: Any, prompts: Any, tokenize_params: Any, prompt_extras: Any = None, skip_mm_cache: bool = False
) -> Any:
    return self, prompts, tokenize_params.max_length, prompt_extras, skip_mm_cache


def _process_prompt(self: Any, prompt: Any, *, params: Any, skip_mm_cache: bool = False) -> Any:
    return self, prompt, params, skip_mm_cache


def _process(self: Any, request_id: str, prompt: Any, sampling_params: Any, *, supported_tasks: Any) -> Any:
    return self, request_id, prompt, sampling_params, supported_tasks


def _validate() -> None:
    """Without the parameters of a request."""


async def _receive(self: Any) -> Any:
    del self
    return SimpleNamespace(scheduler_stats=None, outputs=[SimpleNamespace(request_id="0.0", completions=[])])


RENDERER = "vllm.renderers.base:BaseRenderer"
REQUESTS = "vllm.v1.engine.input_processor:InputProcessor"
CLIENT = "tests.microbench.standin:StandInCore"
"""In the place of vllm.v1.engine.core_client:AsyncMPClient."""
GUIDES = "vllm.v1.structured_output:backend_xgrammar"

CHANGES: dict[str, tuple[str, str, Callable[..., Any], str]] = {
    "prepare": (RENDERER, "render_cmpl", _render_text, "'TokenizeParams' object has no attribute|max_length"),
    "a conversation": (RENDERER, "process_for_engine", _process_prompt, "TypeError: _process_prompt"),
    "a request": (REQUESTS, "process_inputs", _process, "TypeError: _process.. got an unexpected keyword argument"),
    "an output": (CLIENT, "get_output_async", _receive, "'types.SimpleNamespace' object has no attribute"),
    "a guide": (GUIDES, "validate_xgrammar_grammar", _validate, "structured output: TypeError: _validate"),
}
"""A class or module of vLLM's, its function, one with another signature or result in its place, what the start says."""


@pytest.mark.parametrize("place", CHANGES)
def test_the_start_tells(demo_model: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    owner, name, other, said = CHANGES[place]
    module, _, kind = owner.partition(":")
    monkeypatch.setattr(getattr(importlib.import_module(module), kind), name, other)
    with pytest.raises(StartError, match=rf"^vLLM \S+ cannot process .*({said}).* is supported$"):
        SaidEngine(demo_model)


def ours(*_: Any) -> None:
    # As a line of the package would.
    exec(compile("raise ValueError('a fault of ours')", "ours", "exec"), {"__name__": "lmi.ours"})


TALK = Conversation(messages=({"role": "user", "content": "Hi"},))


def asked(prompt: Any, **sampling: Any) -> Generation:
    return Generation(request_id="r", prompt=prompt, sampling=Sampling(**sampling))


def test_what_fails_later_is_no_clients_mistake(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that vLLM does not take, or an attribute that it does not have, is our fault; a template's is not."""
    backend: Any = SaidEngine(demo_model, chat_template="{{ messages[0].content.nothing.at.all }}").backend
    try:
        with pytest.raises(ParameterError, match="nothing"):
            backend.prepare(1, asked(TALK))
        with monkeypatch.context() as patch:
            patch.delattr("vllm.renderers.params.ChatParams.with_defaults")
            with pytest.raises(AttributeError, match="has no attribute 'with_defaults'"):
                backend.prepare(1, asked(TALK))
        guided = asked("Hi", structured_output=StructuredOutput(regex="a"))
        backend.prepare(1, guided)
        with monkeypatch.context() as patch:
            patch.setattr("vllm.v1.structured_output.backend_xgrammar.validate_xgrammar_grammar", lambda: None)
            with pytest.raises(TypeError, match="positional argument"):
                backend.prepare(1, guided)
        with monkeypatch.context() as patch:
            patch.setattr("lmi.model.vllm.request.requests.check_size", ours)
            with pytest.raises(ValueError, match="a fault of ours"):
                backend.prepare(1, asked("Hi"))
        broken = asked("Hi", structured_output=StructuredOutput(json_schema='{"type": "string", "format": []}'))
        with pytest.raises(ParameterError, match="cannot be compiled"):
            backend.prepare(1, broken)
    finally:
        backend.close()


@pytest.mark.parametrize(("policy", "given"), [("fcfs", 0), ("priority", -3)])
def test_a_priority_reaches_vllm_where_it_goes_by_priorities(demo_model: Path, policy: str, given: int) -> None:
    engine = SaidEngine(demo_model, scheduling_policy=policy)
    one = msgspec.structs.replace(asked("Hi", max_tokens=1), priority=-3)
    assert [request.priority for request in engine.backend.prepare(1, one).requests] == [given]
    engine.close()
