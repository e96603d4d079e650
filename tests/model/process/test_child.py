"""The environment that an engine's process is started with."""

from __future__ import annotations

from pathlib import Path

from lmi.model.process.child import lmcache_environment

from ...kit.api.options import make_settings


def test_what_lmcache_needs_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "cache.yaml").write_text("")
    connector = '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
    by_file = make_settings(tmp_path, kv_transfer_config=connector, lmcache_config_file="cache.yaml")
    assert lmcache_environment(by_file) == {
        "PYTHONHASHSEED": "0",
        "LMCACHE_CONFIG_FILE": str(tmp_path / "cache.yaml"),
    }
    assert lmcache_environment(make_settings(lmcache_auto_config="true")) == {"PYTHONHASHSEED": "0"}
    assert lmcache_environment(make_settings(kv_offloading_size="4")) == {}
