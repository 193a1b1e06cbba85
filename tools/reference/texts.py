"""Texts of tiny odd models, as transformers' generate writes them in float32.

Run with `python -m tools.reference.texts` from the root of the repository. The models go to
generate/testdata/models, a folder each, and the texts to generate/testdata/texts.json: two
hundred greedy tokens, the same with a repetition penalty, and beams.
"""

import json
import pathlib

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging

from . import fixture

ROOT = pathlib.Path(__file__).parents[2] / "generate" / "testdata"

LLAMA = {
    "hidden_act": "silu", "max_position_embeddings": 256, "attention_dropout": 0.0, "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
}

CONFIGS = {
    "window": {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 7},
    # Only some of the layers have a window, and it is wider than the page of a cache.
    "some-windows": {
        **LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 4, "use_sliding_window": True, "sliding_window": 70,
        "num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "one-kv-head": {**LLAMA, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_key_value_heads": 1},
    # The text is longer than the positions that the model was made for.
    "yarn": {
        **LLAMA, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "tied": {**LLAMA, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True, "num_key_value_heads": 4},
    "wide-heads": {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 10, "attention_bias": True},
}

NEW = 200
SEEDS = {"window": 2, "some-windows": 1, "one-kv-head": 3}  # the first that give a text which no rounding can change


def fill(model, generator):
    """Weights large enough that texts do not repeat themselves at once."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            weight.data = torch.randn(weight.shape, generator=generator) * (1.0 if "embed" in name else 2.0 / min(weight.shape) ** 0.5)
        elif "norm" in name:
            weight.data = 1 + 0.3 * torch.randn(weight.shape, generator=generator)
        else:
            weight.data = 0.3 * torch.randn(weight.shape, generator=generator)


def text(model, prompt, new, **settings):
    model.generation_config.eos_token_id = settings.get("eos_token_id")
    config = GenerationConfig(max_new_tokens=new, do_sample=False, return_dict_in_generate=True, output_scores=True, pad_token_id=0, **settings)
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), generation_config=config)
    return out


def margin(out):
    """The smallest distance of the best score of a place to the second best."""
    return min((s[0].topk(2).values[0] - s[0].topk(2).values[1]).item() for s in out.scores)


def attempt(name, seed):
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name], indent=1) + "\n")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    fill(model, generator)
    model.tie_weights()
    prompt = torch.randint(3, 61, (5,), generator=generator).tolist()
    greedy = text(model, prompt, NEW)
    if margin(greedy) < 2e-3 or len(set(greedy.sequences[0].tolist())) < 12:
        return None
    penalized = text(model, prompt, 50, repetition_penalty=1.2)
    tokens = greedy.sequences[0, len(prompt):].tolist()
    if margin(penalized) < 2e-3:
        return None
    case = {"model": name, "prompt": prompt, "greedy": tokens, "penalized": penalized.sequences[0, len(prompt):].tolist(), "beams": []}
    for beams, length_penalty, early in [(3, 1.0, False), (4, 0.0, True), (5, 2.0, False), (2, -1.0, False)]:
        found = text(model, prompt, 16, num_beams=beams, num_return_sequences=beams, length_penalty=length_penalty, early_stopping=early, eos_token_id=2)
        rows = [[t for t in row[len(prompt):].tolist()] for row in found.sequences]
        case["beams"].append({"count": beams, "length_penalty": length_penalty, "early_stopping": early, "texts": rows, "scores": [round(s, 6) for s in found.sequences_scores.tolist()]})
    state = {n: w.contiguous().clone() for n, w in model.state_dict().items()}
    if CONFIGS[name]["tie_word_embeddings"]:
        state.pop("lm_head.weight")
    fixture.write_tensors(folder / "model.safetensors", state)
    return case


def main():
    logging.set_verbosity_error()
    fixture.repeatable()
    cases = []
    for name in CONFIGS:
        for seed in range(SEEDS.get(name, 0), 1000):
            if case := attempt(name, seed):
                print(name, "seed", seed, "distinct", len(set(case["greedy"])))
                cases.append(case)
                break
        else:
            raise SystemExit(f"no seed gives {name} a text")
    fixture.write_json(ROOT / "texts.json", {"versions": fixture.versions(), "cases": cases})


if __name__ == "__main__":
    main()
