"""Servers of real weights, which the tests here share: in one process of pytest-xdist, as tests/conftest.py groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..kit.hosts.host import Server, model_directory
from ..kit.models.packaged import STYLE, packaged


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct's directory."""
    return packaged("smollm2")


@pytest.fixture(scope="session")
def real_server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It behind the local server in 32-bit floats, with an adapter; long prompts are computed in chunks of 512 tokens,
    and prompts that begin alike share their cache."""
    folder = tmp_path_factory.mktemp("smollm2")
    model = model_directory(
        smollm2,
        folder / "model",
        {
            "option.max_model_len": "8192",
            "option.kv_cache_memory_bytes": "1G",
            "option.enable_chunked_prefill": "true",
            "option.enable_prefix_caching": "true",
            "option.max_num_batched_tokens": "512",
            "option.enable_lora": "true",
        },
    )
    (model / "adapters").mkdir()
    (model / "adapters" / STYLE).symlink_to(packaged("style"))
    server = Server(model, folder / "log")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def whisper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Whisper tiny.en behind the local server, in 32-bit floats."""
    folder = tmp_path_factory.mktemp("whisper")
    options = {"option.max_model_len": "448", "option.dtype": "fp32", "option.kv_cache_memory_bytes": "256M"}
    server = Server(model_directory(packaged("whisper-tiny.en"), folder / "model", options), folder / "log")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def minilm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """all-MiniLM-L6-v2 behind the local server, as `make serve MODEL=embed` has it."""
    folder = tmp_path_factory.mktemp("minilm")
    server = Server(packaged("minilm"), folder / "log")
    yield server
    server.stop()
