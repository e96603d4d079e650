"""What of vLLM we touch and it does not document: a table, and its check before anything starts.

    start_vllm --check_library--> a version that is supported, PARTS are there --> vLLM starts

A version that is too old, or a part that is missing, ends the start with one StartError, which names the versions that
are supported. Looked up in 0.26.0, 0.28.0 and 0.32.0. ATTRIBUTES are looked for once their objects have been made.
tests/model/vllm/library/test_parts.py finds what is used and in no table.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
from pathlib import Path
from typing import Any

from ...errors import StartError
from .version import VERSIONS, refusal, vllm_version, warning

__all__ = [
    "ATTRIBUTES",
    "PARTS",
    "RUN_V2_BUDGETS",
    "RUN_V2_PROCESSORS",
    "SECOND_TEXTS",
    "SERVER",
    "check_attributes",
    "check_library",
    "check_second_texts",
    "part",
]

log = logging.getLogger(__name__)

RUN_V2_PROCESSORS = "vllm.v1.worker.gpu.sample.logits_processor"
"""A module that 0.28 does not have: its model runner V2 takes no logits processors."""

RUN_V2_BUDGETS = "vllm.v1.worker.gpu.sample.thinking_budget"
"""A module that 0.26 does not have: its model runner V2 counts no tokens of reasoning."""

SERVER = "vllm.usage.usage_lib:UsageContext.OPENAI_API_SERVER"
"""The context by which vLLM chooses what its own server computes in a step."""

PARTS = (
    # The core and its client.
    "vllm.v1.engine.core_client:EngineCoreClient.make_async_mp_client(executor_class)",
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
    "vllm.v1.executor.multiproc_executor:MultiprocExecutor(monitor_workers)",
    "vllm.v1.engine.input_processor:InputProcessor.process_inputs(supported_tasks)",
    "vllm.lora.request:LoRARequest.lora_name",
    "vllm.lora.request:LoRARequest.lora_int_id",
    "vllm.lora.request:LoRARequest.lora_path",
    "vllm.renderers:renderer_from_config",
    "vllm.renderers:BaseRenderer.render_cmpl(skip_mm_cache)",
    "vllm.renderers:BaseRenderer.render_chat(skip_mm_cache)",
    "vllm.renderers:BaseRenderer.render_cmpl(prompt_extras)",
    "vllm.renderers:BaseRenderer.render_chat(prompt_extras)",
    "vllm.renderers:BaseRenderer.render_messages",
    "vllm.renderers:BaseRenderer.process_for_engine",
    # Options.
    "vllm:EngineArgs.get_batch_defaults",
    "vllm:EngineArgs.add_cli_args",
    "vllm:EngineArgs.create_model_config",
    "vllm:EngineArgs.create_engine_config(headless)",
    SERVER,
    "vllm.config:VllmConfig.use_v2_model_runner",
    "vllm.utils.argparse_utils:FlexibleArgumentParser",
    "vllm.utils.cpu_resource_utils:get_memory_node_info",
    "vllm.model_executor.layers.quantization:QUANTIZATION_METHODS",
    "vllm.plugins:load_general_plugins",
    # Prompts and conversations.
    "vllm.renderers.inputs.preprocess:parse_model_prompt",
    "vllm.transformers_utils.repo_utils:get_hf_file_to_dict",
    "vllm.renderers.params:TokenizeParams.apply_pre_tokenization",
    "vllm.renderers.params:TokenizeParams(max_total_tokens)",
    "vllm.renderers.params:TokenizeParams(truncate_prompt_tokens)",
    "vllm.renderers.params:TokenizeParams(do_lower_case)",
    "vllm.renderers.params:ChatParams.with_defaults",
    "vllm.renderers.params:ChatParams.get_apply_chat_template_kwargs",
    "vllm.renderers.params:merge_kwargs",
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest.build_chat_params",
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest(chat_template_kwargs)",
    "vllm.parser:ParserManager.get_parser(tool_parser_name)",
    "vllm.parser:ParserManager.get_parser(reasoning_parser_name)",
    "vllm.parser:ParserManager.get_parser(enable_auto_tools)",
    "vllm.parser:Parser.adjust_request",
    "vllm.parser.abstract_parser:get_tool_call_id_type",
    "vllm.parser:Parser.tool_parser",
    "vllm.tool_parsers:ToolParser.structural_tag_model",
    "vllm.tool_parsers:ToolParser.get_structural_tag(reasoning)",
    "vllm.reasoning:ReasoningParser.is_reasoning_end",
    "vllm.entrypoints.openai.parser.harmony_utils:REASONING_EFFORT",
    "vllm.entrypoints.openai.parser.harmony_utils:build_harmony_preamble(with_custom_tools)",
    "vllm.entrypoints.openai.parser.harmony_utils:build_harmony_preamble(reasoning_effort)",
    "vllm.entrypoints.openai.parser.harmony_utils:extract_function_from_recipient",
    "vllm.entrypoints.openai.parser.harmony_utils:extract_instructions_from_messages",
    "vllm.entrypoints.openai.parser.harmony_utils:get_encoding",
    "vllm.entrypoints.openai.parser.harmony_utils:is_function_recipient(allowed_function_tool_names)",
    "vllm.entrypoints.openai.parser.harmony_utils:parse_chat_inputs_to_harmony_messages",
    "vllm.entrypoints.openai.parser.harmony_utils:render_for_completion",
    "vllm.tool_parsers:ToolParserManager.list_registered",
    "vllm.reasoning:ReasoningParserManager.list_registered",
    "vllm.utils.mistral:is_mistral_tokenizer",
    "vllm.tokenizers.mistral:MistralTokenizer.llg_tokenizer",
    "vllm.renderers.mistral:safe_apply_chat_template",
    "vllm.multimodal.media.image:ImageMediaIO.load_bytes",
    "vllm.multimodal.processing.context:BaseProcessingInfo.allowed_mm_limits",
    "vllm.multimodal.cache:BaseMultiModalProcessorCache.get_and_update_item",
    "vllm.multimodal.cache:BaseMultiModalProcessorCache.touch_sender_cache_item",
    "vllm.utils.cache:CacheInfo(hits)",
    "vllm.multimodal.inputs:MultiModalFeatureSpec(identifier)",
    "vllm.renderers:BaseRenderer.mm_processor_cache",
    "vllm.multimodal.media.connector:MediaConnector",
    "vllm.multimodal.media.connector:MediaConnector.load_from_url",
    "vllm.renderers.params:ChatParams.with_defaults(default_mm_processor_kwargs)",
    "vllm.multimodal.media.base:MediaIO.load_base64",
    "vllm.multimodal.parse:AudioProcessorItems.get_audio_length",
    "vllm.multimodal.processing:BaseProcessingInfo.parse_mm_data",
    "vllm.multimodal.media.connector:MediaConnector.fetch_audio",
    "vllm.multimodal.media.connector:MediaConnector.fetch_video(video_processor)",
    "vllm.multimodal.media.connector:MEDIA_CONNECTOR_REGISTRY",
    "vllm.envs:VLLM_MEDIA_CONNECTOR",
    "vllm.transformers_utils.processor:get_video_processor_cls_name",
    # Audio that is written down.
    "vllm.model_executor.model_loader:get_model_cls",
    "vllm.model_executor.models.registry:_ModelInfo(supports_transcription)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.supports_transcription_only",
    "vllm.model_executor.models.interfaces:SupportsTranscription.supports_segment_timestamp",
    "vllm.model_executor.models.interfaces:SupportsTranscription.supports_explicit_language_detection",
    "vllm.model_executor.models.interfaces:SupportsTranscription.no_space_languages",
    "vllm.model_executor.models.interfaces:SupportsTranscription.validate_language",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_speech_to_text_config(task_type)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_generation_prompt(stt_params)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_num_audio_tokens(audio_duration_s)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_streaming_post_processor_cls",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_language_detection_prompt(stt_config)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.get_language_token_ids(tokenizer)",
    "vllm.model_executor.models.interfaces:SupportsTranscription.parse_language_detection_output(token_ids)",
    "vllm.model_executor.models.interfaces:StreamingTranscriptionPostProcessor.process_delta(finished)",
    "vllm.config.speech_to_text:SpeechToTextParams(audio)",
    "vllm.multimodal.media.audio:load_audio(sr)",
    "vllm.multimodal.media.audio:load_audio(max_duration_s)",
    "vllm.multimodal.audio:split_audio(audio_data)",
    "vllm.multimodal.audio:split_audio(max_clip_duration_s)",
    "vllm.multimodal.audio:split_audio(overlap_duration_s)",
    "vllm.multimodal.audio:split_audio(min_energy_window_size)",
    "vllm.inputs:split_enc_dec_input",
    # Sampling, guided decoding.
    "vllm.v1.sample.logits_processor:LogitsProcessor",
    "vllm.v1.sample.logits_processor.builtin:process_dict_updates",
    "vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar",
    "vllm.v1.structured_output.backend_xgrammar:XgrammarBackend.compile_grammar",
    "vllm.v1.structured_output.backend_guidance:validate_guidance_grammar",
    "vllm.v1.structured_output.backend_guidance:serialize_guidance_grammar",
    "vllm.v1.structured_output.utils:grammar_is_likely_lark",
    "vllm.v1.structured_output:StructuredOutputManager.grammar_init(request)",
    "vllm.v1.structured_output:StructuredOutputManager._create_grammar(request)",
    "vllm.v1.structured_output.backend_types:StructuredOutputGrammar",
    "vllm.v1.structured_output.request:get_structured_output_key",
    "vllm.v1.engine:EngineCoreRequest.reasoning_ended",
    "vllm.v1.engine:EngineCoreRequest.reasoning_parser_kwargs",
    "vllm.v1.engine:EngineCoreRequest.abort_immediately",
    "vllm.v1.engine:EngineCoreRequest.prompt_token_ids",
    "vllm.v1.engine:EngineCoreRequest.mm_features",
    "vllm.v1.engine:EngineCoreRequest.pooling_params",
    "vllm.v1.engine:EngineCoreRequest.cache_salt",
    "vllm.v1.engine:EngineCoreRequest.data_parallel_rank",
    # Outputs and numbers.
    "vllm.v1.engine:EngineCoreOutputs.outputs",
    "vllm.v1.engine:EngineCoreOutputs.engine_index",
    "vllm.v1.engine:EngineCoreOutputs.scheduler_stats",
    "vllm.v1.engine:EngineCoreOutput.new_token_ids",
    "vllm.v1.engine:EngineCoreOutput.new_logprobs",
    "vllm.v1.outputs:LogprobsLists.logprob_token_ids",
    "vllm.v1.outputs:LogprobsLists.logprobs",
    "vllm.v1.outputs:LogprobsLists.sampled_token_ranks",
    "vllm.v1.engine:EngineCoreOutput.new_prompt_logprobs_tensors",
    "vllm.v1.engine:EngineCoreOutput.finish_reason",
    "vllm.v1.engine:FinishReason.ERROR",
    "vllm.v1.engine:FinishReason.STOP",
    "vllm.v1.engine.exceptions:EngineDeadError",
    "vllm.v1.engine:EngineCoreOutput.stop_reason",
    "vllm.v1.engine:EngineCoreOutput.kv_transfer_params",
    "vllm.v1.engine:EngineCoreOutput.pooling_output",
    "vllm.v1.engine:EngineCoreOutput.prefill_stats",
    "vllm.v1.metrics.stats:PrefillStats.num_cached_tokens",
    "vllm.v1.metrics.stats:SchedulerStats.num_running_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.num_skipped_waiting_reqs",
    "vllm.v1.metrics.stats:SchedulerStats.kv_cache_usage",
    "vllm.v1.metrics.stats:IterationStats",
    "vllm.v1.metrics.stats:IterationStats.update_from_output",
    "vllm.v1.metrics.stats:IterationStats.update_from_finished_request",
    "vllm.v1.metrics.stats:RequestStateStats",
    "vllm.v1.metrics.stats:LoRARequestStates.request_finished",
    "vllm.renderers:BaseRenderer.stat_mm_cache",
    "vllm.v1.engine:EngineCoreOutput.events",
    "vllm.v1.engine:EngineCoreOutputs.timestamp",
    "vllm.v1.engine:EngineCoreEventType.PREEMPTED",
    "vllm.v1.engine:EngineCoreEventType.SCHEDULED",
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
"""Modules and what is in them, as `module:name.attribute`; a parameter of a function as `module:name(parameter)`."""

ATTRIBUTES = {
    "vllm.v1.engine.core_client:AsyncMPClient": ("outputs_queue",),
    "vllm.renderers:BaseRenderer": ("mm_processor",),
    "vllm.config:ModelConfig": ("encoder_config", "_model_info"),
    "vllm.tokenizers.mistral:MistralTokenizer": ("instruct", "tokenizer", "is_tekken", "version", "supports_grammar"),
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner": ("input_batch", "num_prompt_logprobs", "query_start_loc"),
    "vllm.v1.worker.gpu_input_batch:InputBatch": ("req_id_to_index",),
    "vllm.v1.utils:CpuGpuBuffer": ("np",),
}
"""Of objects, by their classes, which get them when they are made."""

SECOND_TEXTS = "compressed_token_type_ids"
"""In `PoolingParams.extra_kwargs`: the token at which the second text of a pair begins. Only vLLM's runners read it."""
READS_SECOND_TEXTS = "vllm.v1.worker.gpu_model_runner"


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
        _check(place)


def _check(place: str) -> None:
    path, _, parameter = place.removesuffix(")").partition("(")
    found = part(path)
    if parameter and parameter not in inspect.signature(found).parameters:
        raise _missing(place.replace(":", "."))


def check_attributes(place: str, made: Any) -> None:
    """Raises StartError where an object of a class in ATTRIBUTES lacks one."""
    for name in ATTRIBUTES[place]:
        if not hasattr(made, name):
            raise _missing(f"{place.replace(':', '.')}.{name}")


def check_second_texts() -> None:
    """Raises StartError where vLLM would not know which part of a pair is its second text, and score it as one text."""
    spec = importlib.util.find_spec(READS_SECOND_TEXTS)
    if spec is None or spec.origin is None or SECOND_TEXTS not in Path(spec.origin).read_text("utf-8"):
        raise _missing(f"{READS_SECOND_TEXTS} ({SECOND_TEXTS})")


def _missing(name: str) -> StartError:
    return StartError(f"vLLM {vllm_version()} has no {name}, which the handler needs: {VERSIONS} is supported")
