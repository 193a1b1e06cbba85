"""Two hundred AdamW iterations of a Llama in PyTorch, in f32 and in bf16 with f32 masters, each
with several implementations of attention, to show how far PyTorch's own results differ.

    python -m tools.reference.curve testdata/reference/llama [--device cuda]

writes curve.json into the folder; where the folder has a config and no weights, it makes some.
"""

import argparse
import contextlib
import json
import os

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM

ITERATIONS, ROWS, TOKENS = 200, 4, 64
ADAMW = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


def kernels(device):
    """Implementations of attention by name: transformers' word for it, and which of PyTorch's own kernels."""
    made = {"eager": ("eager", None), "sdpa": ("sdpa", None)}
    if device != "cpu":
        made |= {"math": ("sdpa", SDPBackend.MATH), "cudnn": ("sdpa", SDPBackend.CUDNN_ATTENTION)}
    return made


def runs(options, dtype):
    """Losses by implementation; those that PyTorch lacks for the type are left out."""
    made = {}
    for name, how in kernels(options.device).items():
        try:
            made[name] = run(options, *how, dtype)
        except RuntimeError as e:
            if "No available kernel" not in str(e):
                raise
    return made


def batch(number, vocabulary):
    """ids [ROWS TOKENS+1] of a batch: a hash of the position of each token, skewed towards small ids so that
    there is something to learn."""
    place = torch.arange(ROWS * (TOKENS + 1), dtype=torch.int64) + 1 + number * 100003
    word = place * 2654435761 % 2**32 // 256
    return (word % vocabulary * (word // vocabulary % vocabulary) // vocabulary).view(ROWS, TOKENS + 1)


def loss_of(model, ids):
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def run(options, attention, kernel, dtype):
    """Losses before each update. In bf16 the model computes with copies of f32 weights."""
    with sdpa_kernel(kernel) if kernel else contextlib.nullcontext():
        return losses_of(options, attention, dtype)


def losses_of(options, attention, dtype):
    load = {"attn_implementation": attention, "dtype": torch.float32}
    model = AutoModelForCausalLM.from_pretrained(options.folder, **load).to(options.device)
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(masters, lr=options.rate, **ADAMW)
    losses = []
    for i in range(ITERATIONS):
        with torch.no_grad():
            for p, m in zip(model.parameters(), masters):
                p.copy_(m)
                p.grad = None
        loss = loss_of(model, batch(i % options.batches, model.config.vocab_size).to(options.device))
        loss.backward()
        for p, m in zip(model.parameters(), masters):
            m.grad = p.grad.float()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fresh(folder):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    with torch.no_grad():  # as large as trained weights, so that rounding to bf16 matters
        for p in model.parameters():
            if p.ndim > 1:
                p.mul_(2)
    model.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rate", type=float, default=1e-3, help="the learning rate")
    parser.add_argument("--batches", type=int, default=8, help="different batches, in turns")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if not os.path.exists(os.path.join(options.folder, "model.safetensors")):
        fresh(options.folder)
    made = {"iterations": ITERATIONS, "rows": ROWS, "tokens": TOKENS, "batches": options.batches, "rate": options.rate}
    made |= {"torch": torch.__version__, "device": options.device}
    for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16)]:
        made[name] = runs(options, dtype)
    with open(os.path.join(options.folder, "curve.json"), "w") as f:
        json.dump(made, f)
        f.write("\n")


if __name__ == "__main__":
    main()
