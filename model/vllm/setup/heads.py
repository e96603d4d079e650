"""Whether the model's attention heads can be shared out to the devices of all hosts: vLLM's workers find out."""

from __future__ import annotations

from typing import Any

from ...errors import Fault, OptionError
from ...options import Settings
from ...options.table import name_of_argument

__all__ = ["check_heads"]


def check_heads(settings: Settings, config: Any) -> None:
    """Raises OptionError for a VllmConfig whose tensor size neither divides the number of key-value heads nor is a
    multiple of it (vllm/model_executor/layers/linear.py, QKVParallelLinear). That of the query heads vLLM checks itself
    (ModelConfig.verify_with_parallel_config).
    """
    model, size = config.model_config, config.parallel_config.tensor_parallel_size
    heads: int = 0 if model.is_attention_free or model.use_mla else model.get_total_num_kv_heads()
    if not heads or heads % size == 0 or size % heads == 0:
        return
    hosts = settings.parallel.nnodes
    of_hosts = f" over {hosts} hosts" if hosts > 1 else ""
    option = name_of_argument("tensor_parallel_size")
    expected = f"a tensor size that divides the model's {heads} key-value heads, or a multiple of that"
    raise OptionError.of_all([Fault(option, expected=expected, given=f"{size}{of_hosts}")])
