"""vLLM's private parts: everything that vLLM does not document and that we rely on, in this one module.

    start_vllm --check_library--> PARTS are there --vLLM starts--> check_engine: the engine's attributes are there

A part that is missing ends the start with one StartError, which names it and the versions that are supported; whatever
else touches vLLM goes by what it documents. Looked up in 0.23.0 and 0.32.0. Texts that vLLM writes are in
model/vllm_messages.py.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ..engine import EngineStats
from ..errors import StartError

__all__ = [
    "ATTRIBUTES",
    "CORE_ATTRIBUTES",
    "PARTS",
    "RUN_V2_PROCESSORS",
    "VERSIONS",
    "VllmStats",
    "argument_actions",
    "available_memory",
    "check_engine",
    "check_library",
    "core_has_own_process",
    "engine_request",
    "image_limit",
    "keep_chosen_only",
    "part",
    "reject_transfer",
    "tokenize_params",
    "uses_v2_runner",
    "v2_is_forced",
    "v2_takes_processors",
]

log = logging.getLogger(__name__)

VERSIONS = "0.23 to 0.32"
"""Of vLLM, that are supported: the first and the last one are tested."""

RUN_V2_PROCESSORS = "vllm.v1.worker.gpu.sample.logits_processor"
"""A module that 0.23 does not have: its model runner V2 takes no logits processors."""

PARTS = (
    # Where the core runs, which model runner there is.
    "vllm.envs:VLLM_ENABLE_V1_MULTIPROCESSING",
    # Options.
    "vllm.utils.argparse_utils:FlexibleArgumentParser",
    "vllm.utils.cpu_resource_utils:get_memory_node_info",
    # Prompts and conversations.
    "vllm.renderers.inputs.preprocess:parse_model_prompt",
    "vllm.renderers.params:TokenizeParams.apply_pre_tokenization",
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest.build_chat_params",
    "vllm.parser:ParserManager.get_parser",
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
    "vllm.v1.engine.logprobs:LogprobsProcessor._update_sample_logprobs",
    "vllm.v1.metrics.stats:SchedulerStats.num_running_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_skipped_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.kv_cache_usage",
)
"""Modules and what is in them, as `module:name.attribute`."""

ATTRIBUTES = (
    "log_stats",
    "logger_manager",
    "engine_core.add_request",
    "engine_core.shutdown",
    "input_processor.process_inputs",
    "output_processor.log_stats",
    "output_processor.lora_states.log_stats",
    "output_processor.request_states",
    "output_processor.update_scheduler_stats",
    "renderer.mm_processor",
    "renderer.render_chat",
    "renderer.render_cmpl",
)
"""Of an LLMEngine that is up."""

CORE_ATTRIBUTES = (
    "engine_core.engine_core.scheduler.get_num_unfinished_requests",
    "engine_core.engine_core.scheduler.kv_cache_manager.usage",
    "engine_core.engine_core.scheduler.running",
)
"""Of one whose core is in this process."""


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
    """Raises StartError for what is missing of PARTS; imports their modules."""
    for place in PARTS:
        part(place)


def check_engine(llm: Any) -> None:
    """Raises StartError for what is missing of an LLMEngine's attributes."""
    for place in (*ATTRIBUTES, *(() if core_has_own_process() else CORE_ATTRIBUTES)):
        found = llm
        try:
            for name in place.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            raise _missing(f"LLMEngine.{place}") from error


def _missing(name: str) -> StartError:
    import vllm

    version = getattr(vllm, "__version__", "of an unknown version")
    return StartError(f"vLLM {version} has no {name}, which the handler needs: vLLM {VERSIONS} is supported")


# Where the core runs, and which model runner there is.


def core_has_own_process() -> bool:
    """What vLLM will do, by its environment."""
    return bool(part("vllm.envs:VLLM_ENABLE_V1_MULTIPROCESSING"))


def uses_v2_runner(config: Any) -> bool | None:
    """Whether vLLM runs a VllmConfig's model by its model runner V2; None: this version does not say."""
    given = getattr(config, "use_v2_model_runner", None)
    return None if given is None else bool(given)


def v2_is_forced() -> bool:
    """Whether vLLM's environment insists on model runner V2."""
    import vllm.envs

    return bool(getattr(vllm.envs, "VLLM_USE_V2_MODEL_RUNNER", False))


def v2_takes_processors() -> bool:
    """Whether model runner V2 takes logits processors in this version."""
    return importlib.util.find_spec(RUN_V2_PROCESSORS) is not None


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


def image_limit(llm: Any) -> int:
    """How many images a prompt may have; 0: the model takes none."""
    processor = llm.renderer.mm_processor
    if processor is None:
        return 0
    limits = processor.info.allowed_mm_limits
    # Some models have one kind for images and videos alike.
    kind = "vision_chunk" if getattr(llm.model_config.hf_config, "use_unified_vision_chunk", False) else "image"
    return int(limits.get(kind, 0))


def engine_request(llm: Any, name: str, prompt: Any, params: Any, priority: int = 0) -> Any:
    """vLLM's own request, for a model that will not reason: guided decoding begins with its first token.

    `LLMEngine.add_request` takes it in the prompt's place. It calls that deprecated, and has no other way to say so.
    """
    tasks = llm.get_supported_tasks()
    request = llm.input_processor.process_inputs(name, prompt, params, supported_tasks=tasks, priority=priority)
    request.reasoning_ended = True
    return request


def reject_transfer(llm: Any, name: str, transfer: Mapping[str, Any]) -> None:
    """Tells the connector of a request that is refused, so that what is kept for it elsewhere is let go.

    By a request that ends before it begins, as vLLM's server does (AsyncLLM.notify_kv_transfer_request_rejected).
    """
    from vllm import SamplingParams

    request = part("vllm.v1.engine:EngineCoreRequest")(
        request_id=name, prompt_token_ids=[0], mm_features=None,
        sampling_params=SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": dict(transfer)}),
        pooling_params=None, arrival_time=time.time(), lora_request=None, cache_salt=None, data_parallel_rank=None,
        abort_immediately=True,
    )  # fmt: skip
    llm.engine_core.add_request(request)


# Outputs.


def keep_chosen_only(llm: Any, name: str) -> bool:
    """Has the outputs of a request just added (`name` is what `add_request` returned) carry floats as `logprobs`.

    Most requests want the chosen token's number only (`Sampling.logprobs` 0). vLLM's LogprobsProcessor would turn three
    arrays into lists, a dictionary and an object with every token, which costs more than all the rest of its output
    processing. False where the request has no log-probabilities. A sequence's `cumulative_logprob` stays 0 (ours is
    made of the tokens' own).
    """
    state = llm.output_processor.request_states.get(name)
    processor: Any = getattr(state, "logprobs_processor", None)
    chosen = getattr(processor, "logprobs", None)
    if not isinstance(chosen, list):
        return False

    def update(rows: Any) -> None:
        # A row a token; "the sampler puts the sampled logprob in first" (LogprobsProcessor). Others in the batch may
        # have asked for more.
        values = rows.logprobs
        if len(values) == 1:
            chosen.append(values.item(0))
        else:
            chosen.extend(values[:, 0].tolist())

    processor._update_sample_logprobs = update
    return True


class VllmStats:
    """How busy one LLMEngine is, without vLLM's own statistics, which cost a Python call or more a token.

    A core in this process is read directly. One in a process of its own reports with each step (the engine must be made
    with `disable_log_stats=False`); with `quiet` nothing else is made of these reports.
    """

    def __init__(self, llm: Any, *, quiet: bool) -> None:
        self._scheduler = None if core_has_own_process() else llm.engine_core.engine_core.scheduler
        self._reported: Any = None
        if self._scheduler is None:
            self._take_reports(llm, quiet)

    def now(self) -> EngineStats:
        """As of the last step."""
        if self._scheduler is not None:
            scheduler: Any = self._scheduler
            running = len(scheduler.running)
            waiting = max(0, scheduler.get_num_unfinished_requests() - running)
            return EngineStats(running=running, waiting=waiting, cache_usage=scheduler.kv_cache_manager.usage)
        if self._reported is None:
            return EngineStats()
        reported = self._reported
        waiting = reported.num_waiting_reqs + reported.num_skipped_waiting_reqs
        return EngineStats(running=reported.num_running_reqs, waiting=waiting, cache_usage=reported.kv_cache_usage)

    def _take_reports(self, llm: Any, quiet: bool) -> None:
        processor = llm.output_processor
        pass_on = processor.update_scheduler_stats

        def take(reported: Any) -> None:
            if reported is not None:
                self._reported = reported
            pass_on(reported)

        processor.update_scheduler_stats = take
        if quiet:
            llm.log_stats = processor.log_stats = processor.lora_states.log_stats = False
            llm.logger_manager = None
