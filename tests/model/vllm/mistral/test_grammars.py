"""Calls of version 11 and later: what grammars let a model write, what runs them, a mistral-common without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.dialects import parse
from ....kit.api.errors import OptionError
from ....kit.engines.backends import NUMBERS
from ....kit.engines.said import SaidEngine
from ....kit.models.mistral import mistral_directory, token_ids

pytestmark = pytest.mark.engine

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


TOOLS = [tool("look_up"), tool("find")]
LOOK, FIND = '[TOOL_CALLS]look_up[ARGS]{"word": "a"}', '[TOOL_CALLS]find[ARGS]{"word": "a"}'
OTHER, WRONG = '[TOOL_CALLS]other[ARGS]{"word": "a"}', '[TOOL_CALLS]look_up[ARGS]{"word": 1}'
NAMED = {"type": "function", "function": {"name": "look_up"}}
JSON = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "required": ["a"]}}}
GUIDES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "auto": ({}, ["Sunny.", LOOK, FIND, LOOK + FIND, "Let me see." + LOOK], ["[TOOL_CALLS]", "a[ARGS]", "[INST]"]),
    "auto, one call": ({"parallel_tool_calls": False}, ["Sunny.", LOOK], [LOOK + FIND]),
    "auto, strict": ({"tools": [tool("look_up", strict=True)]}, ["Sunny.", LOOK], [OTHER, WRONG]),
    "required": ({"tool_choice": "required"}, [LOOK, FIND, LOOK + FIND], ["Sunny.", OTHER, WRONG]),
    "required, one call": ({"tool_choice": "required", "parallel_tool_calls": False}, [LOOK, FIND], [LOOK + FIND]),
    "named": ({"tool_choice": NAMED}, [LOOK], ["Sunny.", FIND, OTHER, WRONG, LOOK + LOOK]),
    "none": ({"tool_choice": "none"}, ["Sunny."], [LOOK]),
    "auto, or JSON": ({"response_format": JSON}, ['{"a": 1}', LOOK], ["Sunny.", '{"b": 1}']),
    "none, JSON": ({"response_format": JSON, "tool_choice": "none"}, ['{"a": 1}'], ["Sunny.", '{"b": 1}', LOOK]),
    "auto, or a pattern": ({"guided_regex": "[ab]{2}"}, ["ab"], ["Sunny.", LOOK]),
}
"""Requests, what a model may answer to them, and what it may not."""
THOUGHT = {
    "auto": ({}, ["[THINK]Hm.[/THINK]Sunny.", "[THINK]Hm.[/THINK]" + LOOK, LOOK, "Sunny."], ["[THINK]" + LOOK]),
    "required": ({"tool_choice": "required"}, ["[THINK]Hm.[/THINK]" + LOOK, LOOK], ["[THINK]Hm.[/THINK]Sunny."]),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mistral")
    return {name: mistral_directory(folder / name.replace(" ", "-"), name) for name in ("v3", "v11", "v15")}


@pytest.fixture(scope="module", params=["v11", "v15"])
def engine(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[SaidEngine]:
    more = {"reasoning_parser": "mistral"} if request.param == "v15" else {}
    made = made_of(folders[request.param], **more)
    yield made
    made.close()


def made_of(folder: Path, **more: str) -> SaidEngine:
    return SaidEngine(folder, tokenizer_mode="mistral", load_format="dummy", **{"tool_call_parser": "mistral", **more})


def taken(engine: SaidEngine, guide: Any, answer: str) -> bool:
    """Whether guidance, told of a guide as vLLM tells it, lets a model answer so."""
    import llguidance
    from vllm.v1.structured_output.backend_guidance import serialize_guidance_grammar
    from vllm.v1.structured_output.request import get_structured_output_key

    kind, text = get_structured_output_key(guide)
    tokenizer: Any = engine.tokenizer
    matcher = llguidance.LLMatcher(tokenizer.llg_tokenizer, serialize_guidance_grammar(kind, text))
    assert not matcher.is_error(), matcher.get_error()
    return all(map(matcher.consume_token, token_ids(tokenizer, answer))) and matcher.is_accepting()


def test_an_answer_is_guided_to_what_a_request_lets_be(engine: SaidEngine) -> None:
    thinks = engine.settings.reasoning_parser is not None
    wrong: list[tuple[str, ...]] = []
    for table in (GUIDES, THOUGHT if thinks else {}):
        for what, (more, good, bad) in table.items():
            body = {"messages": [{"role": "user", "content": "Go."}], "tools": TOOLS, **more}
            (generation,) = parse("openai", json.loads(json.dumps(body)), engine.settings).generations
            (request,) = engine.backend.prepare(next(NUMBERS), generation).requests
            guide = request.sampling_params.structured_outputs
            if guide.grammar is not None:
                assert guide._backend == "guidance"
                # The grammar has the reasoning in it.
                assert request.reasoning_ended is True
            wrong += [(what, answer) for answer in good if not taken(engine, guide, answer)]
            wrong += [(what, answer, "taken") for answer in bad if taken(engine, guide, answer)]
    assert wrong == []


@pytest.mark.parametrize("named", ["{}", '{"backend": "auto"}', '{"backend": "guidance"}'])
def test_guidance_runs_them(folders: dict[str, Path], named: str) -> None:
    made = made_of(folders["v11"], structured_outputs_config=named)
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": TOOLS}
    (generation,) = parse("openai", body, made.settings).generations
    (request,) = made.backend.prepare(next(NUMBERS), generation).requests
    assert request.sampling_params.structured_outputs._backend == "guidance"
    made.close()


def test_another_backend_is_refused(folders: dict[str, Path]) -> None:
    expected = r"^option\.structured_outputs_config: expected the backend guidance .* got 'xgrammar'$"
    with pytest.raises(OptionError, match=expected):
        made_of(folders["v11"], structured_outputs_config='{"backend": "xgrammar"}')


def test_a_mistral_common_that_does_not_fit_ends_the_start(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mistral_common.guidance.grammar_factory import GrammarFactory

    def changed(self: Any, *, plan: Any) -> str:
        return ""

    monkeypatch.setattr(GrammarFactory, "get_lark_from_jinja", changed)
    expected = r"'mistral' cannot be used with mistral-common \S+, vLLM \S+: .*'mode'; expected mistral-common 1\."
    with pytest.raises(OptionError, match=rf"^option\.tool_call_parser: {expected}"):
        made_of(folders["v11"])
