"""A model whose heads cannot be shared out to all devices of all hosts is refused before vLLM's workers find out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.setup.heads import check_heads

from ....kit.api.errors import OptionError
from ....kit.api.options import make_settings
from ....kit.rows import each_row

HOSTS = {"nnodes": "2", "master_addr": "127.0.0.1"}


def config(heads: int, size: int, **model: bool) -> Any:
    """Of vLLM's, what is read of it."""
    kinds = {"is_attention_free": False, "use_mla": False, **model}
    return SimpleNamespace(
        model_config=SimpleNamespace(**kinds, get_total_num_kv_heads=lambda: heads),
        parallel_config=SimpleNamespace(tensor_parallel_size=size),
    )


@each_row(
    ("heads", "size", "kind"),
    [(8, 1, {}), (8, 8, {}), (8, 2, {}), (2, 8, {}), (1, 6, {}), (3, 2, {"use_mla": True}), (0, 2, {}),
     (3, 2, {"is_attention_free": True})],
)  # fmt: skip
def test_heads_that_fit(heads: int, size: int, kind: dict[str, bool]) -> None:
    check_heads(make_settings(), config(heads, size, **kind))


@pytest.mark.parametrize(
    ("options", "heads", "size", "got"),
    [
        ({"tensor_parallel_degree": "2"}, 3, 2, "2"),
        ({"tensor_parallel_size": "6"}, 8, 6, "6"),
        ({**HOSTS, "tensor_parallel_degree": "3"}, 4, 6, "6 over 2 hosts"),
        ({}, 8, 3, "3"),
    ],
)
def test_heads_that_do_not(options: dict[str, str], heads: int, size: int, got: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_heads(make_settings(**options), config(heads, size))
    option = "tensor_parallel_degree"
    assert caught.value.param == option
    expected = f"expected a tensor size that divides the model's {heads} key-value heads, or a multiple of that"
    assert caught.value.message == f"option.{option}: {expected}, got {got}"
