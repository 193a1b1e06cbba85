"""What transformers writes after a prompt, token by token with its own cache: greedy texts.

Run with `python -m tools.reference.generation` from the root of the repository, after
tools.reference.models. Models are those of that module, and one with everything that a
cache may get wrong: a single key-value head, heads wider than hidden_size divided by their
number, rope scaled by yarn, biases, tied weights.

A text is only good for a comparison where no two tokens are nearly as likely: prompts are
drawn until the likeliest token is ahead of the second everywhere.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from . import fixture, models

NEW_TOKENS, PROMPT, AHEAD = 200, 9, 1e-3

ODD = {
    **models.LLAMA_FAMILY,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 88,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 12,
    "attention_bias": True,
    "mlp_bias": False,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}

NAMES = ["llama", "llama2-tied", "mistral", "qwen2", "qwen3", "odd"]


def make_odd():
    path = fixture.folder("odd")
    fixture.write_json(path / "config.json", ODD)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
    models.randomize(model, fixture.stream("odd"))
    fixture.write_tensors(path / "model.safetensors", dict(model.named_parameters()))


def greedy(name):
    model = models.load(fixture.folder(name), "eager").eval()
    generator = fixture.stream("generation " + name)
    while True:
        prompt = torch.randint(3, model.config.vocab_size, (1, PROMPT), generator=generator)
        with torch.no_grad():
            out = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
        best = torch.cat(out.logits).topk(2).values
        ahead = (best[:, 0] - best[:, 1]).min().item()
        text = out.sequences[0].tolist()
        if ahead > AHEAD and len(text) == PROMPT + NEW_TOKENS:
            return {"prompt": text[:PROMPT], "tokens": text[PROMPT:], "ahead": ahead}


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    fixture.repeatable()
    make_odd()
    texts = {}
    for name in NAMES:
        texts[name] = greedy(name)
        print(f"{name:20} {len(set(texts[name]['tokens']))} different tokens, ahead by {texts[name]['ahead']:.3g}")
    fixture.write_json(fixture.ROOT / "generation.json", {"versions": fixture.versions(), "texts": texts})


if __name__ == "__main__":
    main()
