package recipe

// TheirNames are what transformers, TRL, PEFT, axolotl and LLaMA-Factory call settings of ours, with hyphens for
// their underscores: our name, and a value where that is part of it.
var TheirNames = map[string]string{
	"steps": "max-steps", "iterations": "max-steps", "num-steps": "max-steps", "num-train-epochs": "epochs", "num-epochs": "epochs",
	"per-device-train-batch-size": "micro-batch-size", "batch": "batch-size", "accumulate": "gradient-accumulation-steps", "grad-accum": "gradient-accumulation-steps",
	"max-seq-length": "seq-len", "max-length": "seq-len", "sequence-len": "seq-len", "sequence-length": "seq-len", "seq": "seq-len", "block-size": "seq-len", "cutoff-len": "seq-len", "model-max-length": "seq-len", "context": "seq-len",
	"output-dir": "out", "output": "out", "save-dir": "out", "lr-scheduler-type": "lr-scheduler", "scheduler": "lr-scheduler", "schedule": "lr-scheduler", "warmup": "warmup-steps",
	"lr-scheduler-kwargs": "lr-scheduler cosine_with_min_lr:min_lr_rate=0.1", "min-lr": "lr-scheduler cosine_with_min_lr:min_lr=1e-6", "cosine-min-lr-ratio": "lr-scheduler cosine_with_min_lr:min_lr_rate=0.1",
	"clip": "max-grad-norm", "gradient-clipping": "max-grad-norm", "grad-clip": "max-grad-norm", "rank": "lora-rank", "r": "lora-rank", "alpha": "lora-alpha", "dropout": "lora-dropout",
	"lora-target-modules": "target-modules", "lora-target": "target-modules", "lora-target-linear": "target-modules all-linear", "lora-modules-to-save": "modules-to-save", "additional-target": "modules-to-save",
	"peft-use-rslora": "use-rslora", "peft-use-dora": "use-dora", "loraplus-lr-ratio": "param-group lora_B:lr=1.6e-3", "lora-model-dir": "adapter", "adapter-name-or-path": "adapter",
	"dataset": "data", "datasets": "data", "train-file": "data", "train-files": "data", "validation-file": "eval-data", "eval-dataset": "eval-data", "test-datasets": "eval-data", "val-set-size": "eval-split", "val-size": "eval-split", "eval-every": "eval-steps",
	"save-every": "save-steps", "save-total-limit": "keep", "logging-dir": "log", "logging-steps": "log", "bf16": "precision bf16", "fp16": "precision fp16", "mixed-precision": "precision", "pure-bf16": "precision pure-bf16",
	"load-in-4bit": "method qlora", "load-in-8bit": "method qlora --quantization int8", "finetuning-type": "method", "bnb-4bit-quant-type": "quantization nf4", "resume-from-checkpoint": "resume", "offload-folder": "disk", "nvme-path": "disk",
	"load-best-model-at-end": "keep-best", "early-stopping-patience": "patience", "adam-beta1": "optimizer adamw:beta1=0.9", "adam-beta2": "optimizer adamw:beta2=0.95", "adam-epsilon": "optimizer adamw:eps=1e-8", "optim-args": "optimizer adamw:beta2=0.95",
	"use-cpu": "device cpu", "no-cuda": "device cpu", "tf32": "device cuda:0,tf32", "fsdp": "strategy zero-3", "zero-stage": "strategy zero-2", "gradient-checkpointing": "strategy checkpointing",
	"train-on-inputs": "train-on-prompts", "train-on-prompt": "train-on-prompts", "template": "chat-template", "data-seed": "seed", "per-device-eval-batch-size": "eval-batches", "sample-packing": "packing whole", "base-model": ModelKey, "model-name-or-path": ModelKey, "model-name": ModelKey,
}

const leaveOut = "leave it out"

// Without are settings of theirs for which there is none, and why, or what to do instead.
var Without = map[string]string{
	"label-smoothing-factor":  "the loss of language models is without label smoothing; networks of your own have it (nn.CrossEntropy, Smoothing)",
	"label-smoothing":         "the loss of language models is without label smoothing; networks of your own have it (nn.CrossEntropy, Smoothing)",
	"neftune-noise-alpha":     "no noise is added to embeddings; " + leaveOut,
	"assistant-only-loss":     "of conversations only answers are in the loss, unless train-on-prompts is set; " + leaveOut,
	"completion-only-loss":    "of prompts and completions only completions are in the loss, unless train-on-prompts is set; " + leaveOut,
	"group-by-length":         "documents are packed, so little is padding; " + leaveOut,
	"train-sampling-strategy": "documents are shuffled in every epoch; " + leaveOut,
	"dataloader-drop-last":    "the last batch is used too, with fewer sequences; " + leaveOut,
	"dataloader-num-workers":  "the next batch is made while a step runs; " + leaveOut,
	"torch-compile":           "nothing is compiled; " + leaveOut,
	"flash-attention":         "attention never stores its scores; " + leaveOut,
	"attn-implementation":     "attention never stores its scores; " + leaveOut,
	"flash-attn":              "attention never stores its scores; " + leaveOut,
	"eval-strategy":           "eval-steps says how often to evaluate; without it the end is evaluated, where there is data for that",
	"evaluation-strategy":     "eval-steps says how often to evaluate; without it the end is evaluated, where there is data for that",
	"save-strategy":           "save-steps says how often to save; the end is always saved",
	"evals-per-epoch":         "eval-steps says how often to evaluate",
	"saves-per-epoch":         "save-steps says how often to save",
	"logging-strategy":        "log has every step",
	"metric-for-best-model":   "the eval loss is compared; " + leaveOut,
	"stage":                   "models are trained on texts and answers (sft); " + leaveOut,
	"do-train":                leaveOut + ": train trains",
	"overwrite-output-dir":    "a folder that has a run is continued with resume; name another, or delete it",
	"special-tokens":          "the tokens are those of the model's folder; " + leaveOut,
	"report-to":               "every run has an event log, which dashboard, top and report show; report RUN --format tensorboard writes it for other programs",
}
