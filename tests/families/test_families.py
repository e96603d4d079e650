"""Every family's calls, reasoning and text, whole and in any split: right wherever vLLM's own serving layer is."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ..kit.paths import ROOT
from .answers import is_right, ways_of
from .document import families_table
from .table import ENDS, NAMES, VERDICTS, family
from .tried import judged, known, made_for, model_config, version

pytestmark = pytest.mark.engine

LEAST = 20
"""Cases of each parser."""
OTHERWISE = {"openai", "openai_gptoss", "mistral", "hf"}
"""Parsers that are not tried by text: gpt-oss's and Mistral's have tests with their own tokenizers, `hf` reads what a
model directory says of its answers.
"""


@pytest.mark.parametrize("name", NAMES)
def test_family(name: str, tmp_path: Path) -> None:
    faults: list[str] = []
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pair, case, parsers in made_for(family(name), model_config(tmp_path, family(name))):
        ours = {way: parsers.ours(case, size) for way, size in ways_of(case).items()}
        right = {way: is_right(answer, case) for way, answer in ours.items()}
        if all(right.values()):
            continue
        theirs = {way: is_right(parsers.theirs(case, size), case) for way, size in ways_of(case).items()}
        verdict = judged(right, theirs)
        found[verdict].add(case.name)
        if verdict == "wrong" or (version() in ENDS and version() not in getattr(case, verdict)):
            wrong = {way: answer for way, answer in ours.items() if not right[way]}
            faults.append(f"{verdict} {'/'.join(pair)} {case.name!r}: vLLM is right {theirs}, ours is not: {wrong}")
    for verdict in VERDICTS:
        said = {case.name for case in family(name).cases if version() in getattr(case, verdict)}
        faults += [f"{case!r}: `{verdict}` says what does not hold" for case in sorted(said - found[verdict])]
    assert not faults, "\n".join(faults)


def test_the_page_has_the_table() -> None:
    """python -m tests.families.document"""
    assert families_table() in (ROOT / "docs" / "models.md").read_text("utf-8")


def test_every_parser_has_its_cases() -> None:
    cases: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for one in map(family, NAMES):
        for case in one.cases:
            cases[0].update(one.tool_parsers if case.tool_choice != "off" else ())
            cases[1].update(one.reasoning_parsers if case.reasoning is not None else ())
    for kind, names, counted in zip(("tool", "reasoning"), known(), cases, strict=True):
        few = {name: counted[name] for name in sorted(names - OTHERWISE) if counted[name] < LEAST}
        assert not few, f"{kind} parsers with fewer than {LEAST} cases"
