"""What a model directory's configuration says, once it is read (model/options/__init__.py)."""

from __future__ import annotations

from typing import Literal

import msgspec

from .image_rules import ImageRules
from .limits import Limits

__all__ = ["Settings"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a model directory's configuration says. It travels to the engine's process as msgpack."""

    model_dir: str
    """The model directory, where serving.properties lies; absolute."""
    model_id: str
    """A hub id or an absolute path; by default the model directory."""
    model_name: str
    """The `model` field of OpenAI answers; by default the model directory as it was given."""
    engine: str = "vllm"
    """A name of the ENGINES table (vllm, transformers, auto, which finds out at start), or the user's `module:name`."""
    revision: str | None = None
    trust_remote_code: bool = False
    rolling_batch: str = "vllm"
    """Resolved: never auto, and disable in async mode and for dynamic batches."""
    async_mode: bool = False
    max_rolling_batch_size: int = 256
    """How many sequences run at once at most; more wait."""
    tensor_parallel_degree: int | None = None
    """None: every device that there is (`max`)."""
    pipeline_parallel_degree: int = 1
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    output_formatter: Literal["json", "jsonlines", "sse"] | None = None
    custom_formatter: str | None = None
    """Another value of option.output_formatter: `module:name`, a dialect or function of the user's."""
    input_formatter: str | None = None
    content_filter: str | None = None
    user_code_threads: int | None = None
    """None is max_rolling_batch_size."""
    dialect: str | None = None
    """In lower case; whether there is such a dialect, formatters know."""
    tgi_compat: bool = False
    """Whether a body with `inputs` is TGI's rather than LMI's."""
    enable_streaming: bool = False
    task: str = "auto"
    """auto, generate (which auto is too), or embed."""
    normalize: bool | None = None
    """Whether vectors have length 1 where a request does not say; None: as the model's pooler is configured."""
    unknown_parameters: Literal["ignore", "error"] = "ignore"
    engine_stall_timeout: float = 300.0
    """Seconds without a step, with requests in flight, after which the engine is taken for dead; 0: never."""
    enable_typical_p: Literal["auto", "true", "false"] = "auto"
    parameter_schema: Literal["common", "trtllm"] | None = None
    """None: that of `rolling_batch`."""
    chat_template: str | None = None
    """A file, relative to the model directory or not, or Jinja text."""
    chat_template_content_format: Literal["auto", "string", "openai"] = "auto"
    tool_call_parser: str | None = None
    """None: no call is taken out of the text unless a request forces it."""
    reasoning_parser: str | None = None
    log_requests: Literal["false", "summary", "true"] = "false"
    metrics_interval: float = 60.0
    """Seconds between lines with metrics in the log of DJL's worker; 0: none."""
    merge_records: bool = False
    device_map: str | None = None
    """The transformers engine's: where the model goes; None is one device, or all where several are to be used."""
    load_in_8bit: bool = False
    load_in_4bit: bool = False
    images: ImageRules = ImageRules()
    limits: Limits = Limits()
    device_id: int | None = None
    """What DJL's init call says; None is no particular device."""
    cluster_size: int = 1
    engine_arguments: dict[str, str] = {}
    """The engine's own arguments by its own names, values as they were given: what was set, and model, dtype and
    max_num_seqs always. tensor_parallel_size is missing for `max`."""
    unprefixed: tuple[str, ...] = ()
    """Those of `engine_arguments` that stand in serving.properties without `option.`: DJL delivers such keys too, and a
    user may keep keys of their own there, so that the engine's side ignores the ones that it does not know."""
    host: dict[str, str] = {}
    """DJL Serving's own options, as they were given."""
    notes: tuple[str, ...] = ()
    """What a user should know: logged once by `settings_of`."""

    @property
    def embeds(self) -> bool:
        """Whether the model makes vectors of texts, and no text."""
        return self.task == "embed"

    @property
    def dynamic_batch(self) -> bool:
        """Whether the host hands over whole batches and waits for all of their answers."""
        return self.rolling_batch == "disable" and not self.async_mode
