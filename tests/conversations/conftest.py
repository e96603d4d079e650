"""The demo model, as conversations need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model)


@pytest.fixture(scope="module")
def model_config(demo_model: Path) -> Any:
    from vllm import EngineArgs

    return EngineArgs(model=str(demo_model), enforce_eager=True).create_model_config()
