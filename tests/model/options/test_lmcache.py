"""The options of LMCache: which fit together, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmi.model.options.lmcache import naming_lmcache

from ...kit.api.errors import OptionError
from ...kit.api.options import make_settings, notes_of, settings_of
from ...kit.rows import each_row

CONNECTOR = '{"kv_connector":"LMCacheConnectorV1", "kv_role":"kv_both"}'


def test_a_file_in_the_model_directory(tmp_path: Path) -> None:
    """As in upstream's integration tests (tests/integration/llm/prepare.py: qwen3-8b-lmcache)."""
    file = tmp_path / "lmcache_qwen3_benchmark.yaml"
    file.write_text("chunk_size: 256\n")
    for given in (file.name, str(file)):
        taken = make_settings(tmp_path, lmcache_config_file=given, kv_transfer_config=CONNECTOR)
        assert (taken.lmcache_config_file, taken.notes) == (str(file), ())
        assert taken.engine_arguments["kv_transfer_config"] == CONNECTOR


def test_a_file_without_a_connector_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / "cache.yaml").write_text("")
    note = "option.lmcache_config_file has no effect without option.kv_transfer_config="
    assert notes_of(make_settings(tmp_path, lmcache_config_file="cache.yaml"))[0].startswith(note)


def test_automatic_configuration_adds_the_connector() -> None:
    taken = make_settings(lmcache_auto_config="true")
    connector = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    assert json.loads(taken.engine_arguments["kv_transfer_config"]) == connector
    assert "kv_transfer_config" not in make_settings(lmcache_auto_config="false").engine_arguments
    for same in (CONNECTOR, "none"):
        both = make_settings(lmcache_auto_config="true", kv_transfer_config=same)
        assert both.engine_arguments == taken.engine_arguments


# Options beside lmcache_auto_config=true, and what is said of them.
BESIDE: list[tuple[dict[str, str], str]] = [
    ({"enable_expert_parallel": "true"}, "expected no option.enable_expert_parallel with it"),
    ({"kv_transfer_config": '{"kv_connector": "NixlConnector"}'}, "expected no option.kv_transfer_config with it"),
    ({"maxWorkers": "2"}, "expected maxWorkers=1 with it, got 2"),
    ({"gpu.maxWorkers": "4"}, "expected gpu.maxWorkers=1 with it, got 4"),
    ({"enable_lora": "true"}, "expected no LMCache with it (option.lmcache_auto_config)"),
    ({"lmcache_config_file": "/etc/hostname"}, "expected it or option.lmcache_config_file, got both"),
]


@each_row(("beside", "said"), BESIDE, ids=str)
def test_what_automatic_configuration_excludes(beside: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings_of({"lmcache_auto_config": "true", **beside}, model_dir="/opt/ml/model")
    assert said in caught.value.message


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(OptionError) as caught:
        make_settings(lmcache_config_file="lmcache_s3.yaml", kv_transfer_config=CONNECTOR)
    assert caught.value.message == (
        "option.lmcache_config_file: expected a file, absolute or in the model directory, got 'lmcache_s3.yaml': there "
        "is no file /opt/ml/model/lmcache_s3.yaml"
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, None),
        ({"kv_transfer_config": '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}'}, None),
        ({"kv_transfer_config": CONNECTOR}, "kv_transfer_config"),
        ({"kv_offloading_backend": "lmcache"}, "kv_offloading_backend"),
        ({"kv_offloading_backend": "native"}, None),
    ],
    ids=str,
)
def test_who_asks_for_it(arguments: dict[str, str], name: str | None) -> None:
    assert naming_lmcache(arguments) == name
