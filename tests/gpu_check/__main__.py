"""`python -m tests.gpu_check --demo MODEL_DIR -o FOLDER [--device cpu]`: what an NVIDIA device must be seen to do, in
one go; `make gpu-check` is this with the demo model.

FOLDER/report.md has what came of each step, and is there from the first step on; the logs are beside it. With `--device
cpu` the CPU build is in the GPU's place, so that nothing but the device is new on a GPU.

Exit status 0 only if each step passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from ..kit.paths import ROOT
from .check import check
from .engines import Engines
from .steps import steps


def main() -> None:
    """Reads the command line and runs all steps."""
    parser = argparse.ArgumentParser(prog="make gpu-check", description="Runs everything once on an NVIDIA device.")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: the CPU build in the GPU's place")
    parser.add_argument("--demo", type=Path, required=True, help="the demo model")
    parser.add_argument("--newest", type=Path, default=ROOT / ".venv-newest" / "bin" / "python", help="of --device cpu")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for the report; what it has goes")
    arguments = parser.parse_args()
    if arguments.device == "gpu":
        # The check is of one device: an engine takes all that it sees.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    folder: Path = arguments.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    engines = Engines(arguments.device, arguments.demo, folder, arguments.newest)
    try:
        status = check(steps(engines), folder, arguments.device)
    finally:
        engines.close()
    raise SystemExit(status)


if __name__ == "__main__":
    main()
