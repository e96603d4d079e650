"""The do-nothing handler behind DJL: `python -m tests.bench.nothing.serve MODEL_DIR rolling|async`.

Prints the URL and ends with its standard input, as ../../kit/djl/serve.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from ...kit.djl import serve
from ...kit.paths import ROOT

__all__ = ["main"]


def main(model_dir: str, mode: str, *properties: str) -> None:
    """The model's own model.py, if it has one, is not used. `properties` as there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "model"
        copy.mkdir()
        for file in Path(model_dir).iterdir():
            if file.name not in ("model.py", "serving.properties"):
                (copy / file.name).symlink_to(file.resolve())
        shutil.copy(Path(model_dir) / "serving.properties", copy)
        shutil.copy(Path(__file__).with_name("model.py"), copy)
        # The handler imports what is beside it.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        serve.main(str(copy), mode, "option.entryPoint=model.py", *properties)


if __name__ == "__main__":
    main(*sys.argv[1:])
