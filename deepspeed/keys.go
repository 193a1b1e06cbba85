package deepspeed

// unread are the keys of DeepSpeed's documentation that are not read, by what there is to say.
var unread = []struct {
	kind Kind
	why  string
	keys []string
}{
	{Unused, "the plan says what is recomputed or sent to the host, value by value", []string{"activation_checkpointing"}},
	{Unused, "reads of the disk tier are direct and deep by themselves", []string{"aio"}},
	{Unused, "the plan sizes and times every copy; there are no buckets to set", under("zero_optimization",
		"reduce_bucket_size", "allgather_bucket_size", "allgather_partitions", "reduce_scatter", "contiguous_gradients", "overlap_comm",
		"use_multi_rank_bucket_allreduce", "sub_group_size", "round_robin_gradients", "stage3_prefetch_bucket_size",
		"stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance",
		"stage3_module_granularity_threshold", "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential",
		"zero_hpz_partition_size", "mics_shard_size", "mics_hierarchical_params_gather", "memory_efficient_linear", "leaf_module")},
	{Unused, "checkpoints are whole model folders that any number of devices reads", append(under("zero_optimization",
		"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save", "load_from_fp32_weights", "elastic_checkpoint",
		"pipeline_loading_checkpoint", "save_muon_momentum_buffer_in_memory"), "checkpoint", "nebula", "elasticity")},
	{Unused, "it is about PyTorch's modules, of which there are none", append(under("zero_optimization",
		"ignore_unused_parameters", "legacy_stage1", "override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks"),
		"zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "hybrid_engine", "graph_harvesting", "compile", "dataloader_drop_last")},
	{Unused, "host memory is pinned wherever a device copies from it, in slabs the plan has sized", append(append(
		under("zero_optimization.offload_param", "pin_memory", "buffer_count", "buffer_size", "max_in_cpu"),
		under("zero_optimization.offload_optimizer", "pin_memory", "buffer_count", "fast_init", "pipeline_read", "pipeline_write", "pipeline", "cpuadam_cores_perc")...),
		"zero_optimization.cpu_offload_use_pin_memory")},
	{Unused, "the loss scale falls at every overflow and ends the run below 2^-16", under("fp16", "hysteresis", "consecutive_hysteresis", "min_loss_scale")},
	{Unused, "fp16 is not enabled, so no loss is scaled", under("fp16", "loss_scale", "initial_scale_power", "loss_scale_window")},
	{Unused, "inputs are cast where the model computes, and masters are fp32", append(under("fp16", "auto_cast"),
		under("bf16", "immediate_grad_update", "check_grad_overflow")...)},
	{Unused, "gradients are added in one fixed order, without a factor", []string{"prescale_gradients", "gradient_predivide_factor",
		"communication_data_type", "seq_parallel_communication_data_type", "disable_allgather"}},
	{Unused, "reports, traces and profiles are flags of the run", []string{"wall_clock_breakdown", "memory_breakdown", "dump_state",
		"steps_per_print", "flops_profiler", "comms_logger", "timers", "tensorboard", "wandb", "csv_monitor", "comet"}},
	{Unused, "plans are searched anyway; see plan --max-batch-size", []string{"autotuning"}},
	{Unused, "it tells others what was chosen", []string{"scheduler.params.last_batch_iteration", "optimizer.legacy_fusion", "optimizer.params.set_grad_none"}},
	{Missing, "masters and gradients are as the precision says here", []string{"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads",
		"data_types"}},
	{Missing, "weights and gradients cross links as they are", under("zero_optimization", "zero_quantized_weights", "zero_quantized_gradients",
		"zero_quantized_nontrainable_weights", "zeropp_loco_param")},
	{Missing, "updates are exact here: each iteration sees all gradients of the one before", append(under("zero_optimization", "zenflow"),
		under("zero_optimization.offload_optimizer", "super_offload")...)},
	{Missing, "there is no such training here; what it would change is not changed", []string{"amp", "torch_autocast", "sparse_gradients", "sparse_attention",
		"progressive_layer_drop", "curriculum_learning", "data_efficiency", "compression_training", "eigenvalue", "quantize_training",
		"weight_quantization", "pipeline", "tensor_parallel", "sequence_parallel_size", "use_data_before_expert_parallelism", "expert_parallel_size"}},
}

func under(path string, keys ...string) (list []string) {
	for _, key := range keys {
		list = append(list, path+"."+key)
	}
	return list
}
