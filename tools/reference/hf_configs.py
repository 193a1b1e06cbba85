"""Makes hf/defaults (what transformers assumes where config.json is silent), hf/testdata/resolved.json (configs as
people publish them, and what transformers makes of them) and hf/testdata/tiny (a whole folder of a GPT-2 shape).

Needs: transformers 5, without torch; safetensors, numpy. Run from the repository root: python tools/reference/hf_configs.py
"""
import dataclasses
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

CLASSES = [GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config]
ROPE = {"rope_theta": 10000.0, "rope_type": "default"}


def defaults(cls):
    """The fields of the class as declared, before values are derived from one another."""
    declared = {f.name: f.default for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
    out = {k: declared[k] for k in json.loads(cls().to_json_string()) if k in declared}
    out["model_type"] = cls.model_type
    if "rope_parameters" in out:
        out["rope_parameters"] = ROPE
    out.pop("transformers_version", None)
    return out


# Shapes and spellings found in published folders.
GIVEN = {
    "gpt2 empty": {"model_type": "gpt2"},
    "llama empty": {"model_type": "llama"},
    "mistral empty": {"model_type": "mistral"},
    "qwen2 empty": {"model_type": "qwen2"},
    "qwen3 empty": {"model_type": "qwen3"},
    "gpt2 by other names": {"model_type": "gpt2", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 32},
    "gpt2 inner": {"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_inner": 100, "resid_pdrop": 0.0, "attn_pdrop": 0.25, "embd_pdrop": 0.5},
    "llama 2 style": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "num_hidden_layers": 32, "rms_norm_eps": 1e-05, "rope_scaling": None,
        "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 32000, "max_position_embeddings": 4096},
    "llama 3.1 style": {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
                         "rope_type": "llama3"},
        "torch_dtype": "bfloat16", "vocab_size": 128256},
    "llama linear, old spelling": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, "max_position_embeddings": 8192},
    "llama new rope": {
        "model_type": "llama", "max_position_embeddings": 65536,
        "rope_parameters": {"rope_theta": 250000.0, "rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0,
                            "original_max_position_embeddings": 16384, "attention_factor": 1.25}},
    "llama wide heads": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "attention_bias": True, "mlp_bias": True},
    "mistral without window": {"model_type": "mistral", "sliding_window": None, "head_dim": 64, "eos_token_id": None},
    "qwen2.5 style": {
        "model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
        "num_hidden_layers": 24, "rope_theta": 1000000.0, "sliding_window": 32768, "use_sliding_window": False,
        "tie_word_embeddings": True, "max_window_layers": 21, "bos_token_id": 151643, "eos_token_id": 151645},
    "qwen2 with windows": {"model_type": "qwen2", "num_hidden_layers": 6, "max_window_layers": 4, "use_sliding_window": True, "sliding_window": 128},
    "qwen3 layer types": {
        "model_type": "qwen3", "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 64, "hidden_size": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "qwen3 yarn": {"model_type": "qwen3", "rope_theta": 1000000, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
                   "max_position_embeddings": 131072},
}

by_type = {cls.model_type: cls for cls in CLASSES}
out = pathlib.Path("hf/defaults")
out.mkdir(parents=True, exist_ok=True)
for cls in CLASSES:
    (out / f"{cls.model_type}.json").write_text(json.dumps(defaults(cls), indent=2, sort_keys=True) + "\n")

cases = {}
for name, given in GIVEN.items():
    config = by_type[given["model_type"]].from_dict(json.loads(json.dumps(given)))
    cases[name] = {"given": given, "resolved": json.loads(config.to_json_string())}
pathlib.Path("hf/testdata").mkdir(parents=True, exist_ok=True)
pathlib.Path("hf/testdata/resolved.json").write_text(json.dumps(cases, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

tiny = pathlib.Path("hf/testdata/tiny")
tiny.mkdir(exist_ok=True)
config = GPT2Config(n_embd=4, n_head=2, n_layer=1, n_positions=8, vocab_size=5, architectures=["GPT2LMHeadModel"], dtype="float32")
(tiny / "config.json").write_text(config.to_json_string())
(tiny / "generation_config.json").write_text('{\n  "eos_token_id": 3\n}\n')
(tiny / "tokenizer.json").write_text("{}\n")
save_file({"transformer.wte.weight": np.arange(20, dtype=np.float32).reshape(5, 4) / 8,
           "transformer.wpe.weight": np.arange(32, dtype=np.float16).reshape(8, 4) / 4}, tiny / "model.safetensors", {"format": "pt"})
