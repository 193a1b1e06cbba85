"""Writes rope.json: the frequencies transformers gives to scaled rotary positions.

Run with `python arch/testdata/rope.py` where transformers is installed.
"""

import json
from pathlib import Path

import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}

CASES = {
    "default": {"rope_type": "default", "rope_theta": 500000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": YARN,
    "yarn betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn no truncation": {**YARN, "truncate": False},
    "yarn given factor": {**YARN, "attention_factor": 0.75},
    "yarn mscale": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.2},
}


def case(parameters):
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_attention_heads": 4,
        "max_position_embeddings": 131072,
        "rope_parameters": parameters,
    }
    made = LlamaRotaryEmbedding(LlamaConfig(**config))
    return {"config": config, "freq": made.inv_freq.tolist(), "scale": made.attention_scaling}


cases = {name: case(parameters) for name, parameters in CASES.items()}
out = {"transformers": transformers.__version__, "cases": cases}
Path(__file__).with_name("rope.json").write_text(json.dumps(out, indent=1) + "\n")
