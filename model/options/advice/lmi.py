"""Options of LMI's former and other back ends, by djl-serving's source and user guides up to 0.36.

The files: engines/python/setup/djl_python/properties_manager/ (tnx_properties.py, lmi_dist_rb_properties.py,
trt_properties.py, ds_properties.py, scheduler_rb_properties.py, vllm_rb_properties.py, hf_properties.py and their
history) and serving/docs/lmi/user_guides/. Those that are accepted without effect are in model/options/table.py.
"""

from __future__ import annotations

from .row import DEFAULT, Row, by_hand, gone, lost, renamed

__all__ = ["LMI"]

_TRTLLM = "TensorRT-LLM's own: vLLM does without"
_NEURON = "it is for Neuron's compiler, and vLLM here runs on GPUs and CPUs"
_DEEPSPEED = "DeepSpeed's own: vLLM does without"
_SCHEDULER = "it is for a scheduler that no longer exists"
_MADE = "a checkpoint says how it was made"
_REQUESTS = "requests say it: max_new_tokens, max_tokens"

LMI: tuple[Row, ...] = (
    # TensorRT-LLM.
    renamed("max_input_len", "TensorRT-LLM's name of it", {"max_prompt_tokens": "{value}"}),
    renamed("max_seq_len", "TensorRT-LLM's name of it", {"max_model_len": "{value}"}),
    renamed("max_batch_size max_num_sequences", "TensorRT-LLM's name of it", {"max_rolling_batch_size": "{value}"}),
    renamed("kv_cache_free_gpu_mem_fraction free_gpu_memory_fraction",
            "a share of what the weights leave there, of all memory here", {"gpu_memory_utilization": "{value}"}),
    renamed("enable_kv_cache_reuse enable_block_reuse", "TensorRT-LLM's name of it",
            {"enable_prefix_caching": "{value}"}, value="true|false", convert=str.lower),
    renamed("use_cuda_graph enable_cuda_graph", "TensorRT-LLM's name of it", {"enforce_eager": "false"}, value="true"),
    renamed("use_cuda_graph enable_cuda_graph", "TensorRT-LLM's name of it", {"enforce_eager": "true"}, value="false"),
    lost("max_output_len max_new_tokens", _REQUESTS),
    gone("smoothquant_alpha smoothquant_per_token smoothquant_per_channel calib_size calib_batch_size calib_dataset "
         "awq_format awq_block_size awq_calib_size fp8_scheme q_format", _MADE),
    gone("batch_scheduler_policy use_custom_all_reduce max_draft_len max_beam_width tokens_per_block "
         "enable_trt_overlap enable_overlap_scheduler max_attention_window max_attention_window_size fast_build "
         "enable_build_cache baichuan_model_version chatglm_model_version gpt_model_version use_fused_mlp "
         "use_fp8_context_fmha trtllm_checkpoint_path multi_query_mode multi_block_mode rotary_dim rotary_base "
         "rotary_scaling_type rotary_scaling_factor logits_dtype load_by_shard num_engine_workers "
         "num_checkpoint_workers auto_parallel auto_parallel_world_size enable_attention_dp batching_type "
         "normalize_log_probs gather_generation_logits extended_runtime_perf_knob_config embedding_parallel_mode "
         "iter_stats_max_iterations request_stats_max_iterations sink_token_length onboard_blocks "
         "cross_kv_cache_fraction secondary_offload_min_priority event_buffer_max_size attn_backend "
         "moe_tensor_parallel_size", _TRTLLM),
    renamed("moe_expert_parallel_size", "vLLM spreads the experts over the same devices as the rest",
            {"enable_expert_parallel": "true"}, value=r"[2-9]|[1-9]\d+"),
    gone("moe_expert_parallel_size", "1 is the default", value="1"),
    gone("context_parallel_size", "1 is the default", value="1"),
    lost("context_parallel_size", "vLLM has option.prefill_context_parallel_size and decode_context_parallel_size"),
    by_hand("host_cache_size", "set option.kv_offloading_size, in GiB for all devices together"),
    # lmi-dist, and vLLM as LMI had it.
    gone("paged_attention", "vLLM's KV cache always has pages"),
    gone("speculative_telemetry", "vLLM counts accepted drafts by itself"),
    renamed("torch_dtype data_type", "its former name", {"dtype": "{value}"},
            value=r"(?:torch\.)?(?:auto|fp16|fp32|bf16|float16|float32|bfloat16|half|float)",
            convert=lambda text: text.lower().removeprefix("torch.")),
    gone("preloaded_model", "the engine loads the model"),
    gone("image_placeholder_token", "the model's own chat template places images"),
    gone("is_mpi", "one worker uses all devices"),
    renamed("entry_point", "DJL Serving's name of it", {"entryPoint": "{value}"}),
    # transformers-NeuronX.
    renamed("n_positions", "transformers-NeuronX's name of it", {"max_model_len": "{value}"}),
    renamed("amp", "transformers-NeuronX's name of it", {"dtype": "{value}"},
            value="f16|f32|bf16|fp16|fp32", convert=lambda text: {"f16": "fp16", "f32": "fp32"}.get(text, text)),
    gone("neuron_optimize_level neuron_cc_pipeline_factor neuron_quant enable_mixed_precision_accumulation "
         "enable_saturate_infinity unroll load_split_model context_length_estimate compiled_graph_path "
         "draft_model_compiled_path save_mp_checkpoint_path group_query_attention model_loader fuse_qkv fuse_mlp "
         "fused_rmsnorm_qkv qkv_tiling weight_tiling mlp_out_weight_transpose attention_layout collectives_layout "
         "cache_layout partition_schema all_reduce_dtype cast_logits_dtype on_device_embedding "
         "on_device_embedding_config on_device_generation shard_over_sequence sequence_parallel "
         "sequence_parallel_norm_threshold compilation_worker_count multi_node override_neuron_config", _NEURON),
    gone("rolling_batch_strategy", "vLLM always batches continuously"),
    # The scheduler of transformers.
    gone("decoding_strategy max_sparsity max_splits multi_gpu", _SCHEDULER),
    # transformers.
    gone("attn_implementation", "vLLM chooses the kernel; option.attention_backend names another one"),
    # DeepSpeed.
    renamed("max_tokens", "DeepSpeed's name of it", {"max_model_len": "{value}"}),
    gone("checkpoint ds_config training_mp_size return_tuple triangular_masking", _DEEPSPEED),
    # DJL's engines of vectors.
    renamed("reranking", "the task says it", {"task": "text-ranking"}, value="true"),
    gone("reranking", DEFAULT, value="false"),
    renamed("pooling", "vLLM's form of it", {"pooler_config": '{"pooling_type": "{value}"}'}, value="cls|mean",
            convert=str.upper),
    by_hand("pooling", 'set option.pooler_config={"pooling_type": "CLS"} or the like'),
)  # fmt: skip
"""The first row that is about a name and its value counts."""
