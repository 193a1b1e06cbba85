"""Checks that what Spillway writes loads in the libraries it is written for, and means
the same there. Run from the root of the repository, with requirements-quant.txt:

    go test ./convert -run Formats -keep FOLDER/quantized
    go test ./lora -run ForPEFT -keep FOLDER/adapters
    go test ./finetune -run SavedRuns -keep FOLDER/trained
    python -m tools.reference.loads FOLDER
"""

import sys
from pathlib import Path

import bitsandbytes
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

PLAIN = Path("quant/stored/testdata/plain")
WRITTEN = Path("hf/testdata/adapters/written.safetensors")
BOUND = 1e-5  # of the largest logit


def load(folder):
    """Loads a folder to compute in f32, and wants every weight in it to be used and none to be
    missing."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, device_map="cpu", dtype=torch.float32, output_loading_info=True
    )
    left = {what: names for what, names in info.items() if names}
    assert not left, f"{folder}: {left}"
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):  # else they multiply in bf16
            module.compute_dtype, module.compute_type_is_set = torch.float32, True
    return model.train()  # else 8-bit weights are multiplied by inputs of 8 bits


def apart(got, want):
    """The largest difference of logits over the largest of them."""
    return (got.flatten() - want.flatten()).abs().max() / want.abs().max()


def model(folder):
    """Loads a folder and compares its logits with those that were written with it, and with
    those of the plain model it was made of."""
    ids = torch.arange(12)[None] % 32
    logits = load(folder)(ids).logits.float()
    before = transformers.AutoModelForCausalLM.from_pretrained(PLAIN, dtype=torch.float32)(ids).logits
    off = apart(logits, load_file(folder / "expect.safetensors")["logits"])
    print(f"{folder.parent.name}/{folder.name}: logits differ by {off:.2e} from ours, by {apart(logits, before):.2e} from the plain model's")
    assert off < BOUND, folder


def trained(folder):
    """Loads the adapter of a run, exported, into the quantized model that it was trained with, and
    compares with the logits of that model dequantized and merged."""
    name = folder.name.removeprefix("adapter-")
    base = PLAIN if name == "plain" else folder.parent / f"base-{name}"
    with torch.no_grad():
        logits = peft.PeftModel.from_pretrained(load(base), folder).train()(torch.arange(12)[None]).logits.float()
    off = apart(logits, load_file(folder.parent / f"merged-{name}-plain" / "expect.safetensors")["logits"])
    print(f"{folder.name}: logits differ by {off:.2e} from ours")
    assert off < BOUND, folder


def adapter(folder):
    """Loads an adapter into the model its config names and compares with the logits that
    were written with it."""
    config = peft.PeftConfig.from_pretrained(folder)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        config.base_model_name_or_path, dtype=torch.float32, attn_implementation="eager"
    )
    ids = torch.arange(10)[None] * 3 % 7
    before = base(ids).logits.flatten()
    model = peft.PeftModel.from_pretrained(base, folder).eval()
    logits = model(ids).logits.flatten()
    want = load_file(folder / "expect.safetensors")["logits"]
    scale = want.abs().max()
    print(
        f"{folder.name}: {sum('lora' in n for n, _ in model.named_parameters())} tensors; logits differ by"
        f" {(logits - want).abs().max() / scale:.2e} from ours, by {(before - want).abs().max() / scale:.2e} without the adapter"
    )
    return logits.detach().clone()


def main():
    root = Path(sys.argv[1])
    for expected in sorted(root.rglob("expect.safetensors")):
        if (expected.parent / "config.json").exists():
            model(expected.parent)
    for folder in sorted(root.rglob("adapter-*")):
        trained(folder)
    given = {
        config.parent.name: adapter(config.parent)
        for config in sorted(root.rglob("adapter_config.json"))
        if (config.parent / "expect.safetensors").exists()
    }
    if given:  # what PEFT says of adapters written here, for tests without it
        save_file(given, WRITTEN)
        WRITTEN.chmod(0o644)


if __name__ == "__main__":
    main()
