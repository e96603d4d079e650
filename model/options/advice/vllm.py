"""vLLM's arguments that none of 0.26 to 0.32 has, those that only some of them have, and what has taken their place.

Sources: vLLM's EngineArgs (vllm/engine/arg_utils.py) of 0.4 to 0.25, which LMI's containers had, against 0.26.0, 0.28.0
and 0.32.0. A name that the installed version has is never looked up here.
"""

from __future__ import annotations

from .row import DEFAULT, Row, by_hand, gone, lost, renamed

__all__ = ["NEWER", "NEWEST", "ROPE", "VLLM"]

NEWEST = "0.32"
"""The newest version that is tested."""

_FORM = "its form in vLLM now"
_SCHEDULES = "vLLM schedules in a way of its own since its engine V1"
_TOKENIZERS = "there is one tokenizer, in the engine's process"
_PROMPT_ADAPTERS = "vLLM has no prompt adapters any more"
_IMAGES = "the model's own processor of images says it"
_SCALES = "the checkpoint has the scales of the KV cache, or there are none"
_DRAFTS = "vLLM accepts drafts by rejection sampling alone"
ROPE = (
    'set option.hf_overrides={"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}} or '
    "the like, with all of the model's own, as rope_theta in its config.json"
)
"""vLLM replaces the model's rope_parameters by what hf_overrides has, and without rope_theta there is no default."""

VLLM: tuple[Row, ...] = (
    # Structured output.
    renamed("guided_decoding_backend", _FORM, {"structured_outputs_config": '{"backend": "{value}"}'},
            value="(?:auto|xgrammar|guidance|outlines|lm-format-enforcer)(?::.*)?",
            convert=lambda text: text.partition(":")[0].lower()),
    renamed("guided_decoding_disable_any_whitespace", _FORM,
            {"structured_outputs_config": '{"disable_any_whitespace": {value}}'}, value="true|false",
            convert=str.lower),
    renamed("guided_decoding_disable_additional_properties", f"{_FORM}, guidance alone has it",
            {"structured_outputs_config": '{"backend": "guidance", "disable_additional_properties": true}'},
            value="true"),
    gone("guided_decoding_disable_additional_properties", DEFAULT, value="false"),
    gone("guided_decoding_disable_fallback", "the backend that is named is the only one"),
    by_hand("guided_decoding_backend", 'set option.structured_outputs_config={"backend": "xgrammar"}, or guidance or '
         "outlines"),
    gone("logits_processor_pattern", "requests cannot name logits processors"),
    # Speculative decoding.
    renamed("speculative_model", "its name here", {"speculative_draft_model": "{value}"}),
    renamed("num_speculative_tokens", "its name here", {"speculative_length": "{value}"}),
    renamed("speculative_draft_tensor_parallel_size", "its name here", {"draft_model_tp_size": "{value}"}),
    by_hand("ngram_prompt_lookup_max ngram_prompt_lookup_min", 'set option.speculative_config={"method": "ngram", '
         '"num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2} or the like'),
    by_hand("speculative_model_quantization speculative_max_model_len",
         'set option.speculative_config={"model": "owner/draft", "num_speculative_tokens": 4} or the like, which has '
         '"quantization" and "max_model_len" too'),
    gone("speculative_disable_by_batch_size", "vLLM drafts whatever the size of the batch"),
    gone("speculative_disable_mqa_scorer num_lookahead_slots disable_logprobs_during_spec_decoding", _SCHEDULES),
    gone("spec_decoding_acceptance_method typical_acceptance_sampler_posterior_threshold "
         "typical_acceptance_sampler_posterior_alpha", _DRAFTS),
    # The scheduler.
    gone("num_scheduler_steps multi_step_stream_outputs scheduler_delay_factor preemption_mode use_v2_block_manager "
         "disable_async_output_proc use_async_output_proc", _SCHEDULES),
    gone("swap_space", "vLLM computes the prompts of preempted requests again; option.kv_offloading_size keeps the KV "
         "cache of prompts in the machine's memory"),
    gone("max_num_partial_prefills max_long_partial_prefills", "vLLM fills each step by itself", until="0.26"),
    # Graphs.
    renamed("cuda_graph_sizes", _FORM, {"cudagraph_capture_sizes": "{value}"}),
    gone("max_seq_len_to_capture max_context_len_to_capture", "vLLM's graphs go by the size of the batch, not by the "
         "length of prompts"),
    # The model.
    by_hand("rope_scaling rope_theta", ROPE),
    renamed("override_pooler_config", "its name now", {"pooler_config": "{value}"}),
    gone("qlora_adapter_name_or_path", "an adapter of any kind lies in the folder `adapters`"),
    gone("quantization_param_path", _SCALES),
    gone("calculate_kv_scales", _SCALES, until="0.26"),
    gone("override_attention_dtype", "attention has the type of option.dtype", until="0.26"),
    gone("enable_bf16x3_router_gemm", "vLLM chooses the kernels of a mixture's router", until="0.28"),
    # Adapters.
    gone("enable_lora_bias", "adapters with a bias are not served"),
    lost("enable_prompt_adapter", _PROMPT_ADAPTERS, value="true"),
    gone("enable_prompt_adapter max_prompt_adapters max_prompt_adapter_token", _PROMPT_ADAPTERS),
    # Images.
    gone("image_input_type image_token_id image_input_shape image_feature_size image_processor "
         "image_processor_revision", _IMAGES),
    gone("disable_image_processor", _IMAGES),
    renamed("disable_mm_preprocessor_cache", _FORM, {"mm_processor_cache_gb": "0"}, value="true"),
    gone("disable_mm_preprocessor_cache", DEFAULT, value="false"),
    renamed("enable_multimodal_encoder_data_parallel", _FORM, {"mm_encoder_tp_mode": "data"}, value="true"),
    gone("enable_multimodal_encoder_data_parallel", DEFAULT, value="false"),
    # Processes and devices.
    renamed("worker_use_ray engine_use_ray", _FORM, {"distributed_executor_backend": "ray"}, value="true"),
    gone("worker_use_ray engine_use_ray", DEFAULT, value="false"),
    gone("tokenizer_pool_size tokenizer_pool_type tokenizer_pool_extra_config", _TOKENIZERS),
    renamed("num_redundant_experts", _FORM, {"eplb_config": '{"num_redundant_experts": {value}}'}, value=r"\d+"),
    renamed("eplb_window_size", _FORM, {"eplb_config": '{"window_size": {value}}'}, value=r"\d+"),
    renamed("eplb_step_interval", _FORM, {"eplb_config": '{"step_interval": {value}}'}, value=r"\d+"),
    renamed("eplb_log_balancedness", _FORM, {"eplb_config": '{"log_balancedness": {value}}'}, value="true|false",
            convert=str.lower),
)  # fmt: skip
"""The first row that is about a name and its value counts."""

_NEWER = """
aux_output_config custom_histogram_buckets dcp_q_replicate dp_sync_interval ec_manager_config elastic_ep_max_dp_size
enable_batch_sharded_sampling enable_fault_tolerance enable_hc_sp enable_mamba_shared_prefix_checkpoint
enable_nccl_comm_suspend enable_shm_tensor_arena enable_trace_replay engram_config fault_tolerance_config
kda_decode_backend kda_prefill_backend log_config_file log_level logging_config long_prefill_token_threshold_adaptive
mamba_ssu_algorithm max_lora_cls_labels max_num_active_seqs max_num_queued_reqs max_num_queued_tokens
mm_device_do_normalize mm_hasher_algorithm mm_processor_device per_request_spec_decode_metrics
prefix_cache_retention_interval replayssm_buffer_len return_sampling_mask sleep_mode_offload_cudagraph
sleep_preserve_parameter_names sparse_indexer_topk_backend swa_bounded_replay use_replayssm video_pruning_method
watermark_config
"""
NEWER = frozenset(_NEWER.split())
"""Arguments that the newest version has and the oldest does not."""
