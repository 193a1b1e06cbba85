"""PyTorch's own files, as torch.save writes them.

Run with `python -m tools.reference.pickles` from the root of the repository; it needs torch
and safetensors. The files go to pickle/testdata.
"""

import json
from pathlib import Path

import safetensors.torch
import torch

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "pickle" / "testdata"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    state = safetensors.torch.load_file(ROOT / "testdata" / "reference" / "qwen3" / "model.safetensors")
    names = sorted(state)
    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    where = {}
    for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
        file = f"pytorch_model-{i + 1:05}-of-00002.bin"
        torch.save({n: state[n] for n in part}, folder / file)
        where |= {n: file for n in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))
    x = torch.arange(24, dtype=torch.float32)
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(x[:6].view(2, 3))
        module.bias.copy_(x[:2])
    kinds = {
        "f32": x.view(4, 6), "part": x[5:11].view(2, 3), "bf16": x.bfloat16(), "f16": x.half(), "f64": x.double(), "i64": x.long(), "scalar": torch.tensor(7.0), "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(x[:4].clone()), "one row": x[:6].view(1, 6),
    }
    torch.save(kinds, OUT / "kinds.bin")
    torch.save(module.state_dict(), OUT / "module.bin")
    torch.save({"x": x.view(4, 6).t()}, OUT / "transposed.bin")
    torch.save({"model": {"x": x}, "epoch": 3}, OUT / "nested.bin")
    torch.save(module, OUT / "whole-module.bin")
    torch.save(kinds, OUT / "legacy.bin", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
