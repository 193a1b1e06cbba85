"""Writes hf/offload/testdata/offload: an offload folder as accelerate makes it, with a
tensor of each kind it treats differently, and the same numbers as plain JSON.

Needs: torch, accelerate. Run from the repository root: python -m tools.reference.offload
"""

import json
import pathlib
import shutil

import torch
from accelerate.utils import offload_state_dict

OUT = pathlib.Path("hf/offload/testdata")


def tensors():
    g = torch.Generator().manual_seed(7)
    return {
        "model.layers.0.weight": torch.randn(5, 3, generator=g),
        "model.layers.0.half": torch.randn(4, 2, generator=g).to(torch.float16),
        "model.layers.0.brain": torch.randn(2, 3, 2, generator=g).to(torch.bfloat16),
        "model.double": torch.randn(3, generator=g, dtype=torch.float64),
        "model.scale": torch.tensor(1.25),
        "model.positions": torch.arange(6),
        "model.mask": torch.tensor([True, False, True]),
    }


def main():
    folder = OUT / "offload"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    offload_state_dict(str(folder), tensors())
    numbers = {name: t.flatten().tolist() for name, t in tensors().items() if t.is_floating_point()}
    (OUT / "offload.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
