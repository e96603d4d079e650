"""`python -m tests.demo DIRECTORY [--seed 0]`: makes the demo model in a new or empty directory; `make demo-model` is
this."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lmi.model.errors import LmiError

from .model import build

parser = argparse.ArgumentParser(
    prog="make demo-model", description="Makes a small model that answers a built-in set of questions."
)
parser.add_argument("directory", type=Path)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
try:
    build(arguments.directory, seed=arguments.seed)
except (LmiError, OSError) as error:
    sys.exit(f"demo-model: {error}")
