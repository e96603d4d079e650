"""The adapter of prompts with images (option.default_mm_loras) on the local server, beside vLLM's own server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.adapters import adapter_config, adapter_tensors, safetensors_of
from ..kit.hosts.host import Server
from ..kit.hosts.vllm_server import vllm_server
from ..kit.models import vision as vision_model
from ..kit.models.adapted import adapted_directory
from ..kit.models.pictures import data_url, png

pytestmark = pytest.mark.engine

TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj")


@pytest.fixture(scope="module")
def model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_model.build(tmp_path_factory.mktemp("vision") / "model", demo_model)


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the language model, which is a part of this model."""
    folder = tmp_path_factory.mktemp("adapter") / "for images"
    folder.mkdir()
    text = json.loads((model / "config.json").read_text())["text_config"]
    folder.joinpath("adapter_config.json").write_text(json.dumps(adapter_config(targets=TARGETS)))
    tensors = adapter_tensors(text, targets=TARGETS, scale=0.3, prefix="base_model.model.model.text_model.")
    folder.joinpath("adapter_model.safetensors").write_bytes(safetensors_of(tensors))
    return folder


@pytest.fixture(scope="module")
def ours(model: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ours")
    options = {"option.max_loras": "2", "option.default_mm_loras": json.dumps({"image": str(adapter)})}
    # Not forked: with a model that takes images the engine's process has LoRA's kernels before (model_infos.py).
    spawned = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    server = Server(adapted_directory(model, folder / "model", options), folder / "log", environment=spawned)
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def theirs(model: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    lora = ["--enable-lora", "--max-loras", "2", "--default-mm-loras", json.dumps({"image": str(adapter)})]
    with vllm_server(model, tmp_path_factory.mktemp("theirs") / "log", lora) as client:
        yield client


def said(client: httpx.Client, *content: dict[str, Any], **more: Any) -> str:
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": "What is it?"}]}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 12, **more}
    got = client.post("/v1/chat/completions", json=body)
    assert got.status_code == 200, got.text
    text: str = got.json()["choices"][0]["message"]["content"]
    return text


def test_a_prompt_with_images_has_the_adapter_and_no_other_one(ours: httpx.Client, theirs: httpx.Client) -> None:
    pictures = [{"type": "image_url", "image_url": {"url": data_url(png(84, 42, (shade, 0, 0)))}} for shade in (0, 255)]
    for picture in pictures:
        assert said(ours, picture) == said(theirs, picture)
        # Which they can only be by the same adapter if it changes something.
        assert said(ours, picture) == said(ours, picture, adapters="image")
    assert said(ours) == said(theirs)
    assert said(ours, adapters="image") == said(theirs, model="image")
    assert said(ours, adapters="image") != said(ours)


def test_it_is_listed_as_any_other(ours: httpx.Client) -> None:
    models = ours.get("/v1/models").json()["data"]
    assert [one["id"] for one in models if one.get("parent")] == ["image"]
