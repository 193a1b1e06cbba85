"""Checks that what Spillway writes loads in the libraries it is written for, and means
the same there. Run from the root of the repository, with requirements-quant.txt:

    go test ./quant/stored -run Convert -keep FOLDER/quantized
    go test ./lora -run ForPEFT -keep FOLDER/adapters
    python -m tools.reference.loads FOLDER
"""

import sys
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

PLAIN = Path("quant/stored/testdata/plain")


def quantized(folder):
    """Loads a folder and compares its logits with those of the plain model that has each
    quantized weight replaced by what it decodes to, computed in f32."""
    ids = torch.arange(12)[None] % 32
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=torch.float32)
    logits = model(ids).logits.float()
    plain = transformers.AutoModelForCausalLM.from_pretrained(PLAIN, dtype=torch.float32)
    before = plain(ids).logits
    files = load_file(folder / "model.safetensors")
    changed = 0
    with torch.no_grad():
        for name, module in plain.named_modules():
            weight = decoded(files, name + ".weight")
            if weight is not None:
                module.weight.copy_(weight.reshape(module.weight.shape))
                changed += 1
    after = plain(ids).logits
    scale = before.abs().max()
    print(
        f"{folder.name}: {changed} weights; logits differ by {(logits - after).abs().max() / scale:.2e} from the decoded"
        f" weights', by {(logits - before).abs().max() / scale:.2e} from the plain model's"
    )


def decoded(files, name):
    """What a weight of a file stands for, by the definition of its format."""
    if name.removesuffix("weight") + "SCB" in files:
        return files[name].float() * files[name.removesuffix("weight") + "SCB"][:, None] / 127
    if name + ".absmax" not in files:
        return None
    codes = files[name].flatten()
    values = files[name + ".quant_map"]
    pairs = torch.stack([values[(codes >> 4).long()], values[(codes & 15).long()]], 1).flatten()
    state = next(v for k, v in files.items() if k.startswith(name + ".quant_state"))
    offset = float(bytes(state.tolist()).decode().split('"nested_offset": ')[1].rstrip(" }"))
    groups = files[name + ".nested_absmax"].repeat_interleave(256)
    scales = files[name + ".absmax"]
    absmax = files[name + ".nested_quant_map"][scales.long()] * groups[: len(scales)] + torch.tensor(offset)
    return pairs * absmax.repeat_interleave(64)[: len(pairs)]


def adapter(folder):
    """Loads an adapter beside the model its config names and compares with the logits that
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


def main():
    root = Path(sys.argv[1])
    for config in sorted(root.rglob("config.json")):
        quantized(config.parent)
    for config in sorted(root.rglob("adapter_config.json")):
        adapter(config.parent)


if __name__ == "__main__":
    main()
