"""Every family's calls, reasoning and text, whole and in any split: right wherever vLLM's own serving layer is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from .answers import WAYS, is_right
from .table import ENDS, NAMES, family
from .tried import known, made_for, model_config, version

pytestmark = pytest.mark.engine

LEAST = 20
"""Cases of each parser."""
OTHERWISE = {"openai", "openai_gptoss", "mistral", "hf"}
"""Parsers that are not tried by text: gpt-oss's and Mistral's have tests with their own tokenizers, `hf` reads what a
model directory says of its answers.
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return model_config(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", NAMES)
def test_family(name: str, config: Any) -> None:
    faults: list[str] = []
    nobody: set[str] = set()
    for pair, case, parsers in made_for(family(name), config):
        ours = {way: parsers.ours(case, size) for way, size in WAYS.items()}
        wrong = {way: answer for way, answer in ours.items() if not is_right(answer, case)}
        if not wrong:
            continue
        theirs = [way for way, size in WAYS.items() if is_right(parsers.theirs(case, size), case)]
        told = f"{'/'.join(pair)} {case.name!r}: {wrong}"
        if theirs:
            faults.append(f"vLLM is right ({', '.join(theirs)}), ours is not: {told}")
        else:
            nobody.add(case.name)
            if version() in ENDS and version() not in case.neither:
                faults.append(f"ours is wrong, and `neither` does not say so: {told}")
    said = {case.name for case in family(name).cases if version() in case.neither}
    faults += [f"{case!r}: `neither` says that nobody is right" for case in sorted(said - nobody)]
    assert not faults, "\n".join(faults)


def test_every_parser_has_its_cases() -> None:
    cases: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for one in map(family, NAMES):
        for case in one.cases:
            cases[0].update(one.tool_parsers if case.tool_choice != "off" else ())
            cases[1].update(one.reasoning_parsers if case.reasoning is not None else ())
    for kind, names, counted in zip(("tool", "reasoning"), known(), cases, strict=True):
        few = {name: counted[name] for name in sorted(names - OTHERWISE) if counted[name] < LEAST}
        assert not few, f"{kind} parsers with fewer than {LEAST} cases"
