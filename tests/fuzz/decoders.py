"""Coverage-guided fuzzing of the request decoders (atheris, which is libFuzzer): what must hold is in oracle.py.

    .venv-clients/bin/python tests/fuzz/decoders.py CORPUS [libFuzzer's options, as -runs=1000000 -max_len=600]

Half of the inputs are decisions for near-valid requests (bodies.py), the others bodies as they are. CORPUS is a folder,
where the samples are put first; what broke a rule is written to the working directory as crash-*, and the run ends.
`decoders.py crash-...` tries it again.
`make fuzz` runs it, docs/threat-model.md has what a million bodies found.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import ModuleType

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".typing"), str(ROOT)]
# A client's package (sagemaker-core) brings a package `tests`, which Python finds before a folder without __init__.py.
sys.modules["tests"] = ModuleType("tests")
sys.modules["tests"].__path__ = [str(ROOT / "tests")]

with atheris.instrument_imports(include=["lmi"]):  # pyright: ignore[reportAttributeAccessIssue]
    from tests.fuzz.bodies import ATTRIBUTES, PATHS, QUERIES, VARIED, hostile_request, raw_request
    from tests.fuzz.oracle import check
    from tests.fuzz.samples import SAMPLES

RAW, NEAR = b"\x00", b"\x01"


def one(data: bytes) -> None:
    """Tries one input."""
    made = raw_request if data[:1] < NEAR else hostile_request
    check(*made(data[1:]))


def seeds(folder: Path) -> None:
    """The samples, as inputs, and what mutations begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(SAMPLES):
        choices = (
            PATHS.index(sample.path),
            0,
            max(0, next((i for i, v in enumerate(VARIED) if v == sample.settings), 0)),
        )
        query = next((i for i, given in enumerate(QUERIES) if given == sample.query), 0)
        (folder / f"raw-{number}").write_bytes(RAW + bytes((*choices, query)) + json.dumps(sample.body).encode())
        (folder / f"near-{number}").write_bytes(NEAR + bytes((number, 0, 1, 3, 0, 5)))
    assert ATTRIBUTES[0] == ""


def main() -> None:
    """Fuzzes until libFuzzer ends the process."""
    logging.disable()
    if (found := Path(sys.argv[1])).is_file():
        one(found.read_bytes())
        return
    seeds(Path(sys.argv[1]))
    atheris.Setup([sys.argv[0], sys.argv[1], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
