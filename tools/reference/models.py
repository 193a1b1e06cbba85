"""Tiny decoder models as Hugging Face folders, with the numbers transformers gives.

Run with `python -m tools.reference.models` from the root of the repository.

Each folder holds config.json and model.safetensors, as a published model would,
and what is expected of it: expect.safetensors and expect.json. The configs are
written here by hand in the words of published models; transformers reads the
folder back, so a folder it would not understand fails here.
"""

import safetensors.torch
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from . import fixture, training

BATCH, SEQUENCE = 2, 14

# What all of the Llama family share; rope and tying are each model's own.
LLAMA_FAMILY = {
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 256,
    "attention_dropout": 0.0,
    "use_cache": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CONFIGS = {
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 80,
        "n_positions": 32,
        "n_ctx": 32,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 1,
    },
    # Three query heads share a key/value head. The four rope frequencies fall in all
    # three bands of the llama3 scaling: kept (wavelength 6.3), blended (63), divided by 8.
    "llama": {
        **LLAMA_FAMILY,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 96,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    # Llama 2: no grouping, plain rope; here tied, and in the newer words of
    # transformers 5 (rope_parameters, dtype).
    "llama2-tied": {
        **LLAMA_FAMILY,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 72,
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "dtype": "float32",
    },
    # A token sees itself and the four before it: the window is shorter than the sequence.
    "mistral": {
        **LLAMA_FAMILY,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "vocab_size": 80,
        "hidden_size": 32,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 5,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
    # Biases on q, k and v. The window is named but switched off, as published.
    "qwen2": {
        **LLAMA_FAMILY,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 80,
        "hidden_size": 32,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 8,
        "max_window_layers": 1,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
    # Norms on each query and key head; heads wider than hidden_size / num_attention_heads.
    "qwen3": {
        **LLAMA_FAMILY,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 80,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "max_window_layers": 2,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    },
}


def randomize(model, generator):
    """Gives every parameter values that matter: no norm weight is 1, no bias is 0."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(_scaled(name, p, noise))


def _scaled(name, p, noise):
    if name.endswith("bias"):
        return 0.2 * noise
    if p.dim() == 1:  # a norm's weight
        return 1 + 0.3 * noise
    if "embed" in name or "wte" in name or "wpe" in name:
        return 0.2 * noise
    return noise * 1.3 / p.shape[-1] ** 0.5


def batch(config, generator):
    """Token ids, and as target of each position the token after it; the last has none."""
    ids = torch.randint(config.vocab_size, (BATCH, SEQUENCE), generator=generator)
    targets = torch.full_like(ids, -100)
    targets[:, :-1] = ids[:, 1:]
    return ids, targets


def make(name):
    path, generator = fixture.folder(name), fixture.stream(name)
    fixture.write_json(path / "config.json", CONFIGS[name])
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
    randomize(model, generator)
    fixture.write_tensors(path / "model.safetensors", dict(model.named_parameters()))

    model = load(path, "eager")
    ids, targets = batch(model.config, generator)

    def loss_of(m):
        return m(input_ids=ids, labels=ids, use_cache=False).loss

    logits = model(input_ids=ids, use_cache=False).logits.detach()
    loss, grads = training.gradients(model, loss_of)
    assert abs(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100) - loss) < 1e-6
    fixture.write_tensors(
        path / "expect.safetensors",
        {"input_ids": ids, "targets": targets, "logits": logits, **{"grad." + n: g for n, g in grads.items()}},
    )
    fixture.write_json(
        path / "expect.json",
        {
            "versions": fixture.versions(),
            "attention": "eager",
            "loss": loss,
            "rounding": rounding(path, ids, loss_of, logits, grads),
            "adamw": training.plain(model, loss_of),
            "adamw_clipped_cosine": training.clipped_cosine(model, loss_of),
        },
    )
    return loss


def load(path, attention):
    """Reads the folder as any user of transformers would, and checks it against what was written."""
    model, info = AutoModelForCausalLM.from_pretrained(
        path, attn_implementation=attention, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    written = safetensors.torch.load_file(path / "model.safetensors")
    assert all(torch.equal(p, written[name]) for name, p in model.named_parameters())
    return model.train()  # dropout is 0 in every config


def rounding(path, ids, loss_of, logits, grads):
    """How far PyTorch's other attention kernel is off, relative to each tensor's largest
    magnitude: by so much two correct float32 programs may differ."""
    other = load(path, "sdpa")
    other_logits = other(input_ids=ids, use_cache=False).logits.detach()
    _, other_grads = training.gradients(other, loss_of)
    return {
        "other_attention": "sdpa",
        "logits": fixture.relative(other_logits, logits),
        "gradients": max(fixture.relative(other_grads[n], grads[n]) for n in grads),
    }


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    fixture.repeatable()
    for name in CONFIGS:
        print(f"{name:20} loss {make(name):.6f}")


if __name__ == "__main__":
    main()
