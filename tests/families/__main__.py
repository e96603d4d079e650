"""Shows who reads a family's answers right: python -m tests.families [-v] NAME ...

For each case and pair of parsers: ours and vLLM's, whole, and by one, three and all tokens; + is right, - is wrong. A
line ends with what the test says of it. With -v: what comes of those that are wrong.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .answers import is_right, ways_of
from .table import NAMES, family
from .tried import judged, made_for, model_config


def main(names: list[str]) -> None:
    """Prints a line a case."""
    verbose = "-v" in names
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            if name not in names:
                continue
            print(f"{name}:")
            known = family(name)
            for pair, case, parsers in made_for(known, model_config(Path(folder), known)):
                both = {"ours": parsers.ours, "vLLM": parsers.theirs}
                answers = {
                    who: {way: run(case, size) for way, size in ways_of(case).items()} for who, run in both.items()
                }
                right = {who: {way: is_right(one, case) for way, one in ways.items()} for who, ways in answers.items()}
                marks = {who: "".join("-+"[one] for one in ways.values()) for who, ways in right.items()}
                verdict = judged(right["ours"], right["vLLM"])
                print(*(f"{who} {mark}" for who, mark in marks.items()), "/".join(pair), f"{case.name!r}", verdict)
                if verbose and any("-" in mark for mark in marks.values()):
                    for who, ways in answers.items():
                        for way, answer in ways.items():
                            if not right[who][way]:
                                print(f"    {who} {way}: {answer}")


main(sys.argv[1:])
