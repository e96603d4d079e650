"""LMCache's sizes by option.lmcache_auto_config, and what is said where it is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.setup.lmcache import auto_environment, cache_sizes, configure, folder_size

from ....kit.api.errors import OptionError
from ....kit.api.options import make_settings
from ....kit.rows import each_row

GIB = 1 << 30

# Of weights, free memory and the disk GiB, the tensor parallel degree; what djl_python's lmcache_utils.py comes to.
SIZES: list[tuple[float, float, float, int, str, str]] = [
    # A fifth is kept.
    (16, 1000, 2000, 1, "800", "1600"),
    (16, 1000, 2000, 8, "100", "200"),
    # Twice the weights are more.
    (140, 1000, 1000, 4, "180", "180"),
    (140, 1000, 3800, 4, "180", "760"),
    # No room.
    (70, 100, 140, 1, "0", "0"),
    # Whole numbers, cut off.
    (1, 15, 99, 2, "6", "39"),
]


@each_row(("model", "memory", "disk", "workers", "cpu", "local"), SIZES)
def test_sizes(model: float, memory: float, disk: float, workers: int, cpu: str, local: str) -> None:
    sizes = cache_sizes(int(model * GIB), int(memory * GIB), int(disk * GIB), workers)
    assert auto_environment(sizes) == {
        "LMCACHE_MAX_LOCAL_CPU_SIZE": cpu,
        "LMCACHE_MAX_LOCAL_DISK_SIZE": local,
        "LMCACHE_LOCAL_DISK": "file:///tmp/lmcache/",
        "LMCACHE_ENABLE_LAZY_MEMORY_ALLOCATOR": "true",
        "LMCACHE_EXTRA_CONFIG": '{"use_odirect": true}',
    }


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({"a.safetensors": 5, "inner/b.safetensors": 6, "pytorch_model.bin": 100, "tokenizer.json": 7}, 11),
        ({"pytorch_model-1.bin": 3, "inner/pytorch_model-2.bin": 4, "config.json": 7}, 7),
        ({"config.json": 7}, 0),
    ],
    ids=str,
)
def test_the_weights_of_a_folder(tmp_path: Path, files: dict[str, int], size: int) -> None:
    for name, length in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * length)
    assert folder_size(tmp_path) == size


# Options, and the one that is named where the package lmcache is not installed.
ASKING = [
    ({"lmcache_auto_config": "true"}, "lmcache_auto_config"),
    ({"kv_transfer_config": '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'}, "kv_transfer_config"),
    ({"kv_offloading_size": "1", "kv_offloading_backend": "lmcache"}, "kv_offloading_backend"),
]


@pytest.mark.parametrize(("options", "name"), ASKING, ids=str)
def test_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], name: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OptionError) as caught:
        configure(make_settings(**options), 1)
    assert caught.value.message == (
        f"option.{name}: LMCache is not installed: expected the package lmcache beside vLLM, or "
        "option.kv_offloading_size, which needs none"
    )


def test_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    configure(make_settings(kv_offloading_size="1"), 1)


def test_automatic_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    for variable in auto_environment(cache_sizes(0, 0, 0, 1)):
        monkeypatch.setenv(variable, "before")
    with pytest.raises(OptionError, match=r"has no \*\.safetensors or \*\.bin"):
        configure(make_settings(tmp_path, lmcache_auto_config="true"), 1)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    configure(make_settings(tmp_path, lmcache_auto_config="true"), 1 << 30)
    assert os.environ["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "0"
    assert os.environ["LMCACHE_LOCAL_DISK"] == "file:///tmp/lmcache/"


def hub(monkeypatch: pytest.MonkeyPatch, **files: int | None) -> list[tuple[str, str | None]]:
    """A hub whose models have these files, and what it is asked for: the model and the revision."""
    asked: list[tuple[str, str | None]] = []

    def model_info(model: str, *, revision: str | None, files_metadata: bool) -> Any:
        assert files_metadata
        asked.append((model, revision))
        if not files:
            raise ConnectionError("offline\nmode")
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in files.items()])

    api = SimpleNamespace(HfApi=lambda: SimpleNamespace(model_info=model_info))
    monkeypatch.setitem(sys.modules, "huggingface_hub", api)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    for variable in auto_environment(cache_sizes(0, 0, 0, 1)):
        monkeypatch.setenv(variable, "before")
    return asked


ON_HUB = make_settings(model_id="owner/model", revision="v2", lmcache_auto_config="true")


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({"a.safetensors": 2 * GIB, "b.safetensors": GIB, "pytorch_model.bin": 9 * GIB}, "3.0"),
        ({"pytorch_model.bin": 2 * GIB, "config.json": GIB, "other.bin": None}, "2.0"),
    ],
    ids=["safetensors", "bin"],
)
def test_the_weights_on_the_hub(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, files: dict[str, int | None], size: str
) -> None:
    caplog.set_level("INFO", "lmi")
    asked = hub(monkeypatch, **files)
    configure(ON_HUB, 1)
    assert asked == [("owner/model", "v2")]
    assert caplog.messages[-1].endswith(f"the weights have {size} GiB")
    assert os.environ["LMCACHE_MAX_LOCAL_CPU_SIZE"] != "before"


def test_the_hub_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch)
    with pytest.raises(OptionError) as caught:
        configure(ON_HUB, 1)
    assert caught.value.message == (
        "option.lmcache_auto_config: the hub does not tell the size of owner/model (offline mode): use "
        "option.lmcache_config_file"
    )
    hub(monkeypatch, **{"config.json": 7})
    with pytest.raises(OptionError, match=r"owner/model has no \*\.safetensors or \*\.bin"):
        configure(ON_HUB, 1)
