"""Shows who reads a family's answers right: python -m tests.families [-v] NAME ...

For each case and pair of parsers: ours and vLLM's, whole, and by one, three and all tokens; + is right, - is wrong.
With -v: what comes of those that are wrong.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .answers import WAYS, is_right
from .table import NAMES, family
from .tried import made_for, model_config


def main(names: list[str]) -> None:
    """Prints a line a case."""
    verbose = "-v" in names
    with tempfile.TemporaryDirectory() as folder:
        config = model_config(Path(folder))
        for name in NAMES:
            if name not in names:
                continue
            for pair, case, parsers in made_for(family(name), config):
                both = {"ours": parsers.ours, "vLLM": parsers.theirs}
                answers = {who: {way: run(case, size) for way, size in WAYS.items()} for who, run in both.items()}
                marks = {
                    who: "".join("+" if is_right(answer, case) else "-" for answer in ways.values())
                    for who, ways in answers.items()
                }
                # Ours must be right in every way where vLLM is in any.
                bad = "-" in marks["ours"] and ("!!" if "+" in marks["vLLM"] else "neither")
                print(*(f"{who} {mark}" for who, mark in marks.items()), "/".join(pair), f"{case.name!r}", bad or "")
                if verbose and any("-" in mark for mark in marks.values()):
                    for who, ways in answers.items():
                        for way, answer in ways.items():
                            if not is_right(answer, case):
                                print(f"    {who} {way}: {answer}")


main(sys.argv[1:])
