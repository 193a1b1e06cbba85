"""GGUF files of the tiny models, written by the gguf package as llama.cpp's converter does.

Run with `python -m tools.reference.gguf_files` from the root of the repository; it needs
gguf, numpy and safetensors alone. The files go to gguf/testdata.
"""

import json
import math
import re
from pathlib import Path

import gguf
import numpy
import safetensors.numpy

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "gguf" / "testdata"

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def rename(name):
    module, kind = name.rsplit(".", 1)
    if m := re.fullmatch(r"model\.layers\.(\d+)\.(.*)", module):
        return f"blk.{m[1]}.{NAMES[m[2]]}.{kind}"
    return f"{NAMES[module]}.{kind}"


def permute(x, heads):
    """Rotary halves become interleaved pairs."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def factors(config):
    s = config["rope_scaling"]
    dim = config["hidden_size"] // config["num_attention_heads"]
    out = []
    for i in range(dim // 2):
        wave = 2 * math.pi * config["rope_theta"] ** (2 * i / dim)
        low, high = s["original_max_position_embeddings"] / s["low_freq_factor"], s["original_max_position_embeddings"] / s["high_freq_factor"]
        if wave < high:
            out.append(1)
        elif wave > low:
            out.append(s["factor"])
        else:
            smooth = (s["original_max_position_embeddings"] / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            out.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return numpy.array(out, dtype=numpy.float32)


def write(folder, path, arch, shards=0, kind=None):
    config = json.loads((folder / "config.json").read_text())
    w = gguf.GGUFWriter(path, arch, split_max_tensors=shards)
    heads, kv = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    w.add_name(folder.name)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config.get("rope_theta", 10000.0))
    head = config.get("head_dim") or config["hidden_size"] // heads
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_dimension_count(head)
    if config.get("sliding_window") and arch == "llama":
        w.add_sliding_window(config["sliding_window"])
    w.add_tokenizer_model("none")
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", factors(config))
    for name, x in safetensors.numpy.load_file(folder / "model.safetensors").items():
        if config.get("tie_word_embeddings") and name == "lm_head.weight":
            continue
        if arch == "llama" and ".q_proj." in name:
            x = permute(x, heads)
        if arch == "llama" and ".k_proj." in name:
            x = permute(x, kv)
        x = x.astype(numpy.float32)
        if kind and x.ndim == 2 and x.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
            w.add_tensor(rename(name), gguf.quantize(x, kind), raw_dtype=kind)
        else:
            w.add_tensor(rename(name), x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(path.name)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    models = ROOT / "testdata" / "reference"
    write(models / "llama", OUT / "llama.gguf", "llama")
    write(models / "qwen3", OUT / "qwen3.gguf", "qwen3", shards=9)
    write(models / "qwen3", OUT / "qwen3-q8_0.gguf", "qwen3", kind=gguf.GGMLQuantizationType.Q8_0)


if __name__ == "__main__":
    main()
