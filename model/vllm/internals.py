"""vLLM's private parts: everything that vLLM does not document and that we rely on, in this one module.

    start_vllm --check_library--> a version that is supported, PARTS are there --> vLLM starts

A version that is too old, or a part that is missing, ends the start with one StartError, which names the versions that
are supported. What vLLM has a slower, documented way for is no part (core_outputs.py); whatever else touches vLLM goes
by what it documents. Looked up in 0.26.0, 0.28.0 and 0.32.0. Texts that vLLM writes are in model/vllm_messages.py.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ..errors import StartError
from ..text.answer_ids import AnswerIds
from .version import VERSIONS, refusal, vllm_version, warning

__all__ = [
    "PARTS",
    "RUN_V2_PROCESSORS",
    "argument_actions",
    "available_memory",
    "check_library",
    "failed_output",
    "image_limit",
    "keep_linear",
    "part",
    "rejected_transfer",
    "run_workers",
    "scales_by_module",
    "tokenize_params",
    "unshared",
    "v2_is_forced",
    "v2_takes_processors",
]

log = logging.getLogger(__name__)

RUN_V2_PROCESSORS = "vllm.v1.worker.gpu.sample.logits_processor"
"""A module that 0.28 does not have: its model runner V2 takes no logits processors."""

PARTS = (
    # The core and its client.
    "vllm.v1.engine.core_client:EngineCoreClient.make_async_mp_client",
    "vllm.v1.engine.core_client:AsyncMPClient.get_output_async",
    "vllm.v1.engine.core_client:AsyncMPClient.add_request_async",
    "vllm.v1.engine.core_client:AsyncMPClient.abort_requests_async",
    "vllm.v1.engine.core_client:AsyncMPClient.get_supported_tasks_async",
    "vllm.v1.engine.core_client:AsyncMPClient.add_lora_async",
    "vllm.v1.engine.core_client:AsyncMPClient.remove_lora_async",
    "vllm.v1.engine.core_client:AsyncMPClient.pin_lora_async",
    "vllm.v1.engine.core_client:AsyncMPClient.collective_rpc_async",
    "vllm.v1.engine.core_client:AsyncMPClient.shutdown",
    "vllm.v1.executor:Executor.get_class",
    "vllm.v1.executor.multiproc_executor:MultiprocExecutor",
    "vllm.v1.engine.input_processor:InputProcessor.process_inputs",
    "vllm.lora.request:LoRARequest",
    "vllm.renderers:renderer_from_config",
    # Options.
    "vllm:EngineArgs.get_batch_defaults",
    "vllm.config:VllmConfig.use_v2_model_runner",
    "vllm.utils.argparse_utils:FlexibleArgumentParser",
    "vllm.utils.cpu_resource_utils:get_memory_node_info",
    "vllm.model_executor.layers.quantization:QUANTIZATION_METHODS",
    "vllm.plugins:load_general_plugins",
    # Prompts and conversations.
    "vllm.renderers.inputs.preprocess:parse_model_prompt",
    "vllm.renderers.params:TokenizeParams.apply_pre_tokenization",
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest.build_chat_params",
    "vllm.parser:ParserManager.get_parser",
    "vllm.tool_parsers:ToolParserManager.list_registered",
    "vllm.reasoning:ReasoningParserManager.list_registered",
    "vllm.utils.mistral:is_mistral_tokenizer",
    "vllm.multimodal.media.image:ImageMediaIO.load_bytes",
    "vllm.multimodal.processing.context:BaseProcessingInfo.allowed_mm_limits",
    # Sampling, guided decoding.
    "vllm.v1.sample.logits_processor:LogitsProcessor",
    "vllm.v1.sample.logits_processor.builtin:process_dict_updates",
    "vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar",
    "vllm.v1.engine:EngineCoreRequest.reasoning_ended",
    "vllm.v1.engine:EngineCoreRequest.abort_immediately",
    # Outputs and numbers.
    "vllm.v1.engine:EngineCoreOutputs.outputs",
    "vllm.v1.engine:EngineCoreOutput.new_token_ids",
    "vllm.v1.engine:EngineCoreOutput.new_logprobs",
    "vllm.v1.engine:EngineCoreOutput.new_prompt_logprobs_tensors",
    "vllm.v1.engine:EngineCoreOutput.finish_reason",
    "vllm.v1.engine:FinishReason.ERROR",
    "vllm.v1.engine.exceptions:EngineDeadError",
    "vllm.v1.engine:EngineCoreOutput.stop_reason",
    "vllm.v1.engine:EngineCoreOutput.kv_transfer_params",
    "vllm.v1.engine:EngineCoreOutput.pooling_output",
    "vllm.v1.engine:EngineCoreOutput.prefill_stats",
    "vllm.v1.metrics.stats:SchedulerStats.num_running_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_skipped_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.kv_cache_usage",
    "vllm.v1.metrics.stats:IterationStats",
    "vllm.v1.engine:EngineCoreOutput.events",
    "vllm.v1.engine:EngineCoreEventType.PREEMPTED",
    "vllm.v1.metrics.loggers:PrometheusStatLogger.record",
    "vllm.v1.metrics.loggers:PrometheusStatLogger.log_engine_initialized",
    "vllm.v1.metrics.loggers:LoggingStatLogger.record",
    "vllm.v1.metrics.loggers:LoggingStatLogger.log",
    "vllm.envs:VLLM_LOG_STATS_INTERVAL",
    "vllm.v1.engine:EngineCoreRequest.arrival_time",
    "vllm.tracing:init_tracer",
    "vllm.tracing:instrument_manual",
    "vllm.tracing:extract_trace_context",
    "vllm.tracing:SpanAttributes",
    "vllm.tracing:SpanKind",
)
"""Modules and what is in them, as `module:name.attribute`."""


def part(place: str) -> Any:
    """What `place` (`module:name.attribute`) names; raises StartError where this vLLM does not have it."""
    module, _, names = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise _missing(place.replace(":", ".")) from error
    return found


def check_library() -> None:
    """Raises StartError for a version that is too old, and for what is missing of PARTS; imports their modules."""
    version = vllm_version()
    if fault := refusal(version):
        raise StartError(fault)
    if said := warning(version):
        log.warning("%s", said)
    for place in PARTS:
        part(place)


def _missing(name: str) -> StartError:
    return StartError(f"vLLM {vllm_version()} has no {name}, which the handler needs: {VERSIONS} is supported")


# The core, and which model runner there is.


def make_client(config: Any, renderer: Any) -> Any:
    """vLLM's asynchronous client of a core, which it starts; raises what vLLM raises."""
    make = part("vllm.v1.engine.core_client:EngineCoreClient.make_async_mp_client")
    executor = part("vllm.v1.executor:Executor.get_class")(config)
    # Later versions prepare the processing of images beside the start.
    more = {"renderer": renderer} if "renderer" in inspect.signature(make).parameters else {}
    return make(vllm_config=config, executor_class=executor, log_stats=True, **more)


def failed_output(name: str) -> Any:
    """What the core sends where one request has failed, and nothing else has come."""
    output = part("vllm.v1.engine:EngineCoreOutput")
    failed = output(request_id=name, new_token_ids=[], finish_reason=part("vllm.v1.engine:FinishReason").ERROR)
    return part("vllm.v1.engine:EngineCoreOutputs")(outputs=[failed])


def run_workers(config: Any) -> None:
    """Starts the workers of a VllmConfig whose core is on another host, and waits until they are up (`vllm serve
    --headless`, entrypoints/cli/serve.py, run_headless). They end with this process.
    """
    _workers.append(part("vllm.v1.executor.multiproc_executor:MultiprocExecutor")(config, monitor_workers=False))


_workers: list[Any] = []
"""What owns them, and would end them if nobody held it."""


def v2_is_forced() -> bool:
    """Whether vLLM's environment insists on model runner V2."""
    import vllm.envs

    return bool(getattr(vllm.envs, "VLLM_USE_V2_MODEL_RUNNER", False))


def v2_takes_processors() -> bool:
    """Whether model runner V2 takes logits processors in this version."""
    return importlib.util.find_spec(RUN_V2_PROCESSORS) is not None


def scales_by_module() -> bool:
    """Whether adapters may scale each module in its own way in this version; 0.28 takes no notice of it.

    Not before the core has started, and no one of PARTS: this imports the layers of models, parts of which
    the CPU platform replaces when the core starts.
    """
    return hasattr(part("vllm.lora.peft_helper:PEFTHelper"), "get_rank_and_scaling")


# Options.


def argument_actions() -> dict[str, argparse.Action]:
    """What vLLM's command line makes of each argument for the engine, by its name."""
    from vllm import EngineArgs

    parser = EngineArgs.add_cli_args(part("vllm.utils.argparse_utils:FlexibleArgumentParser")())
    return {action.dest: action for action in parser._actions}


def available_memory() -> int:
    """Bytes that are free on a machine without a GPU, as vLLM counts them."""
    return int(part("vllm.utils.cpu_resource_utils:get_memory_node_info")().available_memory)


# Prompts.


def tokenize_params(shortened: Callable[[str], str] | None = None, **arguments: Any) -> Any:
    """vLLM's TokenizeParams; what is tokenized of a text is what `shortened` makes of it."""
    params = _params_class()(max_total_tokens=None, **arguments)
    object.__setattr__(params, "shortened", shortened)
    return params


@cache
def _params_class() -> Any:
    params: Any = part("vllm.renderers.params:TokenizeParams")

    class Shortening(params):  # type: ignore[misc]
        """Made once a prompt, and changed by nobody."""

        shortened: Callable[[str], str] | None

        def apply_pre_tokenization(self, tokenizer: Any, prompt: Any) -> Any:
            if self.shortened is not None:
                prompt = {**prompt, "prompt": self.shortened(prompt["prompt"])}
            return super().apply_pre_tokenization(tokenizer, prompt)

    return Shortening


def keep_linear(parser: Any) -> None:
    """Lets one of vLLM's parsers take the same time for each token of an answer (see text/answer_ids.py), if it keeps
    its tokens as is known here.
    """
    try:
        parser._stream_state = _state_class()(**vars(parser._stream_state))
    except (AttributeError, TypeError, StartError) as error:
        _tell_slower("parsers take longer for each token of a long answer", str(error))


@cache
def unshared() -> dict[str, bool]:
    """What tells SamplingParams that nobody else has them, so that vLLM need not copy all that they hold (a quarter of
    a short prompt's time).
    """
    from vllm import SamplingParams

    if "skip_clone" in SamplingParams.__struct_fields__:
        return {"skip_clone": True}
    _tell_slower("vLLM copies the parameters of each request", "SamplingParams has no skip_clone")
    return {}


@cache
def _tell_slower(what: str, why: str) -> None:
    log.warning("%s, as this vLLM differs from those that were tested: %s", what, why)


@cache
def _state_class() -> Any:
    state: Any = part("vllm.parser.abstract_parser:StreamState")

    class Linear(state):  # type: ignore[misc]
        """vLLM begins with a new list where reasoning ends."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "previous_token_ids" and type(value) is list:
                value = AnswerIds(value)
            super().__setattr__(name, value)

    return Linear


def image_limit(core: Any) -> int:
    """How many images a prompt may have; 0: the model takes none."""
    processor = core.renderer.mm_processor
    if processor is None:
        return 0
    limits = processor.info.allowed_mm_limits
    # Some models have one kind for images and videos alike.
    kind = "vision_chunk" if getattr(core.model_config.hf_config, "use_unified_vision_chunk", False) else "image"
    return int(limits.get(kind, 0))


def rejected_transfer(name: str, transfer: Mapping[str, Any]) -> Any:
    """What tells the connector of a request that is refused, so that what is kept for it elsewhere is let go.

    A request that ends before it begins, as vLLM's server makes it (AsyncLLM.notify_kv_transfer_request_rejected).
    """
    from vllm import SamplingParams

    return part("vllm.v1.engine:EngineCoreRequest")(
        request_id=name, prompt_token_ids=[0], mm_features=None,
        sampling_params=SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": dict(transfer)}),
        pooling_params=None, arrival_time=time.time(), lora_request=None, cache_salt=None, data_parallel_rank=None,
        abort_immediately=True,
    )  # fmt: skip
