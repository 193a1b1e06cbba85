"""Makes testdata/reference/tied.json: the loss of tied models whose file has another lm_head.

Run with `python -m tools.reference.tied` from the root of the repository, after models.py.
"""

import json
import shutil
import tempfile
from pathlib import Path

import safetensors.torch
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from . import fixture

EMBEDDINGS = {"llama2-tied": "model.embed_tokens.weight", "qwen2": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}


def head(embedding):
    """Another head: half the embedding and a little that depends on the place."""
    return embedding / 2 + (torch.arange(embedding.numel()) % 7).view(embedding.shape) / 64


def loss(name, key, change):
    path = fixture.ROOT / name
    ids = safetensors.torch.load_file(path / "expect.safetensors")["input_ids"]
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    tensors["lm_head.weight"] = change(tensors[key])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path / "config.json", folder)
        safetensors.torch.save_file(tensors, Path(folder, "model.safetensors"), {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            return model(input_ids=ids, labels=ids, use_cache=False).loss.item()


def main():
    fixture.repeatable()
    logging.set_verbosity_error()
    out = {name: {"other": loss(name, key, head), "same": loss(name, key, torch.clone)} for name, key in EMBEDDINGS.items()}
    fixture.write_json(fixture.ROOT / "tied.json", out)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
