"""Makes testdata/reference/config_keys.json: what each key of config.json does in transformers.

Every key that a model type's config class has, that its modeling file reads, or that published folders have is given
other values, one at a time. The tiny models of models.py are loaded with each and give a loss, or an error: weights that
are missing, left over or of another shape count as one.

Run with `python -m tools.reference.config_keys` from the root of the repository, after models.py.
"""

import importlib
import inspect
import json
import re
import shutil
import tempfile
from pathlib import Path

import safetensors.torch
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from . import fixture

MODELS = ["gpt2", "llama", "mistral", "qwen2", "qwen3"]

# Keys of other versions and of other makers, as published folders have them.
PUBLISHED = {
    "_name_or_path": ["x"], "_attn_implementation": ["eager", "sdpa"], "attn_implementation": ["eager"], "auto_map": [{"AutoModelForCausalLM": "modeling_x.X"}],
    "transformers_version": ["4.0.0"], "pretraining_tp": [1, 2], "rope_interleaved": [True], "pruned_heads": [{}, {"0": [1]}],
    "is_decoder": [True], "is_encoder_decoder": [True], "add_cross_attention": [True], "tie_encoder_decoder": [True], "torchscript": [True],
    "use_bfloat16": [True], "chunk_size_feed_forward": [3], "output_attentions": [True], "output_hidden_states": [True], "return_dict": [False],
    "temperature": [0.5], "top_k": [3], "do_sample": [True], "max_length": [7], "num_labels": [5], "id2label": [{"0": "a"}], "problem_type": ["regression"],
    "finetuning_task": ["x"], "task_specific_params": [{"a": 1}], "prefix": ["x"], "use_qk_norm": [True], "qk_layernorm": [True],
    "logit_scale": [2.0], "logits_scaling": [2.0], "embedding_multiplier": [2.0], "residual_multiplier": [2.0], "attention_multiplier": [2.0],
    "final_logit_softcapping": [3.0], "attn_logit_softcapping": [3.0], "query_pre_attn_scalar": [3], "clip_qkv": [0.1], "alibi": [True],
    "parallel_attn": [True], "num_experts": [4], "num_local_experts": [4], "moe_intermediate_size": [8], "no_rope_layers": [[0, 1]],
    "unsloth_version": ["2025.1"], "unsloth_fixed": [True], "gradient_checkpointing": [True], "n_ctx": [8], "hidden_dropout": [0.5], "scale": [2.0],
}

ROPE = {
    "rope_type": ["default", "linear", "dynamic", "llama3", "yarn", "longrope", "nosuch"], "type": ["linear"], "factor": [0.5, 1.0, 4.0],
    "rope_theta": [5000.0], "partial_rotary_factor": [0.5, 1.0], "original_max_position_embeddings": [4, 64], "attention_factor": [0.0, 0.5, 1.5],
    "beta_fast": [4.0, 0.0], "beta_slow": [2.0, 0.0], "mscale": [0.7, 0.0], "mscale_all_dim": [0.5, 0.0], "truncate": [True, False], "low_freq_factor": [2.0],
    "high_freq_factor": [8.0], "short_factor": [[1.0] * 4], "long_factor": [[1.0] * 4], "rope_interleaved": [True], "short_mscale": [2.0], "mrope_section": [[1, 1, 2]],
    "finetuned": [True],
}


def values(key, now):
    """Other values of a key, of the types that it may have."""
    if key in PUBLISHED:
        return PUBLISHED[key]
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, int):
        return [now + 2, 1, 0]
    if isinstance(now, float):
        return [2 * now + 0.25]
    if isinstance(now, str):
        return ["gelu", "relu", "nosuch"]
    return [None, 1, True, 0.5]


def keys(config, model):
    """The keys of the class and of the code, with their present values."""
    found = dict(config.to_dict())
    source = inspect.getsource(importlib.import_module(type(model).__module__))
    for name in re.findall(r"config\.([a-z_0-9]+)\b(?!\()", source):
        found.setdefault(name, getattr(config, name, None))
    for name in PUBLISHED:
        found.setdefault(name, None)
    for name in ("dtype", "torch_dtype", "model_type", "architectures", "transformers_version", "rope_parameters", "rope_scaling", "quantization_config"):
        found.pop(name, None)
    return {k: v for k, v in found.items() if not k.startswith("_") or k in PUBLISHED}


def loss(weights, config, ids):
    """The loss of a model with another config, or what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(weights, folder)
        Path(folder, "config.json").write_text(json.dumps(config))
        try:
            model, info = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
            for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
                if info.get(problem):
                    return {"error": problem}
            model.eval()
            with torch.no_grad():
                value = model(input_ids=ids, labels=ids, use_cache=False, return_dict=True).loss.item()
            return {"loss": value} if value == value else {"error": "NaN"}
        except Exception as e:  # whatever it raises, it gives no number
            return {"error": type(e).__name__}


def cases(name):
    path = fixture.ROOT / name
    base = json.loads((path / "config.json").read_text())
    ids = safetensors.torch.load_file(path / "expect.safetensors")["input_ids"]
    config = AutoConfig.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path)
    for key, now in sorted(keys(config, model).items()):
        for value in values(key, base.get(key, now)):
            yield {"key": key, "value": value, **loss(path / "model.safetensors", {**base, key: value}, ids)}
    layers = config.num_hidden_layers
    for kinds in (["full_attention"] * layers, ["sliding_attention"] * layers, ["full_attention", "sliding_attention"] * (layers // 2), ["chunked_attention"] * layers):
        for more in ({}, {"sliding_window": 5}, {"sliding_window": 5, "use_sliding_window": True}):
            yield {"key": "layer_types", "value": kinds, "more": more, **loss(path / "model.safetensors", {**base, **more, "layer_types": kinds}, ids)}
    if name == "gpt2":
        return
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    for rope in (yarn, llama3, {**yarn, "mscale": 0.7, "mscale_all_dim": 0.5}, {"rope_type": "linear", "factor": 2.0}, {"rope_type": "default"}):
        for key, list_of in ROPE.items():
            for value in list_of:
                changed = {**rope, key: value}
                yield {"key": "rope_scaling", "rope": key, "value": changed, **loss(path / "model.safetensors", {**base, "rope_scaling": changed}, ids)}


def main():
    fixture.repeatable()
    logging.set_verbosity_error()
    out = {name: list(cases(name)) for name in MODELS}
    lines = ["{"]
    for i, (name, list_of) in enumerate(out.items()):
        lines.append(f' "{name}": [')
        lines += ["  " + json.dumps(c) + ("," if j < len(list_of) - 1 else "") for j, c in enumerate(list_of)]
        lines.append(" ]" + ("," if i < len(out) - 1 else ""))
    (fixture.ROOT / "config_keys.json").write_text("\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
